"""A slow, readable sampler to hold the fast ones against: dictionaries, lists and the NumPy draw."""

from collections import Counter

import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.draw import neighbor_offsets, stream_keys, uniform_below, vertex_keys
from jhgnn.sampling.plan import Draw, SamplingPlan


def neighbors(graph: HeteroGraph, draw: Draw, seed: int, step: int, hop: int, vertex: int) -> list[tuple[int, int]]:
    """(neighbour, visits) in the order of the table's columns."""
    keys = vertex_keys(stream_keys(seed, step, hop, draw.key), np.array([vertex], np.int32))
    if draw.num_walks:
        ends: Counter[int] = Counter()
        for walk in range(draw.num_walks):
            at = vertex
            for index, relation in enumerate(draw.steps):
                row = in_neighbors(graph, relation, at)
                if len(row) == 0:
                    break
                counter = np.array([walk * len(draw.steps) + index], np.uint32)
                at = int(row[uniform_below(keys, counter, np.array([len(row)], np.uint32))[0]])
            else:
                ends[at] += 1
        return sorted(ends.items(), key=lambda item: (-item[1], item[0]))[: draw.fan_outs[hop]]
    row = in_neighbors(graph, draw.steps[0], vertex)
    if draw.fan_outs[hop] == -1:
        return [(int(sender), 0) for sender in row]
    offsets, counts = neighbor_offsets(keys, np.array([len(row)]), draw.fan_outs[hop])
    return [(int(row[offset]), 0) for offset in offsets[0, : counts[0]]]


def in_neighbors(graph: HeteroGraph, relation, vertex: int) -> np.ndarray:
    edges = graph.edges[relation]
    return edges.senders[edges.indptr[vertex] : edges.indptr[vertex + 1]]


def frontiers(graph: HeteroGraph, plan: SamplingPlan, seeds: dict[str, np.ndarray], seed: int, step: int):
    """For each hop: {draw name: {vertex: neighbours}} and {type: the ascending new vertices}."""
    met = {name: {int(v) for v in seeds.get(name, []) if v >= 0} for name in plan.node_types}
    hops = []
    for hop in range(plan.num_hops):
        tables, found = {}, {name: set() for name in plan.node_types}
        for draw in plan.draws_at(hop):
            tables[draw.name] = {v: neighbors(graph, draw, seed, step, hop, v) for v in met[draw.target]}
            for row in tables[draw.name].values():
                found[draw.source].update(sender for sender, _ in row)
        new = {name: sorted(found[name] - met[name]) for name in plan.node_types}
        for name, vertices in new.items():
            met[name].update(vertices)
        hops.append((tables, new))
    return hops
