"""`distributed.topology = "partitioned"`: graphs, gradients and collectives where each device keeps its own edges."""

import dataclasses

import jax
import numpy as np
import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.mesh import SHARDED
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.sampled import Sampled
from tests.models.heterographs import academic
from tests.runtime.test_processes import finish, start_two
from tests.training.agreement import execution, max_difference, trained
from tests.training.minibatches import recipe
from tests.training.test_parts import (
    CLOSE,
    EPOCHS,
    agreement,
    metrics,
    one_process_and_parts,
    with_more_relations,
)


def partitioned(name: str, devices: int, strategy: str = "owner", graph=None, **sampling) -> Sampled:
    evaluation = {"evaluation": "layerwise"} if "walks" not in sampling else {}
    config = recipe(
        name,
        training={"optimizer": "sgd", "weight_decay": 0.0},
        sampling={"batch_size": 16} | evaluation | sampling,
    )
    distributed = dataclasses.replace(
        config.distributed, strategy=strategy, method="random", devices=devices, topology="partitioned"
    )
    graph = academic() if graph is None else graph
    return execution_of(pose(graph, dataclasses.replace(config, distributed=distributed)))


def blocks_of(made: Sampled, variant: int) -> tuple:
    """The blocks of the first batch by place, as the devices draw them, and as the host does from the whole graph."""
    reader = made.reader(variant)
    resident = made.mesh.place(made.layout.resident, made.resident_specs)
    (batch,) = made.compile().feed(0).iterate(Cursor(), Cursor(0, 1))
    shard = batch.arguments[0]
    program = made.mesh.lower(
        lambda resident, shard: jax.tree.leaves(reader.blocks(resident, shard)),
        (resident, shard),
        (made.resident_specs, SHARDED),
        results=SHARDED,
    ).compile()
    drawn = [np.asarray(leaf) for leaf in program(resident, shard)]
    capacities = made.layout.buckets.capacities[made.layout.bucket(variant)]
    hosted = []
    for ids in np.asarray(shard.ids):
        seeds = made.seeds_of(ids, 0, 0)
        blocks, _ = made.layout.sampler.sample(seeds, 0, 0, fixed(capacities))
        hosted.append(jax.tree.leaves(blocks))
    return drawn, [np.stack(leaves) for leaves in zip(*hosted, strict=True)]


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("rgcn", {}),
        pytest.param("rgcn", {"fan_out": "all"}, marks=pytest.mark.slow),
        pytest.param("han", {"walks": 5, "fan_out": "3"}, marks=pytest.mark.slow),
        pytest.param("han", {}, marks=pytest.mark.slow),
    ],
)
def test_devices_draw_what_the_host_draws_from_the_whole_graph(name, sampling):
    """Bit for bit, whoever keeps the edges."""
    made = partitioned(name, 2, **sampling)
    drawn, hosted = blocks_of(made, len(made.layout.variants) - 1)
    assert len(drawn) == len(hosted)
    for own, expected in zip(drawn, hosted, strict=True):
        np.testing.assert_array_equal(own, expected)


@pytest.fixture(scope="module")
def alone():
    return trained(execution("rgcn", "data", "", 1), 5)


@pytest.mark.parametrize(
    ("strategy", "hops"),
    [("owner", 1), pytest.param("data", 2, marks=pytest.mark.slow)],  # an owner's seeds are its own
)
def test_it_trains_as_one_device_in_two_more_collectives_a_hop(strategy, hops, alone):
    made = execution("rgcn", strategy, "random", 2, "auto", topology="partitioned")
    programs = made.compile()
    found = trained(made, 5, programs)
    assert max_difference(found[1].params, alone[1].params) < CLOSE
    np.testing.assert_allclose(found[2], alone[2], rtol=1e-5)
    assert programs.overflows == 0
    counts = collectives(parse(programs.step.call.as_text()))
    assert {kind: each.count for kind, each in counts.items()} == {"all-reduce": 1, "all-to-all": 3 + 2 * hops}


@pytest.mark.slow
def test_requests_that_do_not_fit_run_again_and_change_nothing(alone):
    made = execution("rgcn", "owner", "random", 2, "auto", topology="partitioned")
    layout = made.layout
    few = (FrozenCounts.of({"paper": 1}), FrozenCounts.of({"paper": 1, "author": 1, "subject": 1}))
    variants = (layout.variants[0]._replace(frontiers=few), layout.variants[-1])
    made.__dict__["layout"] = dataclasses.replace(layout, variants=variants)
    programs = made.compile()
    found = trained(made, 5, programs)
    assert programs.overflows >= 3  # every second batch has 4 targets, which may need no more than one
    np.testing.assert_allclose(found[2], alone[2], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgcn", pytest.param("rgat", marks=pytest.mark.long)])
def test_more_relations_need_no_more_collectives(name):
    few, many = (
        execution(name, "owner", "random", 2, "auto", graph, topology="partitioned")
        for graph in (academic(), with_more_relations(academic()))
    )
    counts = [
        {kind: each.count for kind, each in collectives(parse(made.lower_update().compile().as_text())).items()}
        for made in (few, many)
    ]
    assert counts[0] == counts[1] == {"all-reduce": 1, "all-to-all": 5}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgcn", *(pytest.param(name, marks=pytest.mark.long) for name in ("rgat", "han"))])
def test_gradients_are_those_of_one_device_in_float64(name):
    strategies = "data,owner" if name == "han" else "data,owner,leapgnn"
    for found in agreement("64", name, strategies, "random", "2,4", "partitioned"):
        assert found["dtype"] == "float64"
        assert found["gradient"] < 1e-12, found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("compile_cache")
def test_processes_that_keep_their_own_edges_train_as_one(tmp_path):
    both = one_process_and_parts(tmp_path)
    own = ["--distributed.read=parts", "--distributed.topology=partitioned", "--sampling.evaluation=sampled"]
    finish(*start_two(tmp_path / "two", *EPOCHS, *both, *own))
    for line, expected in zip(metrics(tmp_path / "two"), metrics(tmp_path / "one"), strict=True):
        assert line["step_loss"] == pytest.approx(expected["step_loss"], abs=1e-5)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"sampling": {"batch_size": 8}}, "give distributed.parts, or distributed.method"),
        ({"distributed": {"method": "random", "strategy": "owner"}}, "set sampling.batch_size"),
        (
            {"distributed": {"method": "random"}, "sampling": {"batch_size": 8, "side": "host"}},
            "leave out sampling.side",
        ),
        (
            {"distributed": {"method": "random"}, "sampling": {"batch_size": 8, "hot": "exact"}},
            "does not go with sampling.hot",
        ),
    ],
)
def test_what_it_does_not_go_with_is_one_line(tables, message):
    tables = tables | {"distributed": {"topology": "partitioned"} | tables.get("distributed", {})}
    with pytest.raises(InputError, match=message):
        override(Config(), tables, where="recipe x")
