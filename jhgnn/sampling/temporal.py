"""The sampler of graphs with timestamps: no edge and no node that a batch draws is later than the seed it is drawn for.

Each seed has the time of its node, and every vertex that is drawn for it has that time as well, at whichever hop. So
what has a slot is a pair of a vertex and a time: a vertex that two seeds of different times lead to stands twice, with
the neighbours of either time. The neighbours of a pair are a prefix of the vertex's edges in the order of time, whose
end is found by a binary search. A draw is the one of `jhgnn.sampling.draw` over that prefix, a function of (seed, step,
hop, relation, vertex) and of how many edges there are until the time; it does not depend on what else is drawn.

Source: the constraint is that of temporal graph networks (Rossi et al., 2020, 3.2) and of PyG's `time_attr`.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import PADDING, NeighborTable, SampledBlocks
from jhgnn.graph.visible import visible_from
from jhgnn.sampling.block_arrays import block_arrays
from jhgnn.sampling.capacities import Buckets, cumulative
from jhgnn.sampling.draw import stream_keys, uniform_below, vertex_keys
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.native import native_offsets
from jhgnn.sampling.plan import Capacities, Draw, SamplingPlan

Rule: TypeAlias = Literal["until", "before"]
"""What a seed may see: `until`, all that is not later than its own time; `before`, only what is earlier."""


class TimedEdges:
    """The in-edges of one relation in the order of time, which give the prefix that is visible at a time.

    An edge is visible from its own time on, and not before its sender is: the later one of both counts. What has
    neither is always visible.
    """

    def __init__(
        self,
        indptr: np.ndarray,
        senders: np.ndarray,
        ranks: np.ndarray | None,
        num_ranks: int,
        *,
        numbered: bool = False,
    ) -> None:
        """`ranks` int64 `[num_edges]`, in [0, num_ranks), are where the edges' times stand; None: none has a time.

        With `numbered` it is known which edges of the graph they are.
        """
        self.indptr, self._span = indptr, num_ranks + 1
        self.numbers: np.ndarray | None = None  # of the edges in the order of time, where that is another one
        self._order: np.ndarray | None = None
        self.senders = senders
        if ranks is None:
            return
        receivers = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
        order = receivers * self._span + ranks
        ascending = np.argsort(order, kind="stable")
        self._order, self.senders = order[ascending], np.ascontiguousarray(senders[ascending])
        self.numbers = ascending if numbered else None

    def visible(self, vertices: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each vertex's edges start, and how many of them have a rank below its limit; 0 for `PADDING`.

        int32 vertices and int64 limits, `[n]`; int64 starts and counts.
        """
        known = np.maximum(vertices, 0).astype(np.int64)
        start = self.indptr[known]
        if self._order is None:
            stop = self.indptr[known + 1]
        else:
            stop = np.searchsorted(self._order, known * self._span + limits)
        return start, np.where(vertices >= 0, stop - start, 0)


