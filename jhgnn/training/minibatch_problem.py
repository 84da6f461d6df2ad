"""From a recipe to what mini-batch training samples from: the graph or its metapath graphs, the plan, the features."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from scipy import sparse

from jhgnn import fan_out_text, native
from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, EdgeSet, HeteroGraph
from jhgnn.graph.schema import Metapath, Relation, Schema
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_rows import SparseRows, padded_bytes
from jhgnn.models import MODELS
from jhgnn.models.inputs import GraphSpec
from jhgnn.sampling.plan import SamplingPlan, fan_out_plan, walk_plan
from jhgnn.sampling.side import Side, choose_side
from jhgnn.training.problem import USES_ATTENTION, Choice, build_graphs, read, read_metapaths

HostFeatures = np.ndarray | SparseRows
FEATURE_SHARE = 0.25
"""Of device memory that features may take where `auto` decides; edges, parameters and activations need the rest."""


@dataclasses.dataclass(frozen=True, eq=False)
class MinibatchProblem:
    """What a run samples from; shared by all its seeds.

    Attributes:
        graph: on the host.
        spec: what the model is built for.
        sampled: the graph that the plan draws from: `graph`, or that of its metapaths.
        plan: what is drawn at each hop.
        features: of the types that the model reads, on the host.
        side: where to sample, and why.
        features_on_device: whether the compiled step gathers features, and why.
        compressed: whether the host compresses sampled tables in both directions, for the kernels of the CPU.
        metapaths, choices, read_s, sgb_s: as in `Problem`.
    """

    graph: HeteroGraph
    spec: GraphSpec
    sampled: HeteroGraph
    plan: SamplingPlan
    features: Mapping[str, HostFeatures]
    side: tuple[Side, str]
    features_on_device: tuple[bool, str]
    compressed: bool
    metapaths: tuple[Metapath, ...]
    choices: tuple[Choice, ...]
    read_s: float
    sgb_s: float

    @property
    def splits(self) -> Mapping[str, np.ndarray]:
        empty = np.zeros(0, np.int32)
        return {split: self.graph.splits.get(split, empty) for split in SPLITS}

    def metapath_edges(self) -> dict[str, int]:
        """Edges of each metapath's semantic graph; none where they are walked."""
        if self.sampled is self.graph:
            return {}
        return {relation.name: edges.num_edges for relation, edges in self.sampled.edges.items()}

    def split_size(self, split: str) -> int:
        return len(self.splits[split])


def prepare_minibatches(config: Config, *, progress: bool = True) -> MinibatchProblem:
    """Reads the data, builds metapath graphs where neighbours are drawn from them, and plans the draws.

    Raises:
        InputError: as `jhgnn.training.problem.prepare`; a fan-out that does not fit the graph or the layers; a kernel
            named that samples do not use.
    """
    start = time.perf_counter()
    graph = read(config, progress=progress)
    return plan_minibatches(graph, config, read_s=time.perf_counter() - start)


def plan_minibatches(graph: HeteroGraph, config: Config, *, read_s: float = 0.0) -> MinibatchProblem:
    """The same from a graph that is read already."""
    _check_kernels(config)
    assert graph.target is not None
    start = time.perf_counter()
    metapaths: tuple[Metapath, ...] = ()
    sampled, relations = graph, {str(relation): relation for relation in graph.schema.relations}
    if config.model.name == "han":
        metapaths, relations = read_metapaths(graph, config.model), {}
        if not config.sampling.walks:
            metapaths, host_graphs = build_graphs(graph, config)
            sampled = metapath_graph(graph, host_graphs)
    sgb_s = time.perf_counter() - start
    names = [*relations, *(metapath.name for metapath in metapaths)]
    spec = GraphSpec(
        num_nodes=dict(graph.num_nodes),
        feature_widths={node_type: matrix.shape[1] for node_type, matrix in graph.features.items()},
        target=graph.target,
        num_classes=graph.num_classes,
        relations=relations,
        metapaths=tuple(metapath.name for metapath in metapaths),
        implementations=dict.fromkeys(names, "fanout"),
        sparse_implementation="segment",
    )
    structure: Any = nnx.eval_shape(lambda: MODELS[config.model.name](config.model, spec, rngs=nnx.Rngs(0)))
    plan = make_plan(sampled, metapaths, config, len(structure.layers))
    features, choices = {}, []
    for node_type in structure.embeddings.widths:
        if node_type in graph.features:
            features[node_type], choice = _host_features(config, node_type, graph.features[node_type])
            choices += [choice] if choice else []
    op = "neighbor_attention" if config.model.name in USES_ATTENTION else "neighbor_mean"
    drawn = dict.fromkeys(draw.name for draw in plan.draws if any(draw.widths))
    side = _choose_side(config, sampled, plan)
    compressed, implementation, reason = _choose_aggregation(config, side[0])
    choices += [Choice(op, name, implementation, reason) for name in drawn]
    return MinibatchProblem(
        graph=graph,
        spec=spec,
        sampled=sampled,
        plan=plan,
        features=features,
        side=side,
        features_on_device=_choose_feature_side(config, features, side[0]),
        compressed=compressed,
        metapaths=metapaths,
        choices=tuple(choices),
        read_s=read_s,
        sgb_s=sgb_s,
    )


