"""From a recipe to what a run trains on: graph read, semantic graphs built, implementations chosen, all placed."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from scipy import sparse

from jhgnn import native
from jhgnn.config import Config, ModelConfig
from jhgnn.data import load
from jhgnn.errors import InputError
from jhgnn.graph.erased import NAME as ERASED
from jhgnn.graph.erased import erase_types
from jhgnn.graph.hetero_graph import SPLITS, HeteroGraph
from jhgnn.graph.memory_limit import default_memory_limit_bytes, readable_bytes
from jhgnn.graph.receptive_field import ReceptiveField, receptive_field
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Metapath
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_semantic_graphs, default_metapaths
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.models import MODELS
from jhgnn.models.inputs import FieldInputs, GraphInputs, GraphSpec
from jhgnn.ops import neighbor_attention, neighbor_mean, sparse_matmul

USES_ATTENTION = ("han", "rgat", "gat")
NEEDED_BELOW = 0.8
"""Share of the whole graph's edges and rows below which `auto` trains on the receptive field."""


class Choice(NamedTuple):
    """Which implementation an op uses on one semantic graph or feature matrix, and why."""

    op: str
    subject: str
    implementation: str
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """What a run trains on; shared by all its seeds.

    Attributes:
        graph: on the host.
        spec: what the model is built for.
        inputs: features and semantic graphs, on the device.
        step_inputs: what a training step reads: the same, or the training nodes' receptive field alone.
        rows: `all` or `needed`, and why.
        labels: on the device, as in `HeteroGraph`.
        splits: `train`, `val`, `test` -> int32 ids, on the device; absent splits are empty.
        metapaths: HAN's, or none.
        choices: implementations, for the summary.
        read_s, sgb_s: seconds of reading and of semantic graph build.
    """

    graph: HeteroGraph
    spec: GraphSpec
    inputs: GraphInputs
    step_inputs: GraphInputs | FieldInputs
    rows: tuple[str, str]
    labels: jax.Array
    splits: Mapping[str, jax.Array]
    metapaths: tuple[Metapath, ...]
    choices: tuple[Choice, ...]
    read_s: float
    sgb_s: float

    @property
    def step_arguments(self) -> tuple[GraphInputs | FieldInputs, jax.Array, jax.Array]:
        """What a step is called with beside the state: inputs, labels and the ids of the training nodes."""
        return self.step_inputs, self.labels, self.splits["train"]

    def metapath_edges(self) -> dict[str, int]:
        """Edges of each metapath's semantic graph."""
        return {metapath.name: self.inputs.graphs[metapath.name].num_edges for metapath in self.metapaths}

    def split_size(self, split: str) -> int:
        return int(self.splits[split].shape[0])


def prepare(config: Config, *, progress: bool = True) -> Problem:
    """Reads, builds, chooses and places.

    Raises:
        InputError: the data is broken or has no labels or training nodes, a metapath does not join, a build exceeds its
            memory limit, or a named implementation does not cover a graph.
    """
    start = time.perf_counter()
    graph = read(config, progress=progress)
    read_s = time.perf_counter() - start
    start = time.perf_counter()
    metapaths, host_graphs = build_graphs(graph, config)
    sgb_s = time.perf_counter() - start
    return place(graph, metapaths, host_graphs, config, read_s=read_s, sgb_s=sgb_s)


def read_graph(config: Config, *, progress: bool = True) -> HeteroGraph:
    """Reads the recipe's data, whatever the task."""
    data = config.data
    from_preset = not data.path
    if from_preset and not data.preset:
        raise InputError(f"data.path is empty: give the folder of the {data.format} files with --data.path")
    graph = load(
        "synthetic" if from_preset else data.format,
        data.preset if from_preset else data.path,
        target=data.target or None,
        scale=data.scale,
        seed=data.seed,
        progress=progress,
    )
    if data.one_hot:
        identities = {t: sparse.eye_array(n, dtype=np.float32, format="csr") for t, n in graph.num_nodes.items()}
        graph = dataclasses.replace(graph, features=identities | dict(graph.features))
    return graph


def read(config: Config, *, progress: bool = True) -> HeteroGraph:
    """Reads the recipe's data and checks that nodes can be classified on it."""
    data, graph = config.data, read_graph(config, progress=progress)
    where = f"data {data.path!r}" if data.path else f"data {data.preset}"
    if graph.target is None or graph.labels is None:
        raise InputError(
            f"{where}: has no labels, and node classification needs some; name data.target, add them, or predict links"
            " with task.name"
        )
    if len(graph.splits.get("train", ())) == 0:
        raise InputError(f"{where}: the train split of {graph.target!r} is empty; training needs labelled nodes")
    if graph.num_classes < 2 and not graph.multi_label:
        raise InputError(f"{where}: {graph.num_classes} class of {graph.target!r}; classification needs two or more")
    if not data.validation and "val" in graph.splits:
        splits = {split: ids for split, ids in graph.splits.items() if split != "val"}
        splits["train"] = np.sort(np.concatenate([graph.splits["train"], graph.splits["val"]]))
        graph = dataclasses.replace(graph, splits=splits)
    return graph.with_reverse_relations() if data.reverse_relations else graph


