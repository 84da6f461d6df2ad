"""Predictor: a trained node classifier on another graph of its schema, or on some nodes of its own."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, get_args

import jax
import numpy as np
from flax import nnx

from jhgnn.config import Config
from jhgnn.config.options import KernelsConfig
from jhgnn.config.suggested import with_bases
from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import Features, HeteroGraph
from jhgnn.graph.sparse_rows import SparseRows, padded_bytes
from jhgnn.inference.aligned import aligned
from jhgnn.inference.needed_rows import NeededRows
from jhgnn.inference.new_rows import LearntRows, NewNodes, learnt_rows
from jhgnn.inference.on_fields import OnFields, for_fields, in_edges, sums_over_targets
from jhgnn.inference.trained_on import TrainedOn
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.model import Model
from jhgnn.ops.registry import OPS
from jhgnn.stores.host import HostRows
from jhgnn.tasks.node_classification import NodeClassification, predictions_csv
from jhgnn.training.checks import takes_fields
from jhgnn.training.execution import Execution, builder_of
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import Problem
from jhgnn.training.state import Builder, Params, abstract_params, structure_of
from jhgnn.training.whole_graph import WholeGraph

IMPLEMENTATION = "segment"
"""Of neighbor aggregation where a field alone is computed: its graphs are new for each question."""


class Predictor:
    """What a run's model says of the target nodes of a graph.

    All nodes are predicted as the run itself would predict them there. Some are predicted from their receptive field
    alone, over all neighbours, where the model's rows depend on nothing else, as those of R-GCN and R-GAT. HAN's
    weights of metapaths depend on all target nodes, so that all are computed once and looked up; so are those of models
    of the erased graph.

    Attributes:
        graph: as the model reads it.
        task: node classification on it.
    """

    def __init__(
        self,
        config: Config,
        model: type[Model],
        trained: TrainedOn,
        graph: HeteroGraph,
        load: Callable[[Params], Params],
        *,
        new_nodes: NewNodes = "refuse",
    ) -> None:
        """
        Args:
            config: the run's recipe, as `without_updates` leaves it.
            model: the class of the model.
            trained: what it was trained on.
            graph: as read, or as it was trained on.
            load: from shapes and dtypes of the parameters as trained to the parameters.
            new_nodes: the rule for new nodes of types without features; see `learnt_rows`.

        Raises:
            InputError: the task is no node classification, the rule is unknown or does not go with
                `sampling.temporal`, or as `aligned`.
        """
        if config.task.name != "node_classification":
            raise InputError(
                f"task.name = {config.task.name!r}: another graph, or some nodes alone, can be predicted by"
                " 'node_classification' only"
            )
        if new_nodes not in get_args(NewNodes):
            raise InputError(f"new_nodes is {new_nodes!r}; need one of {', '.join(get_args(NewNodes))}")
        if config.sampling.temporal != "none" and new_nodes == "mean":
            raise InputError(
                "new_nodes = 'mean' takes neighbours of all times, and sampling.temporal ="
                f" {config.sampling.temporal!r} those of each node's own; use 'refuse'"
            )
        config = with_bases(config, sum(trained.num_nodes.values()))
        self._config, self._model, self._trained, self._load = config, model, trained, load
        reads_edges = config.model.edge_features
        self.graph = aligned(graph, trained, one_hot=config.data.one_hot, edge_features=reads_edges)
        self.task = NodeClassification(self.graph)
        self._new_nodes = new_nodes

    @property
    def target(self) -> str:
        """The node type that is classified."""
        return self._trained.target

    def ids(self, keys: Sequence[str] | Sequence[int] | np.ndarray) -> np.ndarray:
        """Numbers of target nodes by their keys, or by their numbers where they have none, int32 `[num_keys]`.

        Raises:
            InputError: a key is unknown.
        """
        return self.graph.node_ids(self.target, keys)

    def probabilities(self, ids: np.ndarray | None = None) -> np.ndarray:
        """Of each class, float32 `[num_ids, num_classes]`; None: of all target nodes.

        Raises:
            InputError: a node that is read has no row; see `LearntRows.check`.
        """
        return self._classify(self.rows(ids))

    def rows(self, ids: np.ndarray | None = None) -> np.ndarray:
        """What the classifier reads, float32 `[num_ids, hidden]`; None: of all target nodes."""
        if ids is None:
            return self._all_rows
        if not self.reads_fields:
            return self._all_rows[ids]
        own, places = np.unique(np.asarray(ids, np.int32), return_inverse=True)
        if not len(own):
            return np.zeros((0, self._config.model.hidden), np.float32)
        field = self._needed.field(own)
        for node_type, read in field.hops[0].items():
            self._learnt.check(self.graph, node_type, read)
        return self._needed.rows(field)[places]

    def files(self, ids: np.ndarray | None = None) -> dict[str, np.ndarray | str]:
        """What `jhgnn.predict` writes, by name of the file; with `ids` a row for each of them, in their order."""
        rows = self.rows(ids)
        probabilities = self._classify(rows)
        return {
            "probabilities.npy": probabilities,
            "embeddings.npy": rows,
            "predictions.csv": predictions_csv(self.graph, probabilities, ids),
        }

    @property
    def reads_fields(self) -> bool:
        """Whether some nodes are predicted from their receptive field alone."""
        timeless = self._config.sampling.temporal == "none"
        return takes_fields(self._model) and timeless and not self._config.model.edge_features

    def prepare(self) -> None:
        """Reads and computes now what every later question needs."""
        _ = self._needed if self.reads_fields else self._all_rows

    def _classify(self, rows: np.ndarray) -> np.ndarray:
        # Sizes are rounded up, so that a resident process compiles few programs.
        size = 1 << max(0, (len(rows) - 1).bit_length())
        padded = np.concatenate([rows, np.zeros((size - len(rows), rows.shape[1]), rows.dtype)])
        return np.asarray(self._classifier(self._dense, padded))[: len(rows)]

    @functools.cached_property
    def _classifier(self) -> Any:
        activation = jax.nn.sigmoid if self.graph.multi_label else jax.nn.softmax

        def classify(params: Params, rows: jax.Array) -> jax.Array:
            return activation(nnx.merge(self._structure, params).classifier(rows))

        return jax.jit(classify)

    @functools.cached_property
    def _builder(self) -> Builder:
        """The model as it was trained, by sizes; over its receptive field where it has one."""
        config = self._config.model
        if not self.reads_fields:
            return self._execution.builder()
        return builder_of(self._model, self.task, config, self._field_spec)

    @property
    def _field_spec(self) -> GraphSpec:
        """What a model over relations is built for where it reads fields."""
        trained = self._trained
        relations = {str(relation): relation for relation in trained.relations}
        return GraphSpec(
            num_nodes=dict(trained.num_nodes),
            feature_widths=dict(trained.widths),
            targets=(trained.target,),
            relations=relations,
            metapaths=(),
            implementations=dict.fromkeys(relations, IMPLEMENTATION),
            sparse_implementation=OPS["sparse_matmul"].choose(SparseRows)[0],
        )

    @functools.cached_property
    def _structure(self) -> nnx.GraphDef:
        return structure_of(self._builder)

    @functools.cached_property
    def _params(self) -> Params:
        """As trained."""
        abstract = abstract_params(self._builder)
        tables = {
            name: jax.ShapeDtypeStruct((self._trained.num_nodes[name], leaf.shape[1]), leaf.dtype)
            for name, leaf in tables_of(abstract).items()
        }
        return self._load(with_tables(abstract, tables))

    @functools.cached_property
    def _dense(self) -> Params:
        """The parameters without the tables' rows."""
        tables = {name: np.zeros((0, table.shape[1]), np.float32) for name, table in tables_of(self._params).items()}
        return jax.device_put(with_tables(self._params, tables))

    @functools.cached_property
    def _learnt(self) -> LearntRows:
        tables = {name: np.asarray(table) for name, table in tables_of(self._params).items()}
        return learnt_rows(self.graph, self._trained, tables, self._new_nodes)

    @functools.cached_property
    def _inputs(self) -> HostRows:
        """Rows of every type that the first layer reads, features or learnt."""
        model: Any = nnx.merge(self._structure, self._dense)
        tables: dict[str, Any] = dict(self._learnt.tables)
        for node_type in model.embeddings.widths:
            if node_type in self.graph.features:
                tables[node_type] = _table(self.graph.features[node_type])
        return HostRows(tables)

    @property
    def _edges(self) -> dict[str, EdgeSet]:
        return {str(relation): own for relation, own in self.graph.edges.items()}

    @functools.cached_property
    def _needed(self) -> NeededRows:
        return NeededRows(
            self._structure, self._dense, self._edges, self._inputs, self.target, self._config.model.hidden
        )

    def on_fields(self) -> OnFields:
        """The model as a function of a receptive field alone, in operations of XLA, for gradients of everything.

        Where its fusion depends on all targets, as that of HAN, their sums are computed once, over the whole graph.

        Raises:
            InputError: the model erases types, or sees the neighbours of each node's own time.
        """
        if self._config.sampling.temporal != "none":
            raise InputError(
                f"sampling.temporal = {self._config.sampling.temporal!r}: each node sees the neighbours of its own"
                " time, which a receptive field does not tell apart; use predict, which neither explains nor exports"
            )
        if self._model.over == "erased":
            raise InputError(
                f"model.name = {self._config.model.name!r} passes messages over one graph with its types erased; models"
                " over relations or metapaths can be shown on a receptive field"
            )
        if self._config.model.edge_features:
            raise InputError(
                "model.edge_features: a prediction that rests on features of edges cannot be shown on a receptive field"
                " yet; train without them for explanations"
            )
        if self.reads_fields:
            build = builder_of(self._model, self.task, self._config.model, for_fields(self._field_spec))
            return OnFields(structure_of(build), self._dense, self._edges, self._inputs, self._learnt)
        self._learnt.check_all(self.graph)
        whole = self._execution
        if whole.config.sampling.batch_size:
            config = self._config
            config = dataclasses.replace(
                config,
                sampling=dataclasses.replace(config.sampling, batch_size=0),
                training=dataclasses.replace(config.training, rows="all"),
                kernels=KernelsConfig(),
            )
            whole = execution_of(Problem(config, self.task, self._model))
        assert isinstance(whole, WholeGraph)
        build = builder_of(self._model, self.task, self._config.model, for_fields(whole.spec))
        params = jax.device_put(with_tables(self._params, self._learnt.tables))
        sums = sums_over_targets(whole, params)
        edges = {name: in_edges(graph) for name, graph in whole.inputs.graphs.items()}
        return OnFields(structure_of(build), self._dense, edges, self._inputs, self._learnt, sums)

    @functools.cached_property
    def _execution(self) -> Execution:
        return execution_of(Problem(self._config, self.task, self._model))

    @functools.cached_property
    def _all_rows(self) -> np.ndarray:
        learnt, graph = self._learnt, self.graph
        learnt.check_all(graph)
        has_empty = not all(graph.num_nodes.values()) or not all(own.num_edges for own in graph.edges.values())
        if self.reads_fields and has_empty:  # whole graphs are built of relations that have edges
            return self._needed.rows(self._needed.field(np.arange(graph.num_nodes[self.target], dtype=np.int32)))
        params = jax.device_put(with_tables(self._params, learnt.tables))
        rows = self._execution.rows(params, self._config.run.seed)
        return np.asarray(rows[self.target], np.float32)


def _table(matrix: Features) -> Any:
    """A feature matrix as the host gathers its rows; a dense one in a file stays there."""
    if isinstance(matrix, np.ndarray):
        return np.ascontiguousarray(matrix, np.float32)
    if padded_bytes(matrix) >= 4 * matrix.shape[0] * matrix.shape[1]:
        return matrix.toarray().astype(np.float32)
    return SparseRows.from_scipy(matrix)
