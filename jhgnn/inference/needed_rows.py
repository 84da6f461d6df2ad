"""Rows of some nodes over all their neighbours, from their receptive field alone: exact, in bounded memory.

The field is walked from the nodes that are asked for, against the edges, and costs what it holds, not what the graph
does; then each layer's rows of it are computed in chunks of receivers. Shapes are rounded up to powers of four, so that
few programs serve any question.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.sampled import PADDING
from jhgnn.nn.block import Block
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.stores.host import HostRows
from jhgnn.training.layerwise import in_edges_graph
from jhgnn.training.state import Params

CHUNK_EDGES = 2**18
CHUNK_ROWS = 2**14
SMALLEST = 64


class Field(NamedTuple):
    """What is needed before each layer, and after the last: type -> ids, int32, ascending."""

    hops: tuple[Mapping[str, np.ndarray], ...]

    @property
    def num_rows(self) -> int:
        """Input rows that are read."""
        return sum(len(ids) for ids in self.hops[0].values())


class _Chunk(NamedTuple):
    """Some receivers of a type with all their in-edges, padded."""

    start: int
    stop: int
    num_rows: int
    ids: dict[str, np.ndarray]
    graphs: dict[str, Any]


class _Made:
    """A layer's rows of some nodes, found by their global ids."""

    def __init__(self, ids: Mapping[str, np.ndarray], rows: Mapping[str, np.ndarray]) -> None:
        self._ids, self._rows = ids, rows

    @property
    def node_types(self) -> Any:
        return self._rows.keys()

    def gather(self, node_type: str, ids: np.ndarray) -> np.ndarray:
        own, rows = self._ids[node_type], self._rows[node_type]
        if not len(own):
            return np.zeros((len(ids), rows.shape[1]), rows.dtype)
        places = np.minimum(np.searchsorted(own, ids), len(own) - 1)
        return np.where((ids >= 0)[:, None], rows[places], 0).astype(rows.dtype)


