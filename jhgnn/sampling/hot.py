"""Hot vertices: receivers of the bottom hop that draw nothing, since the mean over all their neighbours is kept.

Where a first layer reads neighbours through their mean alone, and their rows are fixed, the mean over all neighbours of
a vertex depends on no parameter. It can be kept as one more row of the neighbours' type. To the sampler, that row is a
vertex of its own, and at the bottom hop the only neighbour of the hot one. So everything that works on sampled blocks
works on these: either sampler, shards, capacities learnt by sampling, kernels, and prefetching.

Vertices that are not hot draw the same neighbours as without hot ones: a draw hashes the vertex and not the graph.

Source: Ai et al., NeutronOrch (PVLDB 17(8)), which reuses results of hot vertices; what is kept here are their inputs.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Relation, Schema
from jhgnn.sampling.capacities import Buckets, presampled
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import Draw, SamplingPlan

SUFFIX = "@hot"
"""Of the relation that the bottom hop draws from, in the graph that is sampled."""


@dataclasses.dataclass(frozen=True, eq=False)
class HotRelation:
    """The hot receivers of one relation.

    Attributes:
        name: of the draw.
        relation: whose senders have fixed rows.
        receivers: int32 `[n]`, ascending: those with two neighbours at least, for whom a mean saves something.
        first: id of the first receiver's mean among the rows of the source type; those of the others follow in order.
    """

    name: str
    relation: Relation
    receivers: np.ndarray
    first: int

    @property
    def rows(self) -> np.ndarray:
        """Ids of the means, int32 `[n]`."""
        return np.arange(self.first, self.first + len(self.receivers), dtype=np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class HotVertices:
    """The hot vertices of a plan.

    Attributes:
        ids: int32 by type, ascending.
        relations: each bottom draw from senders with fixed rows that has hot receivers.
        num_nodes: nodes of each type with the means that are kept as its rows.
    """

    ids: Mapping[str, np.ndarray]
    relations: tuple[HotRelation, ...]
    num_nodes: Mapping[str, int]

    def describe(self) -> str:
        """How many vertices and means there are, for a person."""
        vertices = ", ".join(f"{len(ids):,} {name}" for name, ids in self.ids.items())
        return f"{vertices}; {self.num_rows:,} means over all neighbours"

    @property
    def num_rows(self) -> int:
        """Means that are kept."""
        return sum(len(each.receivers) for each in self.relations)


def bottom_draws(plan: SamplingPlan, fixed: Collection[str]) -> list[Draw]:
    """The draws of the bottom hop whose neighbours are of the types with fixed rows."""
    return [draw for draw in plan.draws_at(plan.num_hops - 1) if draw.source in fixed and not draw.num_walks]


def count_receivers(
    graph: HeteroGraph,
    plan: SamplingPlan,
    batches: Iterable[tuple[Mapping[str, np.ndarray], int]],
    seed: int,
    threads: int,
) -> dict[str, np.ndarray]:
    """In how many batches each vertex is a receiver of the bottom hop: type -> int64 `[num_nodes]`.

    Sampling is stateless, so this counts the very draws of training. The bottom hop itself is not drawn.

    Args:
        batches: the seeds of each batch, and its number.
        seed: of the draws.
        threads: of the sampler.
    """
    counts = {name: np.zeros(count, np.int64) for name, count in plan.num_nodes.items}
    receivers = Receivers(graph, plan, threads)
    for seeds, step in batches:
        for name, ids in receivers.of(seeds, seed, step).items():
            counts[name][ids] += 1
    receivers.close()
    return counts


class Receivers:
    """Tells which vertices a batch meets at the bottom hop, without drawing that hop."""

    def __init__(self, graph: HeteroGraph, plan: SamplingPlan, threads: int) -> None:
        above = above_bottom(plan)
        self._sampler = None if above is None else HostSampler(graph, above, threads)
        self._buckets: Buckets | None = None

    def of(self, seeds: Mapping[str, np.ndarray], seed: int, step: int) -> dict[str, np.ndarray]:
        """Ids by type, each once; `seeds` are of batches of one size."""
        nodes = seeds
        if self._sampler is not None:
            if self._buckets is None:
                self._buckets = presampled(self._sampler, seed, [seeds])
            nodes = self._sampler.sample(seeds, seed, step, self._buckets)[0].nodes
        return {name: np.unique(ids[ids >= 0]) for name, ids in nodes.items()}

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()


def choose_hot(
    graph: HeteroGraph, plan: SamplingPlan, fixed: Collection[str], visits: Mapping[str, np.ndarray], share: float
) -> HotVertices:
    """The vertices whose means save most draws: visits times the draws of a visit, beyond the one that stays.

    Args:
        fixed: the types whose rows are fixed.
        visits: of `count_receivers`.
        share: of the vertices of all types that receive from those types, at most; vertices that save nothing are not
            among them.
    """
    draws = bottom_draws(plan, fixed)
    ids = largest_gains(
        {name: visits[name] * count for name, count in saved_draws(graph, plan, draws, stays=1).items()}, share
    )
    num_nodes, relations = dict(plan.num_nodes.items), []
    for draw in draws:
        degrees = np.diff(graph.edges[draw.steps[0]].indptr)
        receivers = ids[draw.target][degrees[ids[draw.target]] > 1]
        if len(receivers):
            relations.append(HotRelation(draw.name, draw.steps[0], receivers, num_nodes[draw.source]))
            num_nodes[draw.source] += len(receivers)
    return HotVertices(ids, tuple(relations), num_nodes)


def saved_draws(graph: HeteroGraph, plan: SamplingPlan, draws: Sequence[Draw], stays: int) -> dict[str, np.ndarray]:
    """The neighbours that a visit of each receiver draws at the bottom hop, int64 `[num_nodes]` by type.

    Args:
        draws: those that are spared.
        stays: neighbours of each draw that are read all the same.
    """
    saved = {name: np.zeros(plan.num_nodes[name], np.int64) for name in dict.fromkeys(draw.target for draw in draws)}
    for draw in draws:
        saved[draw.target] += np.maximum(_most_drawn(graph, draw, draw.fan_outs[plan.num_hops - 1]) - stays, 0)
    return saved


def _most_drawn(graph: HeteroGraph, draw: Draw, fan_out: int) -> np.ndarray:
    """The neighbours that each target draws, int64 `[num_nodes]`; of walks no more than these.

    Walks end at no more vertices than there are paths, and at none where all of them break off.
    """
    most = fan_out if fan_out >= 0 else np.iinfo(np.int64).max
    paths = np.minimum(np.diff(graph.edges[draw.steps[-1]].indptr), most)
    for relation in reversed(draw.steps[:-1]):  # to cut a term of a sum at what the sum is cut at changes nothing
        paths = np.minimum(_sums_of_senders(graph.edges[relation], paths), most)
    return paths


def _sums_of_senders(edges: EdgeSet, values: np.ndarray) -> np.ndarray:
    """For each receiver, the sum over its in-edges of the sender's value, int64."""
    before = np.zeros(len(edges.senders) + 1, np.int64)
    np.cumsum(values[edges.senders], out=before[1:])
    return np.diff(before[edges.indptr])


