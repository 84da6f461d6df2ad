"""Layer-wise full-neighbour inference: exact rows of all nodes in bounded memory.

Each layer's rows are computed for all nodes before the next layer begins, in chunks of receivers with all their
in-neighbours. Rows are kept on the host, so a device holds no more than a chunk. A model whose fusion runs over all
targets, such as HAN, aggregates twice: once to sum over all targets, and once to fuse with these sums. Chunks are cut
by their number of edges, and their shapes are rounded up to powers of two, so that few programs are compiled.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.graph.edge_features import EdgeFeatures, mean_features
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.erased import NAME as ERASED
from jhgnn.graph.sampled import PADDING
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import Coo, Csr, SemanticGraph
from jhgnn.graph.stacked import StackedRelations
from jhgnn.nn.block import Block
from jhgnn.nn.embeddings import computable, tables_of
from jhgnn.stores.host import HostRows
from jhgnn.tasks.node_classification import chunks_of
from jhgnn.training.execution import Execution
from jhgnn.training.sampled_choices import Sampling
from jhgnn.training.state import Params, structure_of

CHUNK_EDGES = 2**20
CHUNK_ROWS = 2**14
IMPLEMENTATION = "segment"


class Chunk(NamedTuple):
    """Receivers `[start, stop)` of one type with all their in-edges.

    `ids` are the vertices read, by type, int32 padded with -1; those of the receivers' own type start with them.
    """

    start: int
    stop: int
    num_rows: int
    ids: dict[str, np.ndarray]
    graphs: dict[str, SemanticGraph]
    positions: dict[str, slice]
    """Of each relation's edges in the whole graph."""


def layerwise_rows(execution: Execution, sampling: Sampling, params: Params) -> dict[str, np.ndarray]:
    """What the head reads of all nodes of the target types over all neighbours, float32 `[num_nodes, hidden]`.

    Metapath graphs are needed: where they are walked, they are not built. `params` on one device.
    """
    names = dict.fromkeys(execution.spec.implementations, IMPLEMENTATION)
    structure = structure_of(execution.builder(names))
    model: Any = nnx.merge(structure, params)
    first = HostRows(
        sampling.features.tables
        | {name: np.ascontiguousarray(table, np.float32) for name, table in tables_of(params).items()}
    )
    rows = _projected(structure, params, model, first) if execution.model.over == "erased" else first
    for index, layer in enumerate(model.layers):
        made = {}
        for node_type in layer.plan.makes:
            made[node_type] = _layer_rows(execution, sampling, structure, params, index, node_type, rows)
        rows = HostRows(made)
    return _represented(execution, sampling, structure, params, rows, first)


def _layer_rows(
    execution: Execution,
    sampling: Sampling,
    structure: nnx.GraphDef,
    params: Params,
    index: int,
    node_type: str,
    rows: HostRows,
) -> np.ndarray:
    """One layer's rows of all nodes of a type, `[num_nodes, hidden]`."""
    graph = sampling.sampled
    layer: Any = nnx.merge(structure, params).layers[index]
    stacked = {name: each for name, each in sampling.stacked.items() if each.target == node_type}
    inside = {name for each in stacked.values() for name in each.relations}
    relations = {name: layer.plan.relations[name] for name in layer.plan.into(node_type) if name not in inside}
    relations |= {name: Relation(each.source, each.graph.name, node_type) for name, each in stacked.items()}
    edges = {
        name: next(own for each, own in graph.edges.items() if name in (str(each), each.name)) for name in relations
    }

    attends = execution.model.attends()

    def block(chunk: Any) -> Block:
        graphs, num_rows, of_targets, stacks, degrees, edge_features = chunk
        return Block(
            graphs,
            {node_type: num_rows},
            {},
            stacks=stacks,
            targets={node_type: of_targets},
            degrees=degrees,
            edge_features=edge_features,
        )

    def sums(params: Params, read: Mapping[str, Any], chunk: Any, num_rows: int) -> Any:
        layer = nnx.merge(structure, params).layers[index]
        own = block((chunk[0], num_rows, *chunk[1:]))
        return layer.partial(layer.aggregate(read, own, None), own).values

    def fused(params: Params, read: Mapping[str, Any], chunk: Any, num_rows: int, total: Any) -> jax.Array:
        layer = nnx.merge(structure, params).layers[index]
        own = block((chunk[0], num_rows, *chunk[1:]))
        reduce = (lambda partial: partial.values) if total is None else (lambda _: total)
        return jnp.asarray(layer(read, own, None, reduce)[node_type])

    def arguments(chunk: Chunk) -> tuple[Any, ...]:
        met = {name: ids for name, ids in chunk.ids.items() if name in rows.node_types}
        read = {name: jax.tree.map(computable, rows.gather(name, ids)) for name, ids in met.items()}
        of_targets = np.arange(chunk.num_rows) < chunk.stop - chunk.start
        stacks = {name: _stack_of(each, chunk, name) for name, each in stacked.items()}
        graphs = {name: each for name, each in chunk.graphs.items() if name not in stacked}
        edge_features = {}
        for name in execution.spec.edge_widths.keys() & graphs.keys():
            graphs[name], edge_features[name] = _with_edge_features(edges[name], chunk, name, splits=attends)
        degrees = None
        if ERASED in chunk.ids:
            degrees = sampling.features.gather(ERASED, chunk.ids[ERASED])
        return params, read, (graphs, of_targets, stacks, degrees, edge_features), chunk.num_rows

    total = None
    if execution.model.fuses_over_targets:
        add = jax.jit(sums, static_argnums=3)
        for chunk in chunks(graph.num_nodes, node_type, relations, edges):
            found = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), add(*arguments(chunk)))
            total = found if total is None else jax.tree.map(np.add, total, found)
        total = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), total)
    run = jax.jit(fused, static_argnums=3)
    out = np.zeros((graph.num_nodes[node_type], execution.config.model.hidden), np.float32)
    for chunk in chunks(graph.num_nodes, node_type, relations, edges):
        out[chunk.start : chunk.stop] = np.asarray(run(*arguments(chunk), total))[: chunk.stop - chunk.start]
    return out


