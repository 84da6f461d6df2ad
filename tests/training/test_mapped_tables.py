"""Embedding tables in files: the same bits as on the device, whatever is kept there, over checkpoints and kills."""

import dataclasses
import json

import numpy as np
import pytest

import jhgnn
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.data import load
from jhgnn.errors import InputError
from jhgnn.nn.embeddings import tables_of
from jhgnn.stores.file_rows import is_mapped
from jhgnn.train import main
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.commands import train_arguments
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, bits, small
from tests.test_resume import killed_and_resumed, state_of
from tests.training.test_feature_cache import dense

pytestmark = pytest.mark.usefixtures("compile_cache", "emitted_as_for_users")

SLOW = pytest.mark.slow
LONG = (pytest.mark.slow, pytest.mark.long)
ROW_BYTES = 3 * 8 * 4  # adam, hidden 8
MAPPED = {"tables": "mapped"}
ONE = {"devices": 1}


def featureless(graph=None):
    """The graph with features of papers alone: authors and subjects have tables."""
    graph = academic() if graph is None else graph
    return dataclasses.replace(graph, features={"paper": graph.features["paper"]})


@pytest.mark.parametrize(
    ("settings", "cache"),
    [
        pytest.param({"model": "rgcn"}, 9 * ROW_BYTES, marks=SLOW),
        *(
            pytest.param({"model": "rgcn"} | more, cache, marks=SLOW)
            for more, cache in (({}, 0), ({}, 10**6), ({"optimizer": "sgd"}, 500), ({"optimizer": "lamb"}, 500))
        ),
        pytest.param({"model": "rgat"}, 9 * ROW_BYTES, marks=LONG),
        *(pytest.param({"model": name}, 9 * ROW_BYTES, marks=SLOW) for name in ("gcn", "gat")),
        pytest.param({"model": "rgcn", "layerwise": True}, 9 * ROW_BYTES, marks=SLOW),
    ],
)
def test_parameters_are_the_same_bit_for_bit(settings, cache):
    """Also for types that are erased, whose tables a batch reads in slots of other types as well."""
    settings = dict(settings)
    batches = IN_BATCHES | ({"evaluation": "layerwise"} if settings.pop("layerwise", False) else {})
    plain, mapped = (
        small(featureless(), epochs=2, **settings, sampling=batches | own, distributed=ONE)
        for own in ({}, MAPPED | {"cache": cache})
    )
    assert bits(plain.params) == bits(mapped.params)
    figures = [name for name in plain.summary if name.startswith(("val_", "test_"))]
    assert figures
    assert all(plain.summary[name] == mapped.summary[name] for name in figures)
    assert {name: is_mapped(table) for name, table in tables_of(mapped.params).items()} == dict.fromkeys(
        tables_of(plain.params), True
    )
    assert mapped.summary["compilations_after_warm_up"] == 0
    facts = mapped.summary["table_cache"]
    assert facts["bytes"] <= cache
    if cache == 9 * ROW_BYTES:
        assert facts["bytes"] > cache - ROW_BYTES
        rates = facts["hit_rate"].values()  # what a miss costs is measured, so that one type may get all rows
        assert max(rates) > 0
        assert min(rates) < 1
    np.testing.assert_array_equal(plain.predict(), mapped.predict())


@pytest.mark.parametrize(
    "links", [pytest.param({"name": "link_prediction", "negatives": 2, "relations": ["writes"]}, marks=SLOW)]
)
def test_links_read_a_row_more_than_once(links):
    """A batch of links names nodes several times; their rows are staged once, and updated once."""
    runs = [
        small(featureless(), model="rgcn", epochs=2, task=links, sampling=IN_BATCHES | own, distributed=ONE)
        for own in ({}, MAPPED | {"cache": 500})
    ]
    assert bits(runs[0].params) == bits(runs[1].params)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_bitwise_the_same(tmp_path, academic_path):
    more = ("--sampling.batch_size", "8", "--sampling.fan_out", "3", "--distributed.devices", "1")
    more = (*more, "--sampling.tables", "mapped", "--sampling.cache", "700", "--model.dropout", "0.4")
    run = killed_and_resumed(tmp_path, academic_path, *more, epochs=20)
    # Features of all 25 authors take 500 bytes, and whichever type costs more to miss, tables get some of the rest.
    assert 0 < json.loads((run / "summary.json").read_text())["table_cache"]["bytes"] <= 4 * ROW_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("first", ["device", "mapped"])
def test_a_checkpoint_is_whole_wherever_tables_are(first, tmp_path, academic_path):
    """A run goes on with its tables elsewhere, to the same bits."""
    more = ("--sampling.batch_size", "8", "--sampling.fan_out", "3", "--distributed.devices", "1")
    arguments = {name: train_arguments(academic_path, tmp_path / name, *more) for name in ("whole", "halves")}
    assert main([*arguments["whole"], "--training.epochs", "4"]) == 0
    second = {"device": "mapped", "mapped": "device"}[first]
    assert main([*arguments["halves"], "--training.epochs", "2", "--sampling.tables", first]) == 0
    resumed = [*arguments["halves"], "--training.epochs", "4", "--sampling.tables", second, "--resume"]
    assert main(resumed) == 0
    assert state_of(tmp_path / "whole") == state_of(tmp_path / "halves")


def test_one_budget_is_shared_by_features_in_files_and_by_tables(tmp_path):
    """With room for all rows that are read, both have some in fast memory."""
    path = jhgnn.save_graph(dense(featureless()), tmp_path / "graph")
    sampling = IN_BATCHES | MAPPED | {"cache": "1GiB"}
    config = override(
        Config(), {"model": {"name": "rgcn", "layers": 1}, "sampling": sampling, "distributed": ONE}, where="test"
    )
    execution = execution_of(pose(load("jhgnn", path, progress=False), config))
    assert execution.features.num_cached("paper") > 0
    assert {name: len(ids) > 0 for name, ids in execution.kept_ids.items()} == {"author": True, "subject": True}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampling": MAPPED}, r"tables = 'mapped' keeps the rows of mini-batches, but sampling\.batch_size is 0"),
        (
            {"sampling": IN_BATCHES | MAPPED | {"side": "device"}},
            r"with sampling\.side = 'device': its rows are staged",
        ),
        ({"sampling": IN_BATCHES | MAPPED | {"hot": "stale"}}, r"with sampling\.hot = 'stale'"),
        (
            {"sampling": IN_BATCHES | MAPPED, "training": {"micro_batches": 2}},
            r"with training\.micro_batches = 2: .* leave one of them out",
        ),
        (
            {"sampling": IN_BATCHES | MAPPED, "distributed": {"strategy": "raf"}},
            r"with distributed\.strategy = 'raf'",
        ),
        (
            {"sampling": IN_BATCHES | MAPPED, "distributed": {"devices": 2}},
            r"tables = 'mapped' with 2 devices: its rows are staged for one; set distributed\.devices = 1",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(settings, message):
    with pytest.raises(InputError, match=message):
        small(featureless(), model="rgcn", epochs=1, **settings)