def largest_gains(gains: Mapping[str, np.ndarray], share: float) -> dict[str, np.ndarray]:
    """The vertices of the largest gains above 0, at most a share of all: type -> int32 ids, ascending."""
    joined = np.concatenate([*gains.values(), np.zeros(0, np.int64)])
    order = np.argsort(-joined, kind="stable")[: int(share * len(joined))]
    hot = np.zeros(len(joined), bool)
    hot[order] = joined[order] > 0
    ids, start = {}, 0
    for name, gain in gains.items():
        ids[name] = np.flatnonzero(hot[start : start + len(gain)]).astype(np.int32)
        start += len(gain)
    return ids


def with_hot(graph: HeteroGraph, plan: SamplingPlan, hot: HotVertices) -> tuple[HeteroGraph, SamplingPlan]:
    """The graph and the plan whose bottom hop draws, for hot receivers, the row of their mean alone.

    The graph has one more relation for each of `hot.relations`, which the bottom hop draws from in the place of the
    relation itself; the hops above draw as before.
    """
    last, edges = plan.num_hops - 1, dict(graph.edges)
    by_name = {each.name: each for each in hot.relations}
    draws: list[Draw] = []
    for draw in plan.draws:
        own = by_name.get(draw.name)
        if own is None:
            draws.append(draw)
            continue
        relation = dataclasses.replace(own.relation, name=own.relation.name + SUFFIX)
        edges[relation] = _with_means(graph.edges[own.relation], own)
        most, fan_out = int(np.diff(edges[relation].indptr).max(initial=1)), draw.fan_outs[last]
        width = most if fan_out < 0 else min(fan_out, most)
        above = at_hops(draw, draw.steps, (*draw.fan_outs[:last], 0), (*draw.widths[:last], 0))
        draws += [above] if any(above.widths) else []
        draws.append(at_hops(draw, (relation,), (0,) * last + (fan_out,), (0,) * last + (width,)))
    sampled = dataclasses.replace(graph, schema=Schema(graph.schema.node_types, tuple(edges)), edges=edges)
    return sampled, dataclasses.replace(plan, draws=tuple(draws), num_nodes=FrozenCounts(tuple(hot.num_nodes.items())))


def at_hops(draw: Draw, steps: tuple[Relation, ...], fan_outs: tuple[int, ...], widths: tuple[int, ...]) -> Draw:
    """A draw from other relations, with its fan-out and width at each hop."""
    return dataclasses.replace(draw, steps=steps, fan_outs=fan_outs, widths=widths)


def _with_means(edges: EdgeSet, hot: HotRelation) -> EdgeSet:
    """In-edges that lead, for the hot receivers, from their mean alone."""
    degrees = np.diff(edges.indptr)
    is_hot = np.zeros(len(degrees), bool)
    is_hot[hot.receivers] = True
    left = np.where(is_hot, 1, degrees)
    indptr = np.zeros(len(left) + 1, np.int64)
    np.cumsum(left, out=indptr[1:])
    senders = np.empty(int(indptr[-1]), np.int32)
    senders[np.repeat(~is_hot, left)] = edges.senders[np.repeat(~is_hot, degrees)]
    senders[indptr[hot.receivers]] = hot.rows
    return EdgeSet(indptr, senders)


def above_bottom(plan: SamplingPlan) -> SamplingPlan | None:
    """The hops above the bottom one; None where it is the only one."""
    last = plan.num_hops - 1
    if not last:
        return None
    draws = [dataclasses.replace(draw, fan_outs=draw.fan_outs[:last], widths=draw.widths[:last]) for draw in plan.draws]
    return dataclasses.replace(plan, draws=tuple(draw for draw in draws if any(draw.widths)), num_hops=last)
