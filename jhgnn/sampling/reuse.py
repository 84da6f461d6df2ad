"""Vertices whose first-layer rows are reused: which they are, and the sampling that draws none of their neighbours.

What batches draw at the bottom hop is drawn from graphs in which these vertices have no neighbours there; a walk that
begins at one of them ends at its first step. In turn, each of them has its neighbours in one of the batches of a
super-batch: see `jhgnn.nn.reuse`. Vertices that are not hot draw the same neighbours as ever, since a draw hashes the
vertex and not the graph, and their walks pass through hot vertices as before.

Source: Ai et al., NeutronOrch (PVLDB 17(8)): sampling with omission.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.graph.schema import Relation, Schema
from jhgnn.sampling.capacities import Buckets
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.hot import SUFFIX, at_hops, largest_gains, saved_draws
from jhgnn.sampling.plan import Draw, SamplingPlan


@dataclasses.dataclass(frozen=True, eq=False)
class Reuse:
    """What is reused of a plan, and how the rest is drawn.

    Attributes:
        ids: int32 by type, ascending: the hot vertices, in the order of their slots.
        every: batches of a super-batch, n.
        in_turn: as in `KeptRows`.
        graphs: what batches draw from: batch i from the one of number i modulo their count.
        bottom: draws the bottom hop of hot vertices alone, from the graph without omissions.
    """

    ids: Mapping[str, np.ndarray]
    every: int
    in_turn: bool
    graphs: tuple[HeteroGraph, ...]
    bottom: SamplingPlan

    @property
    def num_vertices(self) -> int:
        return sum(map(len, self.ids.values()))

    def describe(self) -> str:
        """How many vertices are reused, and how, for a person."""
        vertices = ", ".join(f"{len(ids):,} {name}" for name, ids in self.ids.items())
        how = f"each computed in one batch of {self.every}" if self.in_turn else "out of the gradient"
        return f"{vertices}; rows of the first layer reused in super-batches of {self.every} batches, {how}"


def with_reuse(
    graph: HeteroGraph,
    plan: SamplingPlan,
    visits: Mapping[str, np.ndarray],
    share: float,
    *,
    every: int,
    in_turn: bool,
) -> tuple[Reuse, SamplingPlan]:
    """Chooses the hot vertices, whose visits draw most, and leaves their neighbours out of the bottom hop.

    Args:
        visits: of `jhgnn.sampling.hot.count_receivers`.
        share: of the vertices of all types that receive at the bottom hop, at most.

    Returns:
        what is reused, empty `ids` where no vertex would save a draw, and the plan that draws from its graphs.
    """
    last, draws = plan.num_hops - 1, plan.draws_at(plan.num_hops - 1)
    gains = {name: visits[name] * count for name, count in saved_draws(graph, plan, draws, stays=0).items()}
    ids = {name: own for name, own in largest_gains(gains, share).items() if len(own)}
    spared = [draw for draw in draws if draw.target in ids]
    only = [
        at_hops(draw, draw.steps, (0,) * last + (draw.fan_outs[last],), (0,) * last + (draw.widths[last],))
        for draw in spared
    ]
    bottom = dataclasses.replace(plan, draws=tuple(only), seed_types=tuple(ids))
    made = []
    for draw in plan.draws:
        if draw not in spared:
            made.append(draw)
            continue
        above = at_hops(draw, draw.steps, (*draw.fan_outs[:last], 0), (*draw.widths[:last], 0))
        below = only[spared.index(draw)]
        steps = (_omitting(draw), *draw.steps[1:])  # walks of other vertices follow all edges past their first step
        made += [*([above] if any(above.widths) else []), at_hops(draw, steps, below.fan_outs, below.widths)]
    graphs = []
    for turn in range(every if in_turn else 1):
        edges = dict(graph.edges)
        for draw in {draw.steps[0]: draw for draw in spared}.values():  # metapaths may share their first step
            own = ids[draw.target]
            omitted = own[np.arange(len(own)) % every != turn] if in_turn else own
            edges[_omitting(draw)] = _without(graph.edges[draw.steps[0]], omitted)
        schema = Schema(graph.schema.node_types, tuple(edges))
        graphs.append(dataclasses.replace(graph, schema=schema, edges=edges))
    return Reuse(ids, every, in_turn, tuple(graphs), bottom), dataclasses.replace(plan, draws=tuple(made))


class TurnSampler:
    """A sampler that draws batch i from the graph of number i modulo the number of graphs; see `HostSampler`."""

    def __init__(self, graphs: Sequence[HeteroGraph], plan: SamplingPlan, threads: int = 1) -> None:
        self.plan = plan
        self._samplers = [HostSampler(graph, plan, threads) for graph in graphs]

    def _of(self, step: int) -> HostSampler:
        return self._samplers[step % len(self._samplers)]

    def count(self, seeds: Mapping[str, np.ndarray], seed: int, step: int) -> np.ndarray:
        return self._of(step).count(seeds, seed, step)

    def sample(
        self, seeds: Mapping[str, np.ndarray], seed: int, step: int, buckets: Buckets
    ) -> tuple[SampledBlocks, int]:
        return self._of(step).sample(seeds, seed, step, buckets)

    def sample_shards(
        self,
        shards: Sequence[Mapping[str, np.ndarray]],
        seed: int,
        step: int,
        buckets: Buckets,
        elsewhere: Sequence[Mapping[str, np.ndarray]] = (),
    ) -> tuple[Any, int]:
        return self._of(step).sample_shards(shards, seed, step, buckets, elsewhere)

    def close(self) -> None:
        for sampler in self._samplers:
            sampler.close()


def _omitting(draw: Draw) -> Relation:
    """What the bottom hop follows first in the place of a draw's first relation, with in-edges left out."""
    return dataclasses.replace(draw.steps[0], name=draw.steps[0].name + SUFFIX)


def _without(edges: EdgeSet, receivers: np.ndarray) -> EdgeSet:
    """In-edges without those of some receivers, int32 `[n]`."""
    degrees = np.diff(edges.indptr)
    kept = np.ones(len(degrees), bool)
    kept[receivers] = False
    indptr = np.zeros(len(degrees) + 1, np.int64)
    np.cumsum(np.where(kept, degrees, 0), out=indptr[1:])
    return EdgeSet(indptr, edges.senders[np.repeat(kept, degrees)])
