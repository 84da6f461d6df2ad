"""The plan of the draws, hop by hop, which the device and the host sampler follow; static and hashable."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Metapath, Relation
from jhgnn.sampling.draw import MAX_FAN_OUT, relation_key
from jhgnn.sampling.fan_out import FanOut, fan_outs

Capacities = tuple[FrozenCounts, ...]
"""Slots of each node type at the frontier of each hop and, last, of the inputs: `[num_hops + 1]`, never decreasing."""


@dataclasses.dataclass(frozen=True)
class Draw:
    """One relation drawn by fan-out, or one metapath walked.

    Attributes:
        name: key of its tables in `SampledBlocks.hops`.
        source: type of the neighbours.
        target: type of the vertices whose neighbours they are.
        key: number of the draw in the hash.
        steps: relations followed backwards from a target, in walking order; one of them for a fan-out draw.
        num_walks: walks from each target, 0 for a fan-out draw.
        fan_outs: neighbours kept at each hop; -1 for all, 0 where a hop leaves this draw out.
        widths: columns of the table at each hop: no more than the largest degree; 0 where there is no table.
    """

    name: str
    source: str
    target: str
    key: int
    steps: tuple[Relation, ...]
    num_walks: int
    fan_outs: tuple[int, ...]
    widths: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class SamplingPlan:
    """The draws of every hop over the node types of a graph, starting at seeds of `seed_types`.

    With `temporal` other than `none` a slot holds a vertex at a time; see `jhgnn.sampling.temporal`.
    """

    num_nodes: FrozenCounts
    draws: tuple[Draw, ...]
    num_hops: int
    seed_types: tuple[str, ...]
    temporal: str = "none"

    @property
    def node_types(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.num_nodes.items)

    def draws_at(self, hop: int) -> list[Draw]:
        return [draw for draw in self.draws if draw.widths[hop] > 0]

    def bound_capacities(self, num_seeds: Mapping[str, int]) -> Capacities:
        """Slots that always suffice: seeds times fan-outs, but no more than all vertices for each hop.

        With times, no more than all vertices at the time of each seed.
        """
        times = 1 if self.temporal == "none" else sum(num_seeds[name] for name in self.seed_types)
        slots = dict.fromkeys(self.node_types, 0) | {name: num_seeds[name] for name in self.seed_types}
        capacities = [FrozenCounts.of(slots)]
        for hop in range(self.num_hops):
            added = dict.fromkeys(self.node_types, 0)
            for draw in self.draws_at(hop):
                added[draw.source] += slots[draw.target] * draw.widths[hop]
            for name, count in added.items():
                slots[name] += min(count, self.num_nodes[name] * times)
            capacities.append(FrozenCounts.of(slots))
        return tuple(capacities)


def fan_out_plan(
    graph: HeteroGraph, fan_out: FanOut, num_hops: int, seed_types: Sequence[str] | None = None
) -> SamplingPlan:
    """A plan that draws, for every relation, a uniform subset of the in-neighbours without replacement.

    Args:
        graph: its target type gives the seeds unless `seed_types` says otherwise.
        fan_out: see `jhgnn.sampling.fan_out.fan_outs`.
        num_hops: layers of the model.

    Raises:
        InputError: a fan-out that cannot be read, or unknown or missing seed types.
    """
    table = fan_outs(fan_out, graph.schema, num_hops)
    draws = []
    for relation, per_hop in table.items():
        most = _largest_degree(graph, relation)
        draws.append(
            Draw(
                name=str(relation),
                source=relation.source,
                target=relation.target,
                key=relation_key(relation),
                steps=(relation,),
                num_walks=0,
                fan_outs=per_hop,
                # One column where there are no edges: HAN reads a table of every metapath.
                widths=tuple(max(1, most if count < 0 else min(count, most)) if count else 0 for count in per_hop),
            )
        )
    return _plan(graph, draws, num_hops, seed_types)


def walk_plan(
    graph: HeteroGraph, metapaths: Sequence[Metapath], num_walks: int, num_neighbors: int, num_hops: int = 1
) -> SamplingPlan:
    """A plan that walks from each target backwards along metapaths and keeps the most visited ends.

    The metapath graph is never built. Walks that meet a vertex without in-edges count nowhere; ends visited equally
    often are kept by ascending id. Seeds are of the metapaths' target types.

    Args:
        metapaths: of distinct names.
        num_walks: from each target along each metapath, 1 to `MAX_FAN_OUT`.
        num_neighbors: kept of their distinct ends, 1 to `num_walks`.

    Raises:
        InputError: numbers out of range, no metapaths, or a relation that the graph does not have.

    Source: Ying et al., PinSage, 3.1 (importance by visit counts); it is the sampler of
    "Characterizing and Understanding HGNN Training on GPUs", 4.2.
    """
    if not metapaths:
        raise InputError("a walk sampler got no metapaths; name at least one")
    if not 1 <= num_walks <= MAX_FAN_OUT or not 1 <= num_neighbors <= num_walks:
        raise InputError(
            f"num_walks is {num_walks} and num_neighbors {num_neighbors}; need 1 to {MAX_FAN_OUT} walks and 1 to"
            " num_walks neighbours"
        )
    draws = []
    for metapath in metapaths:
        for relation in metapath.relations:
            if relation not in graph.edges:
                raise InputError(f"metapath {metapath.name!r} follows {str(relation)!r}, which the graph does not have")
        draws.append(
            Draw(
                name=metapath.name,
                source=metapath.source,
                target=metapath.target,
                key=relation_key(metapath),
                steps=tuple(reversed(metapath.relations)),
                num_walks=num_walks,
                fan_outs=(num_neighbors,) * num_hops,
                widths=(num_neighbors,) * num_hops,
            )
        )
    return _plan(graph, draws, num_hops, tuple(dict.fromkeys(metapath.target for metapath in metapaths)))


def _plan(graph: HeteroGraph, draws: Sequence[Draw], num_hops: int, seed_types: Sequence[str] | None) -> SamplingPlan:
    if num_hops < 1:
        raise InputError(f"a sampler got {num_hops} hops; need at least 1")
    if len({draw.name for draw in draws}) < len(draws):
        raise InputError(f"two metapaths share a name: {', '.join(draw.name for draw in draws)}; name them apart")
    if seed_types is None:
        if graph.target is None:
            raise InputError(f"graph {graph.name!r} has no target node type; name the types of the seeds")
        seed_types = (graph.target,)
    for name in seed_types:
        if name not in graph.num_nodes:
            raise InputError(f"seed type {name!r} is unknown; known: {', '.join(graph.num_nodes)}")
    reached = set(seed_types)
    widths: dict[str, list[int]] = {draw.name: [] for draw in draws}
    for hop in range(num_hops):
        met = set(reached)
        for draw in draws:
            own = draw.widths[hop] if draw.target in reached and graph.num_nodes[draw.source] else 0
            widths[draw.name].append(own)
            if own:
                met.add(draw.source)
        reached = met
    return SamplingPlan(
        num_nodes=FrozenCounts(tuple((name, int(count)) for name, count in graph.num_nodes.items())),
        draws=tuple(dataclasses.replace(draw, widths=tuple(widths[draw.name])) for draw in draws),
        num_hops=num_hops,
        seed_types=tuple(seed_types),
    )


def _largest_degree(graph: HeteroGraph, relation: Relation) -> int:
    return int(np.diff(graph.edges[relation].indptr).max(initial=0))
