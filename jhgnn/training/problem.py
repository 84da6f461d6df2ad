"""From a recipe to a `Problem`: the graph as read, the task, and the model's class.

What the recipe's sections mean for them is here too: which semantic graphs are built, which relations are stacked.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from jhgnn import models
from jhgnn.config import Config, ModelConfig
from jhgnn.config.suggested import with_bases
from jhgnn.data import load
from jhgnn.data.tables import Fitted
from jhgnn.distributed.topology import read_topology
from jhgnn.errors import InputError
from jhgnn.graph.edge_features import EdgeFeatures, mean_features, split_senders
from jhgnn.graph.erased import NAME as ERASED
from jhgnn.graph.erased import erase_types
from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.schema import Metapath, Relation, Schema
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_semantic_graphs, default_metapaths
from jhgnn.nn.model import Model
from jhgnn.nn.no_layers import NoLayers
from jhgnn.ops.registry import OPS, check_named
from jhgnn.runtime.memory_limit import default_memory_limit_bytes, readable_bytes
from jhgnn.runtime.own_code import imported
from jhgnn.tasks.class_counts import Loss, Metric
from jhgnn.tasks.link_prediction import LinkPrediction
from jhgnn.tasks.node_classification import NodeClassification
from jhgnn.tasks.task import Task
from jhgnn.training.alike import agree_on_data
from jhgnn.training.checks import check

TaskFactory: TypeAlias = Callable[[HeteroGraph], Task]
"""A task of one's own from a graph: a subclass of `Task` whose constructor takes one, or a function."""


class Choice(NamedTuple):
    """Which implementation an op uses on one semantic graph or feature matrix, and why."""

    op: str
    subject: str
    implementation: str
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """What is trained, however it is run.

    Attributes:
        config: the recipe.
        task: what is learnt; it holds the graph that messages pass over.
        model: the class of the model.
        read_s: seconds of reading.
    """

    config: Config
    task: Task
    model: type[Model]
    read_s: float = 0.0

    @property
    def graph(self) -> HeteroGraph:
        return self.task.graph


def read_problem(config: Config, *, progress: bool = True) -> Problem:
    """Reads the data that a recipe names, or the topology of its parts, and finds its task and model.

    Raises:
        InputError: the recipe's settings do not go together, the data is broken or another than that of the processes
            that this one has joined, or the task cannot be learnt from it.
    """
    model = models.find(config.model.name)
    check(config, model)
    start = time.perf_counter()
    if config.distributed.read == "parts":
        graph = read_topology(config.distributed.parts, target=config.data.target or None)
    else:
        graph = read_graph(config, progress=progress)
    agree_on_data(graph, config)
    return pose(graph, config, model=model, read_s=time.perf_counter() - start)


def pose(
    graph: HeteroGraph,
    config: Config,
    *,
    model: type[Model] | None = None,
    task: TaskFactory | None = None,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    read_s: float = 0.0,
) -> Problem:
    """A problem from a graph in memory. A model, task, loss or metrics given here replace those of the recipe.

    Args:
        graph: as read; empty node types and relations are left out here.
        config: the recipe.
        model: a class of one's own.
        task: makes a task from the graph: a class, or a function. The graph comes with the validation split, one-hot
            inputs and reverse relations as the recipe's `data` asks for them.
        loss, metrics: as `jhgnn.fit` takes them.
        read_s: seconds of reading.

    Raises:
        InputError: as `read_problem`.
    """
    model = models.find(config.model.name) if model is None else model
    check(config, model)
    graph = _without_empty(graph, config)
    config = with_bases(config, sum(graph.num_nodes.values()))
    if config.task.name == "link_prediction" and task is None:
        posed: Task = _link_task(graph, config)
    elif config.task.name == "node_classification" and task is None:
        posed = _node_task(graph, config)
    else:
        posed = _own_task(graph, config, task)
    if loss is None and config.training.loss:
        loss = imported(config.training.loss, "training.loss")
    if loss is not None or metrics:
        posed.customize(loss, metrics or {})
    without_layers = config.task.name == "link_prediction" and config.task.encoder == "none"
    return Problem(config, posed, NoLayers if without_layers else model, read_s)


