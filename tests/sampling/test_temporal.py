"""Samples of graphs with timestamps: the reference, and that no edge or node later than its seed is ever drawn."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import PADDING, SampledBlocks
from jhgnn.sampling.capacities import fixed, tight
from jhgnn.sampling.draw import neighbor_offsets, stream_keys, uniform_below, vertex_keys
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import Draw, SamplingPlan, fan_out_plan, walk_plan
from jhgnn.sampling.temporal import TemporalSampler, host_sampler
from tests.sampling.conftest import make_graph

RULES = ("until", "before")
NUM_NODES = {"paper": 24, "author": 20, "topic": 3, "venue": 2}


def timed(graph: HeteroGraph, seed: int, moments: int, node_types: tuple[str, ...], relations: set[str]) -> HeteroGraph:
    """The graph with times in [-2, moments) of some types and relations, so that many are equal."""
    rng = np.random.default_rng(seed)
    edges = {
        relation: dataclasses.replace(own, times=rng.integers(-2, moments, own.num_edges))
        if relation.name in relations
        else own
        for relation, own in graph.edges.items()
    }
    node_times = {name: rng.integers(-2, moments, graph.num_nodes[name]) for name in node_types}
    return dataclasses.replace(graph, edges=edges, node_times=node_times)


def sees(rule: str, time: int, moment: int) -> bool:
    return time <= moment if rule == "until" else time < moment


def visible(graph: HeteroGraph, relation, vertex: int, moment: int, rule: str) -> list[int]:
    """In-neighbours by the time from which their edge may be seen, then as they stand in the graph."""
    edges = graph.edges[relation]
    found = []
    for position in range(edges.indptr[vertex], edges.indptr[vertex + 1]):
        sender = int(edges.senders[position])
        times = [] if edges.times is None else [int(edges.times[position])]
        times += [int(graph.node_times[relation.source][sender])] if relation.source in graph.node_times else []
        if all(sees(rule, time, moment) for time in times):
            found.append((max(times, default=0), sender))
    return [sender for _, sender in sorted(found, key=lambda each: each[0])]


def neighbors(graph, draw: Draw, rule: str, seed: int, step: int, hop: int, vertex: int, moment: int) -> list[int]:
    """The reference: lists and the NumPy draw. Of walks (end, visits)."""
    keys = vertex_keys(stream_keys(seed, step, hop, draw.key), np.array([vertex], np.int32))
    if draw.num_walks:
        ends: dict[int, int] = {}
        for walk in range(draw.num_walks):
            at = vertex
            for index, relation in enumerate(draw.steps):
                row = visible(graph, relation, at, moment, rule)
                if not row:
                    break
                counter = np.array([walk * len(draw.steps) + index], np.uint32)
                at = row[int(uniform_below(keys, counter, np.array([len(row)], np.uint32))[0])]
            else:
                ends[at] = ends.get(at, 0) + 1
        return sorted(ends.items(), key=lambda each: (-each[1], each[0]))[: draw.fan_outs[hop]]
    row = visible(graph, draw.steps[0], vertex, moment, rule)
    if draw.fan_outs[hop] < 0:
        return row
    offsets, counts = neighbor_offsets(keys, np.array([len(row)]), draw.fan_outs[hop])
    return [row[offset] for offset in offsets[0, : counts[0]]]


def check(graph: HeteroGraph, plan: SamplingPlan, blocks: SampledBlocks, seeds: np.ndarray, step: int) -> None:
    """Follows every entry from the seeds: each slot is of one time, and its row is the reference's at that time."""
    moments: dict[tuple[str, int], int] = {
        ("paper", slot): int(graph.node_times["paper"][seed]) for slot, seed in enumerate(seeds) if seed != PADDING
    }
    for hop in range(plan.num_hops):
        known = dict(moments)
        for draw in plan.draws_at(hop):
            table = blocks.table(hop, draw.name, draw.source, draw.target)
            for slot, vertex in enumerate(blocks.frontier(hop, draw.target)):
                if vertex == PADDING:
                    assert table.num_neighbors[slot] == 0
                    continue
                moment = known[draw.target, slot]
                drawn = table.senders[slot, : table.num_neighbors[slot]]
                expected = neighbors(graph, draw, plan.temporal, 5, step, hop, int(vertex), moment)
                if draw.num_walks:
                    own = zip(table.sender_ids[drawn].tolist(), table.visits[slot].tolist(), strict=False)
                    assert list(own) == expected
                else:
                    assert table.sender_ids[drawn].tolist() == expected
                assert (table.senders[slot, len(expected) :] == 0).all()
                for sender in drawn:
                    met = moments.setdefault((draw.source, int(sender)), moment)
                    # `before` may show two moments the same, but never more than the slot's own.
                    same = [visible(graph, each, int(table.sender_ids[sender]), met, plan.temporal) ==
                            visible(graph, each, int(table.sender_ids[sender]), moment, plan.temporal)
                            for each in graph.edges if each.target == draw.source]  # fmt: skip
                    assert all(same)


