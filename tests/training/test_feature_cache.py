"""Training from files with some rows kept in memory: the same bits, fewer reads, and one line where it cannot help."""

import dataclasses

import numpy as np
import pytest

import jhgnn
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.data import load
from jhgnn.errors import InputError
from jhgnn.stores.host import HostRows
from jhgnn.training.feature_cache import admission, with_kept_rows
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, bits, small

pytestmark = pytest.mark.usefixtures("compile_cache")


def dense(graph):
    """The graph with dense features."""
    matrices = {n: m if isinstance(m, np.ndarray) else m.toarray() for n, m in graph.features.items()}
    return dataclasses.replace(graph, features=matrices)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("cache") / "graph"
    return jhgnn.save_graph(dense(academic()), path)


@pytest.mark.parametrize(
    "model", ["rgcn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rgat", "han", "gcn"))]
)
def test_parameters_are_the_same_bit_for_bit(model, saved):
    graph = load("jhgnn", saved, progress=False)
    plain, cached = (small(graph, model=model, epochs=2, sampling=IN_BATCHES | cache) for cache in ({}, {"cache": 400}))
    assert bits(plain.params) == bits(cached.params)
    facts = cached.summary["feature_cache"]
    assert 0 < facts["bytes"] <= 400
    assert 0 < max(facts["hit_rate"].values()) < 1
    assert "feature_cache" not in plain.summary


def test_the_rows_kept_are_those_read_most_for_their_bytes(saved):
    features = HostRows({"paper": load("jhgnn", saved, progress=False).features["paper"]})
    table = features.tables["paper"]
    visits = {"paper": np.bincount([1, 3, 5, 3, 5, 5, 7], minlength=len(table))}
    kept = with_kept_rows(features, admission(features.tables, {}, visits, 2 * table.nbytes // len(table)))
    kept.gather("paper", np.array([5, 3, 1, 7], np.int32))
    assert (kept.hits["paper"], kept.misses["paper"]) == (2, 2)
    assert kept.facts() == {"bytes": 2 * table.nbytes // len(table), "hit_rate": {"paper": 0.5}}


def test_rows_are_counted_over_the_steps_that_are_asked_for(saved):
    """With room for all, the rows kept are those that the steps read: more in two steps than in one."""
    graph, kept = load("jhgnn", saved, progress=False), {}
    for steps in (0, 1, 2):
        sampling = IN_BATCHES | {"cache": "1GiB", "cache_steps": steps}
        config = override(Config(), {"model": {"name": "rgcn", "layers": 1}, "sampling": sampling}, where="test")
        kept[steps] = execution_of(pose(graph, config)).features.num_cached("paper")
    assert 0 < kept[1] < kept[2] <= kept[0] <= graph.num_nodes["paper"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache": 100}, r"sampling\.cache = 100 keeps rows of mini-batches, but sampling\.batch_size is 0"),
        (IN_BATCHES | {"cache": 100, "features": "device"}, r"but sampling\.features = 'device'"),
        (IN_BATCHES | {"cache": 100, "hot": "exact"}, r"beside sampling\.hot = 'exact', which keeps rows of its own"),
        (IN_BATCHES | {"cache": 100, "side": "device"}, r"but sampling\.side = 'device'"),
        (IN_BATCHES | {"cache": 100}, r"all features are in memory already; leave it out, or train on a graph"),
        (IN_BATCHES | {"cache": "many"}, r"sampling\.cache = 'many' must be a number of bytes"),
    ],
)
def test_where_it_cannot_help_it_is_one_line(settings, message):
    with pytest.raises(InputError, match=message):
        small(dense(academic()), model="rgcn", epochs=1, sampling=settings)