def metapath_graph(graph: HeteroGraph, host_graphs: Mapping[str, SemanticGraph]) -> HeteroGraph:
    """The target type alone, with one relation a metapath, to draw neighbours from."""
    assert graph.target is not None
    edges = {
        Relation(graph.target, name, graph.target): EdgeSet(
            np.asarray(each.incoming.indptr, np.int64), np.asarray(each.incoming.indices)
        )
        for name, each in host_graphs.items()
    }
    return dataclasses.replace(
        graph,
        schema=Schema((graph.target,), tuple(edges)),
        num_nodes={graph.target: graph.num_nodes[graph.target]},
        features={},
        edges=edges,
    )


def make_plan(sampled: HeteroGraph, metapaths: tuple[Metapath, ...], config: Config, num_layers: int) -> SamplingPlan:
    """The draws of the recipe, one hop a layer; those of HAN have the metapaths' names."""
    fan_out = fan_out_text.parse(config.sampling.fan_out, "sampling.fan_out")
    if config.sampling.walks:
        if not isinstance(fan_out, int) or fan_out < 1:
            raise InputError(
                f"sampling.fan_out = {config.sampling.fan_out!r} with sampling.walks: give one number, the neighbours"
                " to keep of each metapath's walks"
            )
        return walk_plan(sampled, metapaths, config.sampling.walks, fan_out, num_layers)
    if isinstance(fan_out, list) and len(fan_out) != num_layers:
        raise InputError(
            f"sampling.fan_out = {config.sampling.fan_out!r} has {len(fan_out)} numbers, but {config.model.name} has"
            f" {num_layers} layers; give one number a layer, from the targets outwards, or set model.layers"
        )
    plan = fan_out_plan(sampled, fan_out, num_layers)
    if not metapaths:
        return plan
    return dataclasses.replace(
        plan, draws=tuple(dataclasses.replace(draw, name=draw.steps[0].name) for draw in plan.draws)
    )


def _check_kernels(config: Config) -> None:
    """Refuses kernels that a sampled batch cannot run, and those of ops that the model does not have."""
    used = "attention" if config.model.name in USES_ATTENTION else "mean"
    for key in ("attention", "mean"):
        named = getattr(config.kernels, key)
        if named != "auto" and key != used:
            raise InputError(
                f"kernels.{key} = {named!r}: {config.model.name!r} aggregates by kernels.{used}; use 'auto'"
            )
        if named not in ("auto", "native"):
            raise InputError(
                f"kernels.{key} = {named!r} works on the whole graph; sampled batches have 'native' on the CPU and one"
                " implementation elsewhere: use 'auto' or 'native'"
            )


def _choose_aggregation(config: Config, side: Side) -> tuple[bool, str, str]:
    """Whether sampled tables are compressed for the CPU's kernels, the implementation's name, and why."""
    attends = config.model.name in USES_ATTENTION
    named = config.kernels.attention if attends else config.kernels.mean
    obstacle = ""
    if side != "host" or jax.default_backend() != "cpu":
        obstacle = "the kernels of the CPU run on blocks that the host samples for it"
    elif not native.available():
        obstacle = native.HOW_TO_GET_IT
    if obstacle and named == "native":
        raise InputError(f"kernels.{'attention' if attends else 'mean'} = 'native': {obstacle}; use 'auto'")
    if obstacle:
        return False, "fanout", "sampled neighbours"
    return True, "native", "sampled neighbours, compressed by the host for the kernels of the CPU"


def _host_features(
    config: Config, node_type: str, matrix: np.ndarray | sparse.csr_array
) -> tuple[HostFeatures, Choice | None]:
    if isinstance(matrix, np.ndarray):
        return np.ascontiguousarray(matrix, np.float32), None
    dense_bytes = 4 * matrix.shape[0] * matrix.shape[1]
    if config.kernels.projection == "dense":
        return matrix.toarray().astype(np.float32), Choice(
            "sparse_matmul", node_type, "dense", "named by kernels.projection"
        )
    if config.kernels.projection != "auto":
        raise InputError(
            f"kernels.projection = {config.kernels.projection!r} works on the whole matrix; sampled batches gather its"
            " rows: use 'auto' or 'dense'"
        )
    if padded_bytes(matrix) >= dense_bytes:
        choice = Choice("sparse_matmul", node_type, "dense", "its longest row would make padded rows as large")
        return matrix.toarray().astype(np.float32), choice
    return SparseRows.from_scipy(matrix), Choice("sparse_matmul", node_type, "rows", "padded rows of sampled vertices")


def _memory_bytes() -> int | None:
    statistics = jax.local_devices()[0].memory_stats()
    return (statistics or {}).get("bytes_limit")


def _choose_side(config: Config, sampled: HeteroGraph, plan: SamplingPlan) -> tuple[Side, str]:
    if config.sampling.side == "auto":
        if config.sampling.features == "host":
            return "host", "sampling.features are gathered on the host"
        return choose_side(sampled, plan, jax.default_backend(), _memory_bytes())
    return config.sampling.side, "named by sampling.side"


def _choose_feature_side(config: Config, features: Mapping[str, HostFeatures], side: Side) -> tuple[bool, str]:
    if config.sampling.features != "auto":
        return config.sampling.features == "device", "named by sampling.features"
    if side == "device":
        return True, "the device samples"
    if jax.default_backend() == "cpu":
        return False, "host threads gather while the CPU trains"
    need, have = sum(leaf.nbytes for leaf in jax.tree.leaves(dict(features))), _memory_bytes()
    if have is None or need > FEATURE_SHARE * have:
        return False, f"{need / 2**30:.2f} GiB are over {FEATURE_SHARE:.0%} of the device's memory, or it is not known"
    return True, f"{need / 2**30:.2f} GiB are within {FEATURE_SHARE:.0%} of the device's memory"
