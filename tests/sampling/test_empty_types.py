"""Empty node types and relations change no draw, on the host or the device, by fan-out or by walks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.sampling.capacities import fixed, padding_waste, presampled
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.device import device_edges
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import Loader
from jhgnn.sampling.plan import Draw, SamplingPlan, fan_out_plan, walk_plan
from tests.graph.empties import NOTHING, VOID, with_empties
from tests.sampling.conftest import make_graph, sample_jit
from tests.sampling.test_samplers import assert_same as assert_identical
from tests.sampling.test_samplers import check_against_reference, seeds_for

SMALL = {"paper": 30, "author": 64, "topic": 1, "venue": 4}


def assert_same(own: SampledBlocks, plain: SampledBlocks, plan: SamplingPlan) -> None:
    """The vertices and neighbours, by id, that there are without the empties; what else there is holds none.

    Slots may differ: a relation without edges has a table of padding. `plan` is that with the empties.
    """
    assert not np.asarray(own.overflowed).any()
    assert met(own) == met(plain)
    for hop in range(plan.num_hops):
        assert set(own.hops[hop]) >= set(plain.hops[hop])
        for draw in plan.draws_at(hop):
            assert neighbors(own, draw, hop) == neighbors(plain, draw, hop)


def met(blocks: SampledBlocks) -> dict[str, list[int]]:
    """Vertices of each type in the order of their slots."""
    found = {name: [vertex for vertex in np.asarray(ids).tolist() if vertex >= 0] for name, ids in blocks.nodes.items()}
    return {name: ids for name, ids in found.items() if ids}


def neighbors(blocks: SampledBlocks, draw: Draw, hop: int) -> list[tuple[int, list[int], list[int]]]:
    """Receiver, senders and visits of every row that has some, in ids of the whole graph."""
    if draw.name not in blocks.hops[hop]:
        return []
    table, rows = blocks.table(hop, draw.name, draw.source, draw.target), []
    for row in np.flatnonzero(table.num_neighbors).tolist():
        count = int(table.num_neighbors[row])
        visits = [] if table.visits is None else table.visits[row, :count].tolist()
        rows.append((int(table.receiver_ids[row]), table.sender_ids[table.senders[row, :count]].tolist(), visits))
    return rows


def both(graph: HeteroGraph, plan: SamplingPlan, seeds: dict, seed: int, step: int) -> SampledBlocks:
    """From the host, which the device must equal."""
    capacities = plan.bound_capacities({name: len(ids) for name, ids in seeds.items()})
    host, _ = HostSampler(graph, plan, threads=2).sample(seeds, seed, step, fixed(capacities))
    device = sample_jit(plan, capacities, device_edges(graph, plan), seeds, np.uint32(seed), np.uint32(step))
    assert_identical(host, device)
    return host


PLANS = {
    "number": lambda graph, _: fan_out_plan(graph, 4, 2),
    "all": lambda graph, _: fan_out_plan(graph, -1, 2),
    "two seed types": lambda graph, _: fan_out_plan(graph, 3, 2, ["paper", "author"]),
    "walks": lambda graph, schema: walk_plan(graph, [schema.metapath("PAPA"), schema.metapath("PP")], 30, 4),
}


SLOW = ("number", "two seed types")  # seconds of compilation each


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PLANS]
)
def test_host_and_device_draw_what_they_draw_without_empties(name, graph, seeds):
    more = with_empties(graph)
    plain, own = (PLANS[name](one, graph.schema) for one in (graph, more))
    seeds = seeds_for(plain, seeds)
    blocks = both(more, own, seeds, 11, 12)
    assert_same(blocks, both(graph, plain, seeds, 11, 12), own)
    check_against_reference(more, own, blocks, seeds, 11, 12)
    assert_same(with_edges(blocks, blocks.hops[0].keys()), blocks, own)
    assert padding_waste(blocks)["slots"] < 1


@settings(max_examples=15)
@given(
    graph_seed=st.integers(0, 1000),
    density=st.floats(0.0, 0.5),
    fan_out=st.lists(st.integers(-1, 6), min_size=2, max_size=2),
    batch=st.lists(st.integers(-1, 29), min_size=1, max_size=12),
)
def test_the_host_draws_on_any_graph_what_it_draws_without_empties(graph_seed, density, fan_out, batch):
    graph = make_graph(graph_seed, SMALL, density)
    more = with_empties(graph)
    seeds = {"paper": np.array(batch, np.int32)}
    drawn, plans = [], [fan_out_plan(one, fan_out, 2) for one in (more, graph)]
    for one, plan in zip((more, graph), plans, strict=True):
        capacities = plan.bound_capacities({"paper": len(batch)})
        drawn.append(HostSampler(one, plan).sample(seeds, 1, 2, fixed(capacities))[0])
    assert_same(*drawn, plans[0])


def test_walks_through_empties_end_nowhere(graph, seeds):
    more = with_empties(graph)
    back_and_forth = more.schema.metapath([f"paper:never_{NOTHING}:{NOTHING}", f"{NOTHING}:never:paper"])
    same = more.schema.metapath(["paper:cites:paper", "paper:never_again:paper"])
    plan = walk_plan(more, [back_and_forth, same], 8, 3)
    blocks = both(more, plan, {"paper": seeds["paper"]}, 1, 2)
    assert not any(table.num_neighbors.any() for table in blocks.hops[0].values())


def test_buckets_and_loaders_are_those_without_empties(graph):
    batches = EpochBatches(np.arange(0, 300, 3, dtype=np.int32), 16, seed=5)
    iterated, plans = [], []
    for one in (with_empties(graph), graph):
        plans.append(fan_out_plan(one, [3, 2], 2))
        sampler = HostSampler(one, plans[-1])
        order = batches.order(0)
        buckets = presampled(sampler, 5, [{"paper": batches.batch(order, step)} for step in range(3)])
        iterated.append([batch.blocks for batch in Loader(sampler, batches, buckets).iterate(stop=Cursor(0, 4))])
    for own, plain in zip(*iterated, strict=True):
        assert_same(own, plain, plans[0])


def test_an_empty_type_can_be_no_target():
    graph = with_empties(make_graph(0, SMALL))
    plan = fan_out_plan(graph, 2, 1, [VOID])
    blocks = both(graph, plan, {VOID: np.array([-1, -1], np.int32)}, 0, 0)
    assert not any(table.num_neighbors.any() for table in blocks.hops[0].values())
    with pytest.raises(InputError, match="seed 0 of type 'void' is out of range"):
        HostSampler(graph, plan).count({VOID: np.array([0], np.int32)}, 0, 0)