@dataclasses.dataclass(eq=False)
class _Met:
    """The pairs of one type that a batch has met, in segments: the seeds, then what each hop added.

    Attributes:
        ids, limits: of each segment, int32 and int64.
        pairs: int64, ascending, each once; `places` are where they stand, (segment, index).
    """

    span: int
    ids: list[np.ndarray]
    limits: list[np.ndarray]
    pairs: np.ndarray
    places: np.ndarray

    @classmethod
    def of_seeds(cls, ids: np.ndarray, limits: np.ndarray, span: int) -> "_Met":
        rows = np.flatnonzero(ids >= 0)
        pairs, first = np.unique(ids[rows].astype(np.int64) * span + limits[rows], return_index=True)
        return cls(span, [ids], [limits], pairs, np.stack([np.zeros_like(first), rows[first]], axis=1))

    def add(self, found: Sequence[np.ndarray]) -> None:
        """Makes the pairs found, and not met before, the next segment, ascending."""
        own = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
        fresh = own[~np.isin(own, self.pairs, assume_unique=True)]
        self.ids.append((fresh // self.span).astype(np.int32))
        self.limits.append(fresh % self.span)
        places = np.stack([np.full(len(fresh), len(self.ids) - 1), np.arange(len(fresh))], axis=1)
        order = np.argsort(np.concatenate([self.pairs, fresh]), kind="stable")
        self.pairs = np.concatenate([self.pairs, fresh])[order]
        self.places = np.concatenate([self.places, places])[order]

    def frontier(self, hop: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and limits of a hop's slots, without padding between segments."""
        return np.concatenate(self.ids[: hop + 1]), np.concatenate(self.limits[: hop + 1])

    def slots(self, pairs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The slot of each pair, where segments start at `starts`."""
        segment, index = self.places[np.searchsorted(self.pairs, pairs)].T
        return starts[segment] + index


@dataclasses.dataclass(frozen=True, eq=False)
class _Drawn:
    """One table in pairs: int64 `[rows, width]`, how many of a row count, visits of walks, and entries' edges."""

    pairs: np.ndarray
    counts: np.ndarray
    visits: np.ndarray | None
    edges: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class _Sample:
    """A batch without padding: what was met by type, and for each hop the tables by draw."""

    met: Mapping[str, _Met]
    hops: Sequence[Mapping[str, _Drawn]]

    def added(self, plan: SamplingPlan) -> np.ndarray:
        """Slots that each hop adds, int64 `[num_hops + 1, types]`."""
        sizes = [[len(own) for own in self.met[name].ids] for name in plan.node_types]
        return np.array(sizes, np.int64).T


class TemporalSampler:
    """Samples batches of one plan on the CPU as `HostSampler` does, for seeds that have times. Several threads may.

    All seeds of a batch at one time, later than all edges, draw what `HostSampler` draws from edges in the order of
    time. Its buffers are those of NumPy; 12 bytes an edge are kept besides the graph, and 8 more where entries have
    their edges.
    """

    def __init__(self, graph: HeteroGraph, plan: SamplingPlan, with_edges: Collection[str] = ()) -> None:
        """
        Args:
            with_edges: draws by fan-out whose tables have `entry_edges`.

        Raises:
            InputError: nodes of a seed type have no times.
        """
        if plan.temporal == "none":
            raise ValueError("the plan has no rule of time")
        check_seed_times(graph, plan.seed_types)
        self.graph, self.plan, self._with_edges = graph, plan, frozenset(with_edges)
        relations = dict.fromkeys(relation for draw in plan.draws for relation in draw.steps)
        times = {relation: visible_from(graph, relation) for relation in relations}
        self._times = _distinct(own for own in times.values() if own is not None)
        self._span = len(self._times) + 1
        self._edges = {
            relation: TimedEdges(
                graph.edges[relation].indptr,
                graph.edges[relation].senders,
                None if own is None else np.searchsorted(self._times, own),
                len(self._times),
                numbered=str(relation) in self._with_edges,
            )
            for relation, own in times.items()
        }

    def count(self, seeds: Mapping[str, np.ndarray], seed: int, step: int) -> np.ndarray:
        """See `HostSampler.count`."""
        return self._draw(seeds, seed, step).added(self.plan)

    def sample(
        self, seeds: Mapping[str, np.ndarray], seed: int, step: int, buckets: Buckets
    ) -> tuple[SampledBlocks, int]:
        """See `HostSampler.sample`."""
        drawn = self._draw(seeds, seed, step)
        bucket = buckets.choose(self.plan, drawn.added(self.plan))
        blocks = self._emit([drawn], buckets.capacities[bucket])
        return jax.tree.map(lambda array: array[0], blocks), bucket

    def sample_shards(
        self,
        shards: Sequence[Mapping[str, np.ndarray]],
        seed: int,
        step: int,
        buckets: Buckets,
        elsewhere: Sequence[Mapping[str, np.ndarray]] = (),
    ) -> tuple[SampledBlocks, int]:
        """See `HostSampler.sample_shards`."""
        drawn = [self._draw(own, seed, step) for own in shards]
        added = [own.added(self.plan) for own in drawn]
        added += [self.count(own, seed, step) for own in elsewhere]
        bucket = buckets.choose(self.plan, np.max(added, axis=0))
        return self._emit(drawn, buckets.capacities[bucket]), bucket

    def close(self) -> None:
        """Nothing is to be freed."""

    def _limits(self, node_type: str, ids: np.ndarray) -> np.ndarray:
        """How many of all times a seed may see."""
        if not self.graph.num_nodes[node_type]:
            return np.zeros(len(ids), np.int64)
        side: Literal["left", "right"] = "right" if self.plan.temporal == "until" else "left"
        return np.searchsorted(self._times, self.graph.node_times[node_type][np.maximum(ids, 0)], side=side)

    def _draw(self, seeds: Mapping[str, np.ndarray], seed: int, step: int) -> _Sample:
        plan, met = self.plan, {}
        for name, ids in zip(plan.node_types, HostSampler.checked(plan, seeds), strict=True):
            met[name] = _Met.of_seeds(ids, self._limits(name, ids) if len(ids) else np.zeros(0, np.int64), self._span)
        hops = []
        for hop in range(plan.num_hops):
            tables: dict[str, _Drawn] = {}
            found: dict[str, list[np.ndarray]] = {name: [] for name in plan.node_types}
            for draw in plan.draws_at(hop):
                vertices, limits = met[draw.target].frontier(hop)
                make = self._walk if draw.num_walks else self._fan_out
                own = tables[draw.name] = make(draw, hop, seed, step, vertices, limits)
                found[draw.source].append(own.pairs[_leading(own.counts, draw.widths[hop])])
            hops.append(tables)
            for name, own_met in met.items():
                own_met.add(found[name])
        return _Sample(met, hops)

    def _fan_out(self, draw: Draw, hop: int, seed: int, step: int, vertices: np.ndarray, limits: np.ndarray) -> _Drawn:
        edges, width, fan_out = self._edges[draw.steps[0]], draw.widths[hop], draw.fan_outs[hop]
        start, degrees = edges.visible(vertices, limits)
        if fan_out < 0 or width < fan_out:  # no vertex has more neighbours than columns
            counts, offsets = degrees, np.broadcast_to(np.arange(width), (len(vertices), width))
        else:
            counts = np.minimum(degrees, width)
            offsets = native_offsets(seed, step, hop, draw.key, vertices, degrees.astype(np.int32), width)
        kept = _leading(counts, width)
        pairs = np.zeros(kept.shape, np.int64)
        drawn = (start[:, None] + offsets)[kept]
        pairs[kept] = edges.senders[drawn].astype(np.int64) * self._span + np.repeat(limits, counts)
        of_entries = None
        if draw.name in self._with_edges:
            of_entries = np.zeros(kept.shape, np.int64)
            of_entries[kept] = drawn if edges.numbers is None else edges.numbers[drawn]
        return _Drawn(pairs, counts.astype(np.int32), None, of_entries)

    def _walk(self, draw: Draw, hop: int, seed: int, step: int, vertices: np.ndarray, limits: np.ndarray) -> _Drawn:
        rows, num_walks = len(vertices), draw.num_walks
        keys = vertex_keys(stream_keys(seed, step, hop, draw.key), vertices)
        first, second = (np.repeat(key, num_walks) for key in keys)
        walks = np.tile(np.arange(num_walks, dtype=np.uint32), rows)
        walkers, at = np.repeat(vertices, num_walks), np.repeat(limits, num_walks)
        for number, relation in enumerate(draw.steps):
            edges = self._edges[relation]
            start, degrees = edges.visible(walkers, at)
            counters = walks * np.uint32(len(draw.steps)) + np.uint32(number)
            offsets = uniform_below((first, second), counters, degrees.astype(np.uint32))
            going = degrees > 0
            following = np.full(len(walkers), PADDING, np.int32)
            following[going] = edges.senders[(start + offsets)[going]]
            walkers = following
        ended = np.flatnonzero(walkers >= 0)
        runs, visits = np.unique((ended // num_walks) << 32 | walkers[ended], return_counts=True)
        order = np.lexsort((runs & 0xFFFFFFFF, -visits, runs >> 32))  # most visited first, then the smaller id
        row, end, visits = runs[order] >> 32, runs[order] & 0xFFFFFFFF, visits[order]
        column = np.arange(len(row)) - np.searchsorted(row, row)
        kept = column < draw.widths[hop]
        row, column, end, visits = row[kept], column[kept], end[kept], visits[kept]
        shape = rows, draw.widths[hop]
        pairs, all_visits = np.zeros(shape, np.int64), np.zeros(shape, np.int32)
        pairs[row, column] = end * self._span + limits[row]
        all_visits[row, column] = visits
        return _Drawn(pairs, np.bincount(row, minlength=rows).astype(np.int32), all_visits)

    def _emit(self, drawn: Sequence[_Sample], capacities: Capacities) -> SampledBlocks:
        """The batches padded, each on the leading axis."""
        plan, ends = self.plan, cumulative(self.plan, capacities)
        starts = {
            name: np.concatenate([np.zeros(1, np.int64), ends[:, number]])
            for number, name in enumerate(plan.node_types)
        }

        def make(*shape: int, dtype: Any = np.int32) -> np.ndarray:
            return np.zeros((len(drawn), *shape), dtype)

        blocks = block_arrays(plan, capacities, make)
        hops = tuple({name: self._told(table) for name, table in own.items()} for own in blocks.hops)
        blocks = dataclasses.replace(blocks, hops=hops)
        for shard, own in enumerate(drawn):
            for name, ids in blocks.nodes.items():
                ids[shard] = PADDING
                for start, segment in zip(starts[name], own.met[name].ids, strict=False):
                    ids[shard, start : start + len(segment)] = segment
            for hop, tables in enumerate(own.hops):
                for draw in plan.draws_at(hop):
                    self._write(blocks.hops[hop][draw.name], shard, tables[draw.name], draw, own.met, starts)
        return dataclasses.replace(blocks, added=np.stack([own.added(plan) for own in drawn]).astype(np.int32))

    def _told(self, table: NeighborTable) -> NeighborTable:
        """The table with room for its entries' edges, where it has them."""
        edges = np.zeros(table.senders.shape, np.int64) if table.name in self._with_edges else None
        return dataclasses.replace(table, entry_edges=edges)

    def _write(
        self, table: Any, shard: int, drawn: _Drawn, draw: Draw, met: Mapping[str, _Met], starts: Mapping[str, Any]
    ) -> None:
        kept = _leading(drawn.counts, drawn.pairs.shape[1])
        senders = np.zeros(drawn.pairs.shape, np.int32)
        senders[kept] = met[draw.source].slots(drawn.pairs[kept], starts[draw.source])
        begin = 0
        for start, segment in zip(starts[draw.target], met[draw.target].ids, strict=False):
            end = min(begin + len(segment), len(senders))
            own = slice(start, start + end - begin)
            table.senders[shard, own] = senders[begin:end]
            table.num_neighbors[shard, own] = drawn.counts[begin:end]
            if drawn.visits is not None:
                table.visits[shard, own] = drawn.visits[begin:end]
            if drawn.edges is not None:
                table.entry_edges[shard, own] = drawn.edges[begin:end]
            begin = end


def host_sampler(
    graph: HeteroGraph, plan: SamplingPlan, threads: int, with_edges: Collection[str] = ()
) -> HostSampler | TemporalSampler:
    """The sampler on the host that a plan asks for; of `with_edges` see `TemporalSampler`, the other draws again."""
    return HostSampler(graph, plan, threads) if plan.temporal == "none" else TemporalSampler(graph, plan, with_edges)


def check_seed_times(graph: HeteroGraph, seed_types: Iterable[str]) -> None:
    """Refuses seeds whose nodes have no times.

    Raises:
        InputError: a type has none.
    """
    for name in seed_types:
        if name not in graph.node_times:
            raise InputError(
                f"sampling.temporal: nodes of type {name!r} have no times, which say what each may see; name a column"
                " 'time' of their table, or give node_times"
            )


def _distinct(times: Iterable[np.ndarray]) -> np.ndarray:
    found = [np.unique(own) for own in times]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _leading(counts: np.ndarray, width: int) -> np.ndarray:
    """Which entries of rows count, bool `[rows, width]`."""
    return np.arange(width)[None, :] < counts[:, None]