def build_graphs(graph: HeteroGraph, config: Config) -> tuple[tuple[Metapath, ...], dict[str, SemanticGraph]]:
    """Semantic graph build: HAN's metapaths, or all relations, or the graph with its types erased; on the host."""
    if config.model.name in ("gcn", "gat"):
        return (), {ERASED: erase_types(graph)}
    metapaths: tuple[Metapath, ...] = ()
    if config.model.name == "han":
        metapaths = read_metapaths(graph, config.model)
    cache_dir = Path(config.sgb.cache_dir).expanduser() if config.sgb.cache_dir else None
    limit_bytes = int(config.sgb.memory_limit_gib * 2**30) or None
    graphs = build_semantic_graphs(graph, metapaths or None, memory_limit_bytes=limit_bytes, cache_dir=cache_dir)
    return metapaths, graphs


def read_metapaths(graph: HeteroGraph, config: ModelConfig) -> tuple[Metapath, ...]:
    """The recipe's metapaths, or those derived from the schema; each from the target type to itself."""
    assert graph.target is not None
    if not config.metapaths:
        return default_metapaths(graph.schema, graph.target)
    metapaths = tuple(graph.schema.metapath(text) for text in config.metapaths)
    for metapath in metapaths:
        if (metapath.source, metapath.target) != (graph.target, graph.target):
            raise InputError(
                f"model.metapaths: {metapath.name!r} leads from {metapath.source!r} to {metapath.target!r};"
                f" HAN needs metapaths from {graph.target!r} to {graph.target!r}"
            )
    return tuple({metapath.name: metapath for metapath in metapaths}.values())


def place(
    graph: HeteroGraph,
    metapaths: tuple[Metapath, ...],
    host_graphs: Mapping[str, SemanticGraph],
    config: Config,
    *,
    read_s: float = 0.0,
    sgb_s: float = 0.0,
) -> Problem:
    """Chooses implementations and moves to the device what the model reads, nothing else."""
    assert graph.target is not None
    assert graph.labels is not None
    model = config.model
    choices = [choose_aggregation(config, name, host_graph) for name, host_graph in host_graphs.items()]
    spec = GraphSpec(
        num_nodes=dict(graph.num_nodes),
        feature_widths={node_type: matrix.shape[1] for node_type, matrix in graph.features.items()},
        target=graph.target,
        num_classes=graph.num_classes,
        relations={str(relation): relation for relation in graph.schema.relations if str(relation) in host_graphs},
        metapaths=tuple(metapath.name for metapath in metapaths),
        implementations={choice.subject: choice.implementation for choice in choices},
        sparse_implementation="segment",
    )
    structure: Any = nnx.eval_shape(lambda: MODELS[model.name](model, spec, rngs=nnx.Rngs(0)))
    features: dict[str, jax.Array | SparseFeatures] = {}
    for node_type in structure.embeddings.widths:
        if node_type in graph.features:
            features[node_type], choice = place_features(config, node_type, graph.features[node_type])
            choices += [choice] if choice else []
    used = _used_graphs(structure, host_graphs)
    sparse_choices = {choice.implementation for choice in choices if choice.op == "sparse_matmul"} - {"dense"}
    spec = dataclasses.replace(spec, sparse_implementation=next(iter(sparse_choices), "segment"))
    op = neighbor_attention if model.name in USES_ATTENTION else neighbor_mean
    graphs = {name: host_graphs[name].place(op.VIEWS[spec.implementations[name]]) for name in used}
    inputs = GraphInputs(features, graphs)
    field, rows = choose_rows(graph, host_graphs, config, structure)
    views = {name: op.VIEWS[implementation] for name, implementation in spec.implementations.items()}
    empty = np.zeros(0, np.int32)
    return Problem(
        graph=graph,
        spec=spec,
        inputs=inputs,
        step_inputs=inputs if field is None else place_field(field, graph, host_graphs, views, config),
        rows=rows,
        labels=jax.device_put(graph.labels),
        splits={split: jax.device_put(graph.splits.get(split, empty)) for split in SPLITS},
        metapaths=metapaths,
        choices=tuple(choice for choice in choices if choice.op == "sparse_matmul" or choice.subject in used),
        read_s=read_s,
        sgb_s=sgb_s,
    )