def read_graph(config: Config, *, progress: bool = True, like: Fitted | None = None) -> HeteroGraph:
    """Reads the recipe's data, whatever the task; `like` as `jhgnn.data.load` takes it."""
    data = config.data
    from_preset = not data.path
    if from_preset and not data.preset:
        raise InputError(f"data.path is empty: give the folder of the {data.format} files with --data.path")
    return load(
        "synthetic" if from_preset else data.format,
        data.preset if from_preset else data.path,
        target=data.target or None,
        scale=data.scale,
        seed=data.seed,
        progress=progress,
        like=like,
    )


def _without_empty(graph: HeteroGraph, config: Config) -> HeteroGraph:
    """Leaves out node types and relations that hold nothing, so that no model meets one.

    Raises:
        InputError: the recipe names a relation that has no edges.
    """
    bare = graph.without_empty()
    if bare is graph:
        return graph
    for key, texts in (("task.relations", config.task.relations), ("model.metapaths", config.model.metapaths)):
        for text in texts:
            gone = [each for each in _named(graph.schema, text) if each not in bare.edges]
            if gone and not _named(bare.schema, text):
                raise InputError(f"{key}: {text!r} needs {str(gone[0])!r}, which has no edges in {graph.name!r}")
    return bare


def _named(schema: Schema, text: str) -> Sequence[Relation]:
    """The relations of a metapath; of one that does not join, none."""
    try:
        return schema.metapath(text).relations
    except InputError:
        return ()


def _with_inputs(graph: HeteroGraph, config: Config) -> HeteroGraph:
    if not config.data.one_hot:
        return graph
    identities = {t: sparse.eye_array(n, dtype=np.float32, format="csr") for t, n in graph.num_nodes.items()}
    return dataclasses.replace(graph, features=identities | dict(graph.features))


def _node_task(graph: HeteroGraph, config: Config) -> NodeClassification:
    data = config.data
    where = f"data {data.path!r}" if data.path else f"data {data.preset or graph.name}"
    if graph.target is None or graph.labels is None:
        raise InputError(
            f"{where}: has no labels, and node classification needs some; name data.target, add them, or predict links"
            " with task.name"
        )
    if len(graph.splits.get("train", ())) == 0:
        raise InputError(f"{where}: the train split of {graph.target!r} is empty; training needs labelled nodes")
    if graph.num_classes < 2 and not graph.multi_label:
        raise InputError(f"{where}: {graph.num_classes} class of {graph.target!r}; classification needs two or more")
    training = config.training
    return NodeClassification(
        _prepared(graph, config), label_smoothing=training.label_smoothing, class_weights=training.class_weights
    )


def _own_task(graph: HeteroGraph, config: Config, factory: TaskFactory | None) -> Task:
    name = config.task.name
    factory = imported(name, "task.name") if factory is None else factory
    found = factory(_prepared(graph, config)) if callable(factory) else factory
    if not isinstance(found, Task):
        raise InputError(f"task.name = {name!r} makes no jhgnn.Task from a graph, but {type(found).__name__}")
    return found


def _prepared(graph: HeteroGraph, config: Config) -> HeteroGraph:
    """The graph as the recipe's `data` wants it for anything but links, which leave some edges out first."""
    data = config.data
    if not data.validation and "val" in graph.splits:
        splits = {split: ids for split, ids in graph.splits.items() if split != "val"}
        splits["train"] = np.sort(np.concatenate([graph.splits["train"], graph.splits["val"]]))
        graph = dataclasses.replace(graph, splits=splits)
    graph = _with_inputs(graph, config)
    return graph.with_reverse_relations() if data.reverse_relations else graph


def _link_task(graph: HeteroGraph, config: Config) -> LinkPrediction:
    return LinkPrediction(
        _with_inputs(graph, config),
        config.task,
        seed=config.data.seed,
        reverse_relations=config.data.reverse_relations,
    )


def stackable(problem: Problem) -> list[dict[Relation, EdgeSet]]:
    """Relations that share both types and are aggregated as one: of links, where the model shares bases.

    Only those from types without features, whose rows are as narrow as the model.
    """
    config, graph = problem.config, problem.graph
    if not isinstance(problem.task, LinkPrediction) or not (problem.model.decomposes and config.model.bases):
        return []
    found: dict[tuple[str, str], dict[Relation, EdgeSet]] = {}
    for relation, edges in graph.edges.items():
        if relation.source not in graph.features:
            found.setdefault((relation.source, relation.target), {})[relation] = edges
    return list(found.values())