def _projected(structure: nnx.GraphDef, params: Params, model: Any, first: HostRows) -> HostRows:
    """Rows of the erased graph's nodes before its first layer, one type after the other."""
    parts = []
    for node_type, count in model.num_nodes.items():
        project = jax.jit(lambda params, x, node_type=node_type: nnx.merge(structure, params).project(x, node_type))
        ids = np.arange(count, dtype=np.int32)
        made = [np.asarray(project(params, first.gather(node_type, own))) for own in chunks_of(ids)]
        parts.append(np.concatenate(made)[:count])
    return HostRows({ERASED: np.concatenate(parts)})


def _represented(
    execution: Execution,
    sampling: Sampling,
    structure: nnx.GraphDef,
    params: Params,
    rows: HostRows,
    first: HostRows,
) -> dict[str, np.ndarray]:
    """What the head reads, from what the layers made and the input rows."""
    if ERASED in rows.node_types:
        table = rows.tables[ERASED]
        assert isinstance(table, np.ndarray)
        starts = {name: (start, count) for name, start, count in sampling.offsets}
        return {name: table[slice(starts[name][0], sum(starts[name]))] for name in execution.task.targets}
    scorer = getattr(nnx.merge(structure, params), "scorer", None)
    found = {}
    for node_type in execution.task.targets:
        made = rows.tables[node_type]
        assert isinstance(made, np.ndarray)
        if scorer is None or not scorer.reads_inputs:
            found[node_type] = made
            continue
        add = jax.jit(
            lambda params, made, own, node_type=node_type: nnx.merge(structure, params).scorer.represent(
                node_type, made, own
            )
        )
        ids = np.arange(len(made), dtype=np.int32)
        parts = [
            np.asarray(add(params, rows.gather(node_type, own), first.gather(node_type, own))) for own in chunks_of(ids)
        ]
        found[node_type] = np.concatenate(parts)[: len(made)]
    return found


def _stack_of(stack: StackedRelations, chunk: Chunk, name: str) -> StackedRelations:
    """A stack's edges into a chunk's receivers, with weights of zero where there is padding."""
    graph, own = chunk.graphs[name], chunk.positions[name]

    def padded(values: np.ndarray) -> np.ndarray:
        out = np.zeros(graph.num_edges, values.dtype)
        out[: own.stop - own.start] = values[own]
        return out

    return dataclasses.replace(
        stack,
        graph=graph,
        relation_of_edge=padded(stack.relation_of_edge),
        group_of_edge=None,
        weights=padded(stack.weights),
        num_groups=0,
        implementation=IMPLEMENTATION,
    )


