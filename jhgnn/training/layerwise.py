"""Layer-wise full-neighbour inference: exact scores in bounded memory.

Each layer's rows of all nodes are computed in chunks of receivers with all their in-neighbours and kept on the host, so
that no device holds more than a chunk. Nothing is computed twice but HAN's neighbor aggregation: its semantic attention
is a mean over all targets, which must be known before any of them can be fused. Chunks are cut by edges, and their
shapes are rounded up to powers of two, so that there are few of them to compile.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import PADDING
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import Coo, Csr, SemanticGraph
from jhgnn.models.inputs import Block
from jhgnn.sampling.native import gather_rows
from jhgnn.training.lazy_rows import tables_of
from jhgnn.training.minibatch_problem import HostFeatures, MinibatchProblem
from jhgnn.training.minibatch_programs import MinibatchPrograms, evaluation_batches
from jhgnn.training.objective import SplitCounts, count_batch, scores
from jhgnn.training.state import Params, model_structure

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


def layerwise_scores(
    problem: MinibatchProblem,
    programs: MinibatchPrograms,
    config: Config,
    params: Params,
    splits: tuple[str, ...],
) -> dict[str, dict[str, float]]:
    """Scores over all neighbours of every split that has nodes; `params` on one device."""
    embeddings = layerwise_embeddings(problem, config, params)
    spec = problem.spec

    @jax.jit
    def count(params: Params, rows: jax.Array, labels: jax.Array, mask: jax.Array) -> SplitCounts:
        model: Any = nnx.merge(programs.structure, params)
        return count_batch(model.classifier(rows).logits, labels, mask)

    labels = np.asarray(problem.graph.labels)
    found = {}
    for split in splits:
        batches = evaluation_batches(problem, config, split)
        if batches is None:
            continue
        total = [np.zeros(())] + [np.zeros(spec.num_classes)] * 3 + [np.zeros(())]
        for start in range(0, len(batches.seeds), CHUNK_ROWS):
            ids = np.full(CHUNK_ROWS, PADDING, np.int32)
            own = batches.seeds[start : start + CHUNK_ROWS]
            ids[: len(own)] = own
            counts = count(params, gather_rows(embeddings, ids), labels[np.maximum(ids, 0)], ids >= 0)
            total = [a + np.asarray(b, np.float64) for a, b in zip(total, counts, strict=True)]
        total[0] = total[0] / len(batches.seeds)
        found[split] = scores(SplitCounts(*total), len(batches.seeds))  # type: ignore[arg-type]
    return found


def layerwise_embeddings(problem: MinibatchProblem, config: Config, params: Params) -> np.ndarray:
    """The target type's last hidden rows over all neighbours, float32 `[num_targets, hidden]`.

    HAN needs its metapath graphs: where they are walked, they are not built.
    """
    if config.model.name == "han":
        return _han_embeddings(problem, config, params)
    spec = problem.spec
    names = dict.fromkeys(spec.implementations, IMPLEMENTATION)
    structure = model_structure(config.model, dataclasses.replace(spec, implementations=names))
    model: Any = nnx.merge(structure, params)
    rows: dict[str, HostFeatures] = dict(problem.features)
    rows |= {name: np.ascontiguousarray(table, np.float32) for name, table in tables_of(params).items()}
    for index, layer in enumerate(model.layers):
        run = jax.jit(functools.partial(_make, structure, index), static_argnums=3)
        made: dict[str, HostFeatures] = {}
        for node_type in layer.plan.makes:
            out = np.zeros((spec.num_nodes[node_type], config.model.hidden), np.float32)
            relations = {name: layer.plan.relations[name] for name in layer.plan.into(node_type)}
            for chunk in chunks(problem.graph, node_type, relations):
                read = {name: _gather(rows[name], ids) for name, ids in chunk.ids.items() if name in rows}
                result = run(params, read, chunk.graphs, (node_type, chunk.num_rows))
                out[chunk.start : chunk.stop] = np.asarray(result)[: chunk.stop - chunk.start]
            made[node_type] = out
        rows = made
    embeddings = rows[spec.target]
    assert isinstance(embeddings, np.ndarray)
    return embeddings


def _han_embeddings(problem: MinibatchProblem, config: Config, params: Params) -> np.ndarray:
    spec, target = problem.spec, problem.spec.target
    structure = model_structure(
        config.model, dataclasses.replace(spec, implementations=dict.fromkeys(spec.implementations, IMPLEMENTATION))
    )
    model: Any = nnx.merge(structure, params)
    relations = {relation.name: relation for relation in problem.sampled.schema.relations}
    rows: HostFeatures
    if target in problem.features:
        rows = problem.features[target]
    else:
        rows = np.ascontiguousarray(tables_of(params)[target], np.float32)
    for index in range(len(model.layers)):
        add = jax.jit(functools.partial(_semantic_sums, structure, index, target), static_argnums=3)
        fuse = jax.jit(functools.partial(_fused, structure, index, target), static_argnums=3)
        total: Any = 0.0
        for chunk in chunks(problem.sampled, target, relations):
            of_target = np.arange(chunk.num_rows) < chunk.stop - chunk.start
            found = add(params, _gather(rows, chunk.ids[target]), chunk.graphs, chunk.num_rows, of_target)
            total = total + np.asarray(found, np.float64)
        means = np.asarray(total / spec.num_nodes[target], np.float32)
        out = np.zeros((spec.num_nodes[target], config.model.hidden), np.float32)
        for chunk in chunks(problem.sampled, target, relations):
            result = fuse(params, _gather(rows, chunk.ids[target]), chunk.graphs, chunk.num_rows, means)
            out[chunk.start : chunk.stop] = np.asarray(result)[: chunk.stop - chunk.start]
        rows = out
    assert isinstance(rows, np.ndarray)
    return rows


def _semantic_sums(
    structure: nnx.GraphDef,
    index: int,
    target: str,
    params: Params,
    rows: Any,
    graphs: dict[str, SemanticGraph],
    num_rows: int,
    of_target: jax.Array,
) -> jax.Array:
    """What one chunk adds to the means of HAN's semantic attention, `[metapaths, semantic_hidden]`."""
    layer = nnx.merge(structure, params).layers[index]
    parts = layer.along_metapaths(rows, Block(graphs, {target: num_rows}, {}), None)
    return layer.fusion.sums(parts, of_target)