def summing(problem: Problem) -> str:
    """The implementation of weighted sums over whole graphs.

    Raises:
        InputError: the recipe names one that sums no weights.
    """
    op, named = OPS["neighbor_sum"], problem.config.kernels.mean
    if named == "auto":
        return op.choose(SemanticGraph)[0]
    if named not in (known := op.names(SemanticGraph)):
        raise InputError(f"kernels.mean = {named!r}: weighted messages are summed by {' or '.join(map(repr, known))}")
    check_named("mean", named, SemanticGraph)
    return named


def build_graphs(problem: Problem) -> tuple[tuple[Metapath, ...], dict[str, SemanticGraph]]:
    """Semantic graph build, on the host: the metapaths, all relations, or the graph with its types erased."""
    graph, config = problem.graph, problem.config
    if problem.model is NoLayers:
        return (), {}
    if problem.model.over == "erased":
        return (), {ERASED: erase_types(graph)}
    if isinstance(problem.task, LinkPrediction):  # of a graph of this split's own, not worth a cache
        stacked = {relation for own in stackable(problem) for relation in own}
        singles = {each: edges for each, edges in graph.edges.items() if each not in stacked}
        return (), {
            str(each): SemanticGraph.from_incoming(edges.indptr, edges.senders, graph.num_nodes[each.source], str(each))
            for each, edges in singles.items()
        }
    metapaths = read_metapaths(graph, config.model) if problem.model.over == "metapaths" else ()
    cache_dir = Path(config.sgb.cache_dir).expanduser() if config.sgb.cache_dir else None
    limit_bytes = int(config.sgb.memory_limit_gib * 2**30) or None
    graphs = build_semantic_graphs(graph, metapaths or None, memory_limit_bytes=limit_bytes, cache_dir=cache_dir)
    return metapaths, graphs


def with_edge_features(
    problem: Problem, graphs: Mapping[str, SemanticGraph]
) -> tuple[Mapping[str, SemanticGraph], dict[str, EdgeFeatures]]:
    """The graphs as the model reads them with the features of their edges, on the host; without `edge_features` none.

    Attention reads graphs whose senders are split (`jhgnn.graph.edge_features`), and means stand beside the graphs.

    Raises:
        InputError: the model is to read edge features, and no relation has any.
    """
    changed, found = dict(graphs), {}
    for name, edges in featured_edges(problem).items():
        if problem.model.attends():
            changed[name], found[name] = split_senders(edges, name)
        else:
            found[name] = mean_features(edges)
    return changed, found


def featured_edges(problem: Problem) -> dict[str, EdgeSet]:
    """The relations whose edges have features that the model reads; without `edge_features` none.

    Raises:
        InputError: the model is to read edge features, and no relation has any.
    """
    graph = problem.graph
    if not problem.config.model.edge_features:
        return {}
    found = {str(relation): edges for relation, edges in graph.edges.items() if edges.features is not None}
    if not found:
        raise InputError(
            f"model.edge_features: no relation of {graph.name!r} has features of edges; add features to an edge table,"
            " or leave it out"
        )
    return found


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


def feature_widths(graph: HeteroGraph) -> Mapping[str, int]:
    """Columns of each type that has features."""
    return {node_type: matrix.shape[1] for node_type, matrix in graph.features.items()}


def relations_of(problem: Problem, names: Collection[str]) -> dict[str, Relation]:
    """The relation that each of these semantic graphs holds, for models that do not aggregate over metapaths."""
    if problem.model.over == "erased":
        return {ERASED: Relation(ERASED, ERASED, ERASED)}
    return {str(each): each for each in problem.graph.schema.relations if str(each) in names}


def check_kernel(problem: Problem, key: str, takes: type, dense_bytes: int, subject: str) -> None:
    """Refuses what `kernels.KEY` names if it cannot work here, before anything is allocated.

    `dense_bytes` is what a dense adjacency matrix of the `subject` takes.

    Raises:
        InputError: the implementation does not run here, or `dense` needs more than the memory limit.
    """
    config = problem.config
    implementation = getattr(config.kernels, key)
    check_named(key, implementation, takes)
    limit_bytes = int(config.sgb.memory_limit_gib * 2**30) or default_memory_limit_bytes()
    if implementation == "dense" and dense_bytes > limit_bytes:
        raise InputError(
            f"kernels.{key} = 'dense' needs {readable_bytes(dense_bytes)} for {subject!r}, over the limit of"
            f" {readable_bytes(limit_bytes)}; use 'auto', or raise sgb.memory_limit_gib"
        )