def _with_edge_features(edges: EdgeSet, chunk: Chunk, name: str, *, splits: bool) -> tuple[SemanticGraph, EdgeFeatures]:
    """A relation's edges into a chunk's receivers, and what a layer reads of their features, zeros for padding.

    With `splits` each edge is a sender of its own, as attention reads them; else they are means by receiver.
    """
    graph, own = chunk.graphs[name], chunk.positions[name]
    assert edges.features is not None
    assert graph.coo is not None
    features = edges.features[own]
    if splits:
        rows = np.zeros((graph.num_edges, features.shape[1]), np.float32)
        rows[: len(features)] = features
        numbers, senders = np.arange(graph.num_edges, dtype=np.int32), graph.incoming.indices
        incoming = Csr(graph.incoming.indptr, numbers)
        coo = dataclasses.replace(graph.coo, senders=numbers, incoming_position=numbers)
        split = SemanticGraph(incoming, incoming, coo, None, graph.num_edges, graph.num_targets, name)
        return split, EdgeFeatures(rows, senders)
    indptr = edges.indptr[chunk.start : chunk.stop + 1] - edges.indptr[chunk.start]
    means = mean_features(EdgeSet(indptr, edges.senders[own], features=features)).rows
    rows = np.zeros((chunk.num_rows, means.shape[1]), np.float32)
    rows[: len(means)] = means
    return graph, EdgeFeatures(rows)


def chunks(
    num_nodes: Mapping[str, int], node_type: str, relations: Mapping[str, Relation], edges: Mapping[str, Any]
) -> Iterator[Chunk]:
    """Cuts a type's nodes so that a chunk holds at most `CHUNK_EDGES` in-edges, or one node, and `CHUNK_ROWS` nodes.

    Args:
        num_nodes: of each type.
        node_type: the receivers'.
        relations: name -> relation into the type.
        edges: name -> its `EdgeSet`.
    """
    count = num_nodes[node_type]
    ends = np.sum([each.indptr for each in edges.values()], axis=0) if edges else np.zeros(count + 1, np.int64)
    slot_of = {name: np.zeros(size, np.int32) for name, size in num_nodes.items()}
    start = 0
    while start < count:
        most = int(np.searchsorted(ends, ends[start] + CHUNK_EDGES, side="right")) - 1
        stop = min(max(most, start + 1), start + CHUNK_ROWS, count)
        num_rows = _rounded(stop - start) + 1  # the last one takes the padding edges
        own = np.full(num_rows, PADDING, np.int32)
        own[: stop - start] = np.arange(start, stop)
        positions = {name: slice(int(each.indptr[start]), int(each.indptr[stop])) for name, each in edges.items()}
        senders = {name: each.senders[positions[name]] for name, each in edges.items()}
        ids = {}
        for source in dict.fromkeys([node_type, *(relation.source for relation in relations.values())]):
            found = [senders[name] for name, relation in relations.items() if relation.source == source]
            fresh = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int32)
            first = np.zeros(0, np.int32)
            if source == node_type:
                first, fresh = own, fresh[(fresh < start) | (fresh >= stop)]
                slot_of[source][start:stop] = np.arange(stop - start)
            slot_of[source][fresh] = np.arange(len(first), len(first) + len(fresh))
            padding = np.full(_rounded(len(first) + len(fresh)) - len(first) - len(fresh), PADDING)
            ids[source] = np.concatenate([first, fresh, padding]).astype(np.int32)
        graphs = {}
        for name, relation in relations.items():
            indptr = edges[name].indptr[start : stop + 1] - edges[name].indptr[start]
            slots = slot_of[relation.source][senders[name]]
            num_edges = _rounded(len(slots))
            graphs[name] = in_edges_graph(name, indptr, slots, num_rows, len(ids[relation.source]), num_edges)
        yield Chunk(start, stop, num_rows, ids, graphs, positions)
        start = stop


def in_edges_graph(
    name: str, indptr: np.ndarray, senders: np.ndarray, num_rows: int, num_sources: int, num_edges: int
) -> SemanticGraph:
    """In-edges of some receivers for inference by `segment`, padded to `num_edges` edges, which the last row receives.

    Args:
        name: of the relation.
        indptr: `[receivers + 1]`, fewer than `num_rows`.
        senders: int `[edges]`, at most `num_edges`, numbers of the rows that are read.
        num_rows: rows to make.
        num_sources: rows that are read.
        num_edges: after padding.
    """
    padded = np.zeros(num_edges, np.int32)
    padded[: len(senders)] = senders
    ends = np.full(num_rows + 1, len(senders), np.int32)
    ends[: len(indptr)] = indptr
    ends[-1] = num_edges
    receivers = np.repeat(np.arange(num_rows, dtype=np.int32), np.diff(ends))
    incoming = Csr(ends, padded)
    # Inference reads in-edges alone; the other direction repeats them.
    coo = Coo(receivers=receivers, senders=padded, incoming_position=padded)
    return SemanticGraph(incoming, incoming, coo, None, num_sources, num_rows, name)


def _rounded(count: int) -> int:
    return 1 << max(6, (count - 1).bit_length()) if count else 64