def _fused(
    structure: nnx.GraphDef,
    index: int,
    target: str,
    params: Params,
    rows: Any,
    graphs: dict[str, SemanticGraph],
    num_rows: int,
    means: jax.Array,
) -> jax.Array:
    """One chunk's rows after the layer, `[num_rows, hidden]`."""
    layer = nnx.merge(structure, params).layers[index]
    return layer(rows, Block(graphs, {target: num_rows}, {}), None, means=means)


def chunks(graph: HeteroGraph, node_type: str, relations: Mapping[str, Relation]) -> Iterator[Chunk]:
    """Cuts a type's nodes so that a chunk holds at most `CHUNK_EDGES` in-edges, or one node, and `CHUNK_ROWS` nodes."""
    num_nodes = graph.num_nodes[node_type]
    edges = {name: graph.edges[relation] for name, relation in relations.items()}
    ends = np.sum([each.indptr for each in edges.values()], axis=0) if edges else np.zeros(num_nodes + 1, np.int64)
    slot_of = {name: np.zeros(count, np.int32) for name, count in graph.num_nodes.items()}
    start = 0
    while start < num_nodes:
        most = int(np.searchsorted(ends, ends[start] + CHUNK_EDGES, side="right")) - 1
        stop = min(max(most, start + 1), start + CHUNK_ROWS, num_nodes)
        num_rows = _rounded(stop - start) + 1  # the last one takes the padding edges
        own = np.full(num_rows, PADDING, np.int32)
        own[: stop - start] = np.arange(start, stop)
        senders = {name: each.senders[each.indptr[start] : each.indptr[stop]] for name, each in edges.items()}
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
            graphs[name] = _padded(name, indptr, slots, num_rows, len(ids[relation.source]))
        yield Chunk(start, stop, num_rows, ids, graphs)
        start = stop


def _padded(name: str, indptr: np.ndarray, senders: np.ndarray, num_rows: int, num_sources: int) -> SemanticGraph:
    num_edges = _rounded(len(senders))
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


def _make(
    structure: nnx.GraphDef,
    index: int,
    params: Params,
    rows: dict[str, Any],
    graphs: dict[str, SemanticGraph],
    makes: tuple[str, int],
) -> jax.Array:
    model: Any = nnx.merge(structure, params)
    made = model.layers[index](rows, Block(graphs, dict([makes]), {}), None)
    return jnp.asarray(made[makes[0]])


def _gather(rows: HostFeatures, ids: np.ndarray) -> Any:
    return jax.tree.map(lambda table: gather_rows(table, ids), rows)


def _rounded(count: int) -> int:
    return 1 << max(6, (count - 1).bit_length()) if count else 64