class NeededRows:
    """Rows of a type's nodes on demand; programs are kept from one question to the next."""

    def __init__(
        self,
        structure: nnx.GraphDef,
        params: Params,
        edges: Mapping[str, EdgeSet],
        inputs: HostRows,
        target: str,
        width: int,
    ) -> None:
        """
        Args:
            structure: of a model that aggregates over relations by `segment`, and whose rows of a node depend on its
                receptive field alone.
            params: on the device; tables of learnable rows are not read, they are among `inputs`.
            edges: relation -> its edges, which may lie in a file.
            inputs: rows of every type, features or learnt.
            target: the type that is asked for.
            width: of the rows that layers make.
        """
        self._structure, self._params = structure, params
        self._edges, self._inputs, self._target, self._width = edges, inputs, target, width
        model: Any = nnx.merge(structure, params)
        self._plans: tuple[LayerPlan, ...] = tuple(layer.plan for layer in model.layers)
        self._run = jax.jit(self._layer, static_argnums=(0, 1, 5))

    def field(self, ids: np.ndarray) -> Field:
        """What the rows of `ids`, ascending and distinct, depend on."""
        hops: list[dict[str, np.ndarray]] = [{self._target: np.asarray(ids, np.int32)}]
        for plan in reversed(self._plans):
            made, parts = hops[-1], dict[str, list[np.ndarray]]()
            for node_type, own in made.items():
                if node_type in plan.reads:
                    parts.setdefault(node_type, []).append(own)
                for name in plan.into(node_type):
                    senders, _ = _in_edges(self._edges[name], own)
                    parts.setdefault(plan.relations[name].source, []).append(senders)
            hops.append({node_type: np.unique(np.concatenate(each)) for node_type, each in parts.items()})
        return Field(tuple(reversed(hops)))

    def rows(self, field: Field) -> np.ndarray:
        """What the last layer makes of the field's targets, float32 `[num_ids, hidden]`, in the order of their ids."""
        store: Any = self._inputs
        for index, plan in enumerate(self._plans):
            made = {}
            for node_type, own in field.hops[index + 1].items():
                parts = []
                for chunk in self._chunks(plan, node_type, own):
                    read = {
                        name: store.gather(name, each) for name, each in chunk.ids.items() if name in store.node_types
                    }
                    valid = np.arange(chunk.num_rows) < chunk.stop - chunk.start
                    out = self._run(index, node_type, self._params, read, (chunk.graphs, valid), chunk.num_rows)
                    parts.append(np.asarray(out, np.float32)[: chunk.stop - chunk.start])
                made[node_type] = np.concatenate(parts) if parts else np.zeros((0, self._width), np.float32)
            store = _Made(field.hops[index + 1], made)
        return store.gather(self._target, field.hops[-1][self._target])

    def _layer(
        self, index: int, node_type: str, params: Params, read: Mapping[str, Any], chunk: Any, num_rows: int
    ) -> jax.Array:
        graphs, valid = chunk
        model: Any = nnx.merge(self._structure, params)
        block = Block(graphs, {node_type: num_rows}, {}, targets={node_type: valid})
        return jnp.asarray(model.layers[index](read, block)[node_type])

    def _chunks(self, plan: LayerPlan, node_type: str, ids: np.ndarray) -> Iterator[_Chunk]:
        """Cuts receivers so that a chunk holds at most `CHUNK_EDGES` in-edges, or one node, and `CHUNK_ROWS` nodes."""
        names = plan.into(node_type)
        ends = np.zeros(len(ids) + 1, np.int64)
        for name in names:
            indptr = self._edges[name].indptr
            ends[1:] += np.cumsum(indptr[ids + 1] - indptr[ids])
        start = 0
        while start < len(ids):
            most = int(np.searchsorted(ends, ends[start] + CHUNK_EDGES, side="right")) - 1
            stop = min(max(most, start + 1), start + CHUNK_ROWS, len(ids))
            yield self._chunk(plan, node_type, ids[start:stop], names, start, stop)
            start = stop

    def _chunk(
        self, plan: LayerPlan, node_type: str, own: np.ndarray, names: Sequence[str], start: int, stop: int
    ) -> _Chunk:
        found = {name: _in_edges(self._edges[name], own) for name in names}
        num_rows = _rounded(len(own)) + 1  # the last one takes the padding edges
        others: dict[str, np.ndarray] = {}
        for source in dict.fromkeys([node_type, *(plan.relations[name].source for name in names)]):
            met = [found[name][0] for name in names if plan.relations[name].source == source]
            others[source] = np.unique(np.concatenate(met)) if met else np.zeros(0, np.int32)
        others[node_type] = others[node_type][~_among(others[node_type], own)]
        num_others = _rounded(max(len(each) for each in others.values()))
        num_edges = _rounded(max((len(senders) for senders, _ in found.values()), default=0))
        ids, graphs = {}, {}
        for source, fresh in others.items():
            first = num_rows if source == node_type else 0
            read = np.full(first + num_others, PADDING, np.int32)
            read[first : first + len(fresh)] = fresh
            if first:
                read[: len(own)] = own
            ids[source] = read
        for name in names:
            source = plan.relations[name].source
            senders, indptr = found[name]
            first = num_rows if source == node_type else 0
            slots: np.ndarray = first + np.searchsorted(others[source], senders)
            if first:
                mine = _among(senders, own)
                slots[mine] = np.searchsorted(own, senders[mine])
            graphs[name] = in_edges_graph(name, indptr, slots, num_rows, len(ids[source]), num_edges)
        return _Chunk(start, stop, num_rows, ids, graphs)


def _in_edges(edges: EdgeSet, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Senders of these receivers, one receiver after the other, and where each receiver's end, `[num_ids + 1]`."""
    starts = edges.indptr[ids]
    lengths = edges.indptr[ids + 1] - starts
    indptr = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    if len(ids) == 1:
        return np.asarray(edges.senders[int(starts[0]) : int(starts[0] + lengths[0])]), indptr
    places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
    return np.asarray(edges.senders[places]), indptr


def _among(ids: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """Which ids are among others."""
    if not len(ascending):
        return np.zeros(len(ids), bool)
    places = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    return np.asarray(ascending[places] == ids)


def _rounded(count: int) -> int:
    size = SMALLEST
    while size < count:
        size *= 4
    return size