def choose_rows(
    graph: HeteroGraph, host_graphs: Mapping[str, SemanticGraph], config: Config, structure: Any
) -> tuple[ReceptiveField | None, tuple[str, str]]:
    """The field of the training nodes where a step is to compute no more, or None; `training.rows` and why."""
    named = config.training.rows
    plans = [layer.plan for layer in structure.layers if hasattr(layer, "plan")]
    if named == "all" or not plans:
        return None, ("all", "named by training.rows" if named == "all" else f"{config.model.name} computes all rows")
    assert graph.target is not None
    field = receptive_field(plans, host_graphs, graph.num_nodes, graph.target, graph.splits["train"])
    why = f"training nodes reach {field.share:.0%} of the layers' rows and edges"
    if named == "auto" and field.share >= NEEDED_BELOW:
        return None, ("all", why)
    return field, ("needed", why)


def place_field(
    field: ReceptiveField,
    graph: HeteroGraph,
    host_graphs: Mapping[str, SemanticGraph],
    views: Mapping[str, Sequence[str]],
    config: Config,
) -> FieldInputs:
    """The field's features and edges on the device."""
    features: dict[str, jax.Array | SparseFeatures] = {}
    row_of = {}
    for node_type, count in field.counts[-1].items():
        ids = field.ids[node_type][:count]
        if node_type in graph.features:
            features[node_type] = place_features(config, node_type, graph.features[node_type][ids], ids)[0]
        else:
            row_of[node_type] = np.full(graph.num_nodes[node_type], -1, np.int32)
            row_of[node_type][ids] = np.arange(count, dtype=np.int32)
    graphs = [field.graphs(hop, host_graphs) for hop in range(len(field.layers))]
    return FieldInputs(
        features=features,
        graphs=tuple({name: each.place(views[name]) for name, each in by_name.items()} for by_name in graphs),
        ids=jax.device_put(dict(field.ids)),
        row_of=jax.device_put(row_of),
        counts=tuple(FrozenCounts.of(counts) for counts in field.counts),
    )


def _used_graphs(structure: Any, host_graphs: Mapping[str, SemanticGraph]) -> list[str]:
    """Semantic graphs that some layer aggregates over; R-GCN's layers may leave relations out."""
    plans = [layer.plan for layer in structure.layers if hasattr(layer, "plan")]
    if not plans:
        return list(host_graphs)
    return [name for name in host_graphs if any(name in plan.relations for plan in plans)]


def choose_aggregation(config: Config, name: str, graph: SemanticGraph) -> Choice:
    """The implementation of neighbor aggregation on one semantic graph.

    Raises:
        InputError: the recipe names one that does not cover it.
    """
    model, kernels = config.model, config.kernels
    if model.name in USES_ATTENTION:
        if kernels.attention != "auto":
            _check_named("kernels.attention", kernels.attention, graph.num_targets * graph.num_sources, name, config)
            return Choice("neighbor_attention", name, kernels.attention, "named by kernels.attention")
        chosen = neighbor_attention.choose(graph, heads=model.heads, width=model.hidden // model.heads)
        return Choice("neighbor_attention", name, *chosen)
    if kernels.mean != "auto":
        # The product takes the adjacency as float32 beside the stored counts.
        _check_named("kernels.mean", kernels.mean, 5 * graph.num_targets * graph.num_sources, name, config)
        return Choice("neighbor_mean", name, kernels.mean, "named by kernels.mean")
    return Choice("neighbor_mean", name, *neighbor_mean.choose(graph, width=model.hidden))


def _check_named(key: str, implementation: str, dense_bytes: int, subject: str, config: Config) -> None:
    """Refuses a named implementation that cannot work here, before anything of its size is allocated."""
    if implementation == "native" and not native.available():
        raise InputError(f"{key} = 'native': {native.HOW_TO_GET_IT}")
    limit_bytes = int(config.sgb.memory_limit_gib * 2**30) or default_memory_limit_bytes()
    if implementation == "dense" and dense_bytes > limit_bytes:
        raise InputError(
            f"{key} = 'dense' needs {readable_bytes(dense_bytes)} for {subject!r}, over the limit of"
            f" {readable_bytes(limit_bytes)}; use 'auto', or raise sgb.memory_limit_gib"
        )


def place_features(
    config: Config, node_type: str, matrix: np.ndarray | sparse.csr_array, row_ids: np.ndarray | None = None
) -> tuple[jax.Array | SparseFeatures, Choice | None]:
    """A type's features on the device, and the implementation of their projection where they are sparse.

    `row_ids` are those of a part of the rows, for `SparseFeatures`.

    Raises:
        InputError: as `choose_aggregation`.
    """
    if isinstance(matrix, np.ndarray):
        return jax.device_put(matrix), None
    named = config.kernels.projection
    _check_named("kernels.projection", named, 4 * matrix.shape[0] * matrix.shape[1], node_type, config)
    if named == "dense":
        choice = Choice("sparse_matmul", node_type, "dense", "named by kernels.projection")
        return jax.device_put(matrix.toarray()), choice
    features = SparseFeatures.from_scipy(matrix, row_ids)
    if named == "auto":
        implementation, reason = sparse_matmul.choose(features, width=config.model.hidden)
    else:
        implementation, reason = named, "named by kernels.projection"
    return features.place(), Choice("sparse_matmul", node_type, implementation, reason)
