"""Host and device samplers against a slow reference, and against each other bit for bit."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.errors import InputError
from jhgnn.graph.sampled import PADDING, SampledBlocks
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.device import device_edges
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import SamplingPlan, fan_out_plan, walk_plan
from tests.sampling import reference
from tests.sampling.conftest import make_graph, sample_jit

PLANS = {
    "number": lambda graph: fan_out_plan(graph, 4, 2),
    "three hops": lambda graph: fan_out_plan(graph, [5, 3, 2], 3),
    "all": lambda graph: fan_out_plan(graph, -1, 2),
    "table": lambda graph: fan_out_plan(graph, {"cites": [-1, 2], "writes": [0, 3], "rev_writes": 1, "of": 2}, 2),
    "wide": lambda graph: fan_out_plan(graph, [1000, 1], 2),
    "two seed types": lambda graph: fan_out_plan(graph, 3, 2, ["paper", "author"]),
    "walks": lambda graph: walk_plan(graph, [graph.schema.metapath("PAP"), graph.schema.metapath("PPP")], 16, 5, 2),
    "walks of three steps": lambda graph: walk_plan(graph, [graph.schema.metapath("PAPA")], 30, 4),
}


def check_against_reference(graph, plan: SamplingPlan, blocks: SampledBlocks, seeds, seed: int, step: int) -> None:
    """Every row of every table, in global ids, and the order of the slots."""
    for hop, (tables, new) in enumerate(reference.frontiers(graph, plan, seeds, seed, step)):
        assert set(blocks.hops[hop]) == {draw.name for draw in plan.draws_at(hop)}
        for name in blocks.nodes:
            start, stop = blocks.capacities[hop].get(name), blocks.capacities[hop + 1].get(name)
            added = blocks.nodes[name][start:stop]
            np.testing.assert_array_equal(added[: len(new[name])], new[name])
            assert (added[len(new[name]) :] == PADDING).all()
        for draw in plan.draws_at(hop):
            table = blocks.table(hop, draw.name, draw.source, draw.target)
            for row, vertex in enumerate(blocks.frontier(hop, draw.target)):
                expected = [] if vertex == PADDING else tables[draw.name][int(vertex)]
                senders = table.senders[row, : table.num_neighbors[row]]
                assert [int(table.sender_ids[slot]) for slot in senders] == [sender for sender, _ in expected]
                assert (table.senders[row, len(expected) :] == 0).all()
                if draw.num_walks:
                    assert table.visits[row].tolist() == [n for _, n in expected] + [0] * (table.width - len(expected))


def assert_same(first: SampledBlocks, second: SampledBlocks) -> None:
    leaves, others = jax.tree_util.tree_leaves_with_path(first), jax.tree_util.tree_leaves_with_path(second)
    assert [path for path, _ in leaves] == [path for path, _ in others]
    for (path, leaf), (_, other) in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(leaf, other, err_msg=jax.tree_util.keystr(path), strict=True)


def seeds_for(plan: SamplingPlan, seeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    offered = {"paper": seeds["paper"], "author": np.array([5, 5, 199], np.int32)}
    targets = {"author"} if plan.seed_types == ("author",) else set(plan.seed_types)
    return {name: offered[name] for name in targets}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in ("number", "wide") else name for name in PLANS]
)
def test_host_and_device_equal_the_reference(name: str, graph, seeds) -> None:
    plan = PLANS[name](graph)
    seeds = seeds_for(plan, seeds)
    capacities = plan.bound_capacities({key: len(ids) for key, ids in seeds.items()})
    host, bucket = HostSampler(graph, plan, threads=2).sample(seeds, 11, 12, fixed(capacities))
    assert bucket == 0
    check_against_reference(graph, plan, host, seeds, 11, 12)
    device = sample_jit(plan, capacities, device_edges(graph, plan), seeds, np.uint32(11), np.uint32(12))
    assert_same(host, device)
    assert not device.overflowed


@given(
    graph_seed=st.integers(0, 1000),
    density=st.floats(0.0, 0.5),
    fan_out=st.lists(st.integers(-1, 6), min_size=2, max_size=2),
    batch=st.lists(st.integers(-1, 29), min_size=1, max_size=12),
    step=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40)
def test_host_equals_the_reference_on_any_graph(graph_seed, density, fan_out, batch, step) -> None:
    graph = make_graph(graph_seed, {"paper": 30, "author": 64, "topic": 1, "venue": 4}, density)
    plan = fan_out_plan(graph, fan_out, 2)
    seeds = {"paper": np.array(batch, np.int32)}
    blocks, _ = HostSampler(graph, plan).sample(seeds, 1, step, fixed(plan.bound_capacities({"paper": len(batch)})))
    check_against_reference(graph, plan, blocks, seeds, 1, step)
    for hop, tables in enumerate(blocks.hops):
        for draw in plan.draws_at(hop):
            if draw.fan_outs[hop] >= 0:
                assert tables[draw.name].num_neighbors.max(initial=0) <= draw.fan_outs[hop]


def test_threads_and_repeats_do_not_change_a_batch(graph, seeds) -> None:
    plan = PLANS["number"](graph)
    many = {"paper": np.arange(300, dtype=np.int32)[::-1].copy()}
    buckets = fixed(plan.bound_capacities({"paper": 300}))
    samplers = [HostSampler(graph, plan, threads) for threads in (1, 2, 5)]
    first, _ = samplers[0].sample(many, 3, 4, buckets)
    for sampler in samplers:
        sampler.sample(seeds, 9, 9, buckets)  # leaves nothing behind
        assert_same(first, sampler.sample(many, 3, 4, buckets)[0])
    other, _ = samplers[0].sample(many, 3, 5, buckets)
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(first.hops), jax.tree.leaves(other.hops), strict=True))


def test_a_vertex_draws_the_same_whatever_stands_beside_it(graph) -> None:
    plan = PLANS["number"](graph)
    alone, _ = HostSampler(graph, plan).sample(
        {"paper": np.array([9], np.int32)}, 3, 4, fixed(plan.bound_capacities({"paper": 1}))
    )
    beside, _ = HostSampler(graph, plan).sample(
        {"paper": np.array([2, 9, 9], np.int32)}, 3, 4, fixed(plan.bound_capacities({"paper": 3}))
    )
    for draw in plan.draws_at(0):
        own = alone.table(0, draw.name, draw.source, draw.target)
        for row in (1, 2):
            table = beside.table(0, draw.name, draw.source, draw.target)
            np.testing.assert_array_equal(table.sender_ids[table.senders[row]][table.mask[row]],
                                          own.sender_ids[own.senders[0]][own.mask[0]])  # fmt: skip


@pytest.mark.slow
def test_device_reports_overflow(graph, seeds) -> None:
    plan = PLANS["number"](graph)
    capacities = plan.bound_capacities({"paper": len(seeds["paper"])})
    tight = (*capacities[:-1], dataclasses.replace(capacities[-1], items=tuple(
        (name, capacities[-2].get(name) + 1) for name, _ in capacities[-1].items)))  # fmt: skip
    edges = device_edges(graph, plan)
    blocks = sample_jit(plan, tight, edges, seeds, np.uint32(11), np.uint32(12))
    assert blocks.overflowed
    full = sample_jit(plan, capacities, edges, seeds, np.uint32(11), np.uint32(12))
    np.testing.assert_array_equal(blocks.added, full.added)  # what would have been needed


def test_walk_visits_count_the_walks(graph, seeds) -> None:
    plan = walk_plan(graph, [graph.schema.metapath("PAP")], 64, 64)
    blocks, _ = HostSampler(graph, plan).sample(seeds, 0, 0, fixed(plan.bound_capacities({"paper": 10})))
    table = blocks.hops[0]["PAP"]
    degrees = np.diff(graph.edges[graph.schema.metapath("PAP").relations[1]].indptr)
    totals = table.visits.sum(axis=1)
    # Every author of a paper wrote it, so that a walk from a paper with authors comes back to a paper.
    expected = [0 if seed < 0 or degrees[seed] == 0 else 64 for seed in seeds["paper"]]
    assert totals.tolist() == expected


def test_bad_seeds_and_plans(graph) -> None:
    plan = PLANS["number"](graph)
    sampler, buckets = HostSampler(graph, plan), fixed(plan.bound_capacities({"paper": 2}))
    with pytest.raises(InputError, match="seed 300 of type 'paper' is out of range"):
        sampler.sample({"paper": np.array([0, 300])}, 0, 0, buckets)
    with pytest.raises(InputError, match="no seeds of type 'paper'"):
        sampler.sample({}, 0, 0, buckets)
    with pytest.raises(ValueError, match="no bucket of 1 holds a batch of 3 seeds"):
        sampler.sample({"paper": np.array([0, 1, 2])}, 0, 0, buckets)
    with pytest.raises(InputError, match="seed type 'book' is unknown"):
        fan_out_plan(graph, 3, 2, ["book"])
    with pytest.raises(InputError, match="num_walks is 4 and num_neighbors 5"):
        walk_plan(graph, [graph.schema.metapath("PAP")], 4, 5)
    with pytest.raises(InputError, match="0 threads"):
        HostSampler(graph, plan, threads=0)