@given(
    graph_seed=st.integers(0, 1000),
    moments=st.integers(-1, 5),
    rule=st.sampled_from(RULES),
    node_types=st.sets(st.sampled_from(["author", "topic"])),
    relations=st.sets(st.sampled_from(["cites", "writes", "rev_writes", "in"])),
    fan_out=st.lists(st.integers(-1, 4), min_size=2, max_size=2),
    batch=st.lists(st.integers(-1, 23), min_size=1, max_size=8),
    step=st.integers(0, 2**32 - 1),
    walks=st.booleans(),
)
@settings(max_examples=60)
def test_every_row_is_the_reference_at_its_seeds_time(
    graph_seed, moments, rule, node_types, relations, fan_out, batch, step, walks
) -> None:
    graph = timed(make_graph(graph_seed, NUM_NODES, 0.06), graph_seed, moments, ("paper", *node_types), relations)
    plan = fan_out_plan(graph, fan_out, 2)
    if walks:
        plan = walk_plan(graph, [graph.schema.metapath("PAP"), graph.schema.metapath("PPP")], 6, 3, 2)
    plan = dataclasses.replace(plan, temporal=rule)
    seeds = np.array(batch, np.int32)
    sampler = host_sampler(graph, plan, 1)
    assert isinstance(sampler, TemporalSampler)
    bound = plan.bound_capacities({"paper": len(batch)})
    blocks, bucket = sampler.sample({"paper": seeds}, 5, step, fixed(bound))
    assert bucket == 0
    check(graph, plan, blocks, seeds, step)
    added = sampler.count({"paper": seeds}, 5, step)
    np.testing.assert_array_equal(added, blocks.added)
    again, _ = sampler.sample({"paper": seeds}, 5, step, tight(plan, added, {"paper": len(batch)}))
    check(graph, plan, again, seeds, step)


@given(graph_seed=st.integers(0, 1000), step=st.integers(0, 100), walks=st.booleans())
@settings(max_examples=15)
def test_at_the_end_of_time_it_is_the_sampler_without_times(graph_seed, step, walks) -> None:
    """Edges are then all visible, and equal times leave their order alone."""
    graph = make_graph(graph_seed, density=0.3)
    edges = {each: dataclasses.replace(own, times=np.zeros(own.num_edges, int)) for each, own in graph.edges.items()}
    graph = dataclasses.replace(graph, edges=edges, node_times={"paper": np.zeros(300, int)})
    plan = walk_plan(graph, [graph.schema.metapath("PAP")], 9, 4) if walks else fan_out_plan(graph, [4, 3], 2)
    seeds = {"paper": np.array([3, 7, 7, 250, -1, 12, 0, 299, 3, 1], np.int32)}
    buckets = fixed(plan.bound_capacities({"paper": 10}))
    expected, _ = HostSampler(graph, plan).sample(seeds, 1, step, buckets)
    found, _ = TemporalSampler(graph, dataclasses.replace(plan, temporal="until")).sample(seeds, 1, step, buckets)
    for name, ids in expected.nodes.items():
        np.testing.assert_array_equal(found.nodes[name], ids)
    for tables, others in zip(expected.hops, found.hops, strict=True):
        for name, table in tables.items():
            np.testing.assert_array_equal(others[name].senders, table.senders)
            np.testing.assert_array_equal(others[name].num_neighbors, table.num_neighbors)
            if table.visits is not None:
                np.testing.assert_array_equal(others[name].visits, table.visits)


def test_a_vertex_of_two_times_stands_twice_and_shards_draw_the_same() -> None:
    edges = EdgeSet.from_pairs(np.array([0, 1, 0]), np.array([0, 0, 1]), 2, times=np.array([1, 5, 1]))
    graph = HeteroGraph.from_arrays(
        num_nodes={"paper": 2, "author": 2},
        edges={("author", "writes", "paper"): edges, ("paper", "of", "author"): edges},
        target="paper",
        node_times={"paper": np.array([6, 2])},
    )
    plan = dataclasses.replace(fan_out_plan(graph, -1, 2), temporal="until")
    sampler = TemporalSampler(graph, plan)
    buckets = fixed(plan.bound_capacities({"paper": 2}))
    blocks, _ = sampler.sample({"paper": np.array([0, 1], np.int32)}, 0, 0, buckets)
    assert blocks.added.tolist() == [[2, 0], [0, 3], [1, 0]]  # author 0 at both times; paper 0 was not yet at time 2
    first = blocks.capacities[0].get("author")
    assert blocks.nodes["author"][first : first + 3].tolist() == [0, 0, 1]
    stacked, _ = sampler.sample_shards([{"paper": np.array(own, np.int32)} for own in ([0, -1], [1, 0])], 0, 0, buckets)
    alone, _ = sampler.sample({"paper": np.array([0, -1], np.int32)}, 0, 0, buckets)
    np.testing.assert_array_equal(stacked.nodes["author"][0], alone.nodes["author"])
    np.testing.assert_array_equal(
        stacked.hops[1]["paper:of:author"].senders[0], alone.hops[1]["paper:of:author"].senders
    )


def test_seeds_need_times() -> None:
    graph = make_graph()
    with pytest.raises(InputError, match="nodes of type 'paper' have no times"):
        TemporalSampler(graph, dataclasses.replace(fan_out_plan(graph, 3, 2), temporal="until"))
