"""Training over the whole graph: every update's messages pass over all of it, or over its examples' receptive field."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from scipy import sparse

from jhgnn.graph.hetero_graph import EdgeSet
from jhgnn.graph.packed import PackedGraphs
from jhgnn.graph.receptive_field import ReceptiveField, receptive_field
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Metapath, Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.stacked import StackedRelations, stack_relations
from jhgnn.nn.inputs import FieldInputs, GraphInputs, GraphSpec, ModelInputs
from jhgnn.nn.recompute import recomputing, without_gradient
from jhgnn.ops.registry import DENSIFIED, OPS
from jhgnn.runtime.platform import GPUS, target_platform
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.tasks.link_edges import ShownLinks, TargetEdges, edge_weights, shown_links
from jhgnn.tasks.link_prediction import LinkPrediction
from jhgnn.tasks.task import Task
from jhgnn.training.call_arguments import JoinedIndices, JoinedState
from jhgnn.training.checks import takes_fields
from jhgnn.training.execution import Execution, num_bytes
from jhgnn.training.mesh import DeviceMesh
from jhgnn.training.packed_graphs import Packing, choose_packing, of_rows, place_field, place_whole, sparse_matrices
from jhgnn.training.problem import (
    Choice,
    Problem,
    check_kernel,
    feature_widths,
    relations_of,
    stackable,
    summing,
    with_edge_features,
)
from jhgnn.training.programs import lower_ahead
from jhgnn.training.remat import check_supported
from jhgnn.training.state import Params, TrainState
from jhgnn.training.update import FullBatchReader, Read, UpdateProgram, UpdateReport, read_from_tables
from jhgnn.training.whole_graph_programs import WholeGraphPrograms

NEEDED_BELOW = 0.8
"""Share of the whole graph's edges and rows below which `auto` trains on the receptive field."""


class Resident(NamedTuple):
    """What a step reads beside the state and the examples of a batch; on the device."""

    inputs: GraphInputs | FieldInputs
    excluded: Mapping[str, TargetEdges]
    """By graph or stack, which links its edges show; empty where no edges are left out."""
    task: Any
    """`Task.resident`."""


class WholeGraphReader(FullBatchReader):
    """A `Reader` of the whole graph or the training examples' receptive field; a batch is its examples, int32 `[n]`."""

    cut: ClassVar[bool] = False

    def __init__(self, num_links: int = 0) -> None:
        """`num_links` are the training links, where a batch's own edges are left out."""
        self.num_links = num_links

    def inputs(self, resident: Resident, batch: jax.Array) -> ModelInputs:
        inputs = resident.inputs
        if resident.excluded:
            assert isinstance(inputs, GraphInputs)
            weights = edge_weights(resident.excluded, batch, self.num_links)
            inputs = dataclasses.replace(inputs, weights=weights)
        return inputs

    def touched(self, params: Params, inputs: ModelInputs) -> dict[str, jax.Array]:
        return {}

    def pick(self, rows: Mapping[str, jax.Array], inputs: ModelInputs, task: Task, *about: Any) -> list[jax.Array]:
        assert isinstance(inputs, GraphInputs | FieldInputs)
        return [
            rows[node_type] if ids is None else inputs.rows_of(rows[node_type], jnp.maximum(ids, 0))
            for node_type, ids in task.requests(*about)
        ]

    def read(self, params: Params, resident: Resident, batch: jax.Array) -> Read:
        return read_from_tables(self, params, resident, batch)


class WholeGraph(Execution):
    """Each update over the whole graph, or over its examples' receptive field, on one device.

    Attributes:
        inputs: features and semantic graphs of the whole graph, on the device.
        resident: what a step reads beside state and batch.
        rows_computed: which rows a step computes, `all` or `needed`, and why.
    """

    def __init__(
        self,
        problem: Problem,
        host_graphs: Mapping[str, SemanticGraph],
        metapaths: tuple[Metapath, ...] = (),
        *,
        sgb_s: float = 0.0,
    ) -> None:
        """Chooses implementations and moves to the device what the model reads, nothing else.

        Args:
            problem: what is trained.
            host_graphs: semantic graphs by name, on the host, as `build_graphs` gives them.
            metapaths: those that the graphs are of, for HAN.
            sgb_s: seconds that building them took.

        Raises:
            InputError: a named implementation does not cover a graph.
        """
        super().__init__(problem)
        config, graph, task = problem.config, problem.graph, problem.task
        self.mesh = DeviceMesh(1)
        self.metapaths, self.sgb_s = metapaths, sgb_s
        self._joins = target_platform() in GPUS
        stacks, orders = _stacked(problem)
        host_graphs, edge_features = with_edge_features(problem, host_graphs)
        inside = {name for stack in stacks.values() for name in stack.relations}
        leaves_out = isinstance(task, LinkPrediction) and config.task.exclude_targets
        choices = [
            _choice_of_sums(problem, name, "means without the batch's own edges")
            if leaves_out
            else choose_aggregation(problem, name, host_graph)
            for name, host_graph in host_graphs.items()
        ]
        choices += [
            Choice("neighbor_sum", name, stack.implementation, f"{len(stack.relations)} relations stacked, by basis")
            for name, stack in stacks.items()
        ]
        spec = GraphSpec(
            num_nodes=dict(graph.num_nodes),
            feature_widths=feature_widths(graph),
            targets=task.targets,
            relations=relations_of(problem, {*host_graphs, *inside}),
            metapaths=tuple(metapath.name for metapath in metapaths),
            implementations=dict.fromkeys(inside, "segment")
            | {choice.subject: choice.implementation for choice in choices},
            sparse_implementation="segment",
            edge_widths={name: each.width for name, each in edge_features.items()},
        )
        model: Any = nnx.eval_shape(lambda: problem.model(config.model, spec, rngs=nnx.Rngs(0)))
        features: dict[str, jax.Array | SparseFeatures] = {}
        for node_type in model.embeddings.widths:
            if node_type in graph.features:
                features[node_type], choice = place_features(problem, node_type, graph.features[node_type])
                choices += [choice] if choice else []
        sparse_choices = {choice.implementation for choice in choices if choice.op == "sparse_matmul"} - {"dense"}
        self.spec = dataclasses.replace(spec, sparse_implementation=next(iter(sparse_choices), "segment"))
        read = {name for layer in model.layers for name in layer.plan.relations}
        used = [name for name in host_graphs if name in read]
        views = {name: _views(problem, spec.implementations[name], leaves_out) for name in used}
        plans = [layer.plan for layer in model.layers]
        packing, why_packed = choose_packing(problem, plans, host_graphs, self.spec.sparse_implementation)
        packed: tuple[PackedGraphs | None, ...] = ()
        if packing is not None:
            sparse_types = sparse_matrices(problem, features)
            packed = place_whole(packing, plans, host_graphs, graph.num_nodes, sparse_types)
        if packing is None and not leaves_out:
            _check_together(problem, [host_graphs[name] for name in used])
        placed = {name: host_graphs[name].place(views[name]) for name in ([] if packing else used)}
        self._edges = {name: host_graphs[name].num_edges for name in used}
        edge_features = {name: each for name, each in edge_features.items() if name in used}
        self.inputs = GraphInputs(
            features, placed, {}, jax.device_put(stacks), jax.device_put(edge_features), packed=packed
        )
        field, self.rows_computed = _choose_rows(problem, host_graphs, model)
        excluded = _target_edges(problem, stacks, orders) if leaves_out else {}
        self.resident = Resident(
            self.inputs if field is None else _place_field(problem, field, host_graphs, views, packing),
            jax.device_put({name: each for name, each in excluded.items() if name in {*used, *stacks}}),
            jax.device_put(task.resident()),
        )
        trained = self.resident.inputs.packed
        self.choices = tuple(
            of_rows(choice, trained)
            if choice.op == "sparse_matmul"
            else choice
            if packing is None
            else packing.choice(choice, why_packed)
            for choice in choices
            if choice.op == "sparse_matmul" or choice.subject in {*used, *stacks}
        )
        self._splits = jax.device_put(dict(task.splits)) if task.by_example else {}

    def batches(self, seed: int) -> EpochBatches:
        """All examples at once for a task that is `by_example`; of others, such as links, `task.batch_size`."""
        examples = self.task.training_examples()
        if self.task.by_example:
            return EpochBatches(examples, len(examples), seed, shuffle=False)
        size = min(self.config.task.batch_size or len(examples), len(examples))
        return EpochBatches(examples, size, seed)

    def describe(self) -> list[str]:
        return []

    def facts(self) -> dict[str, Any]:
        if not self.task.by_example:
            return {"batch_size": self.batches(0).batch_size}
        return {"rows": self.rows_computed[0], "rows_reason": self.rows_computed[1]}

    def semantic_edges(self) -> Mapping[str, int]:
        return self._edges

    @property
    def num_buckets(self) -> int:
        return 1

    @functools.cached_property
    def update_program(self) -> UpdateProgram:
        """The update that is traced."""
        batches, num_links = self.batches(0), 0
        if isinstance(self.task, LinkPrediction):
            num_links = self.split_size("train")
        whole = len(batches.seeds) % batches.batch_size == 0
        return UpdateProgram(
            self.structure,
            self.task,
            WholeGraphReader(num_links),
            self.config.training,
            batches.steps_per_epoch,
            count=batches.batch_size if whole else None,
        )

    def step_arguments(self, ids: Any) -> tuple[Any, ...]:
        """What a step is called with beside the state, for some examples."""
        return self._resident.arrays, ids, None

    @functools.cached_property
    def joined(self) -> JoinedState:
        """The form of states and parameters that programs are called with."""
        return JoinedState(self.abstract_params, joins=self._joins)

    @functools.cached_property
    def _resident(self) -> JoinedIndices:
        return JoinedIndices(self.resident)

    @functools.cached_property
    def _evaluated(self) -> JoinedIndices:
        return JoinedIndices((self.inputs, (self.resident.task, self._splits)))

    def lower_update(self, bucket: int = 0) -> jax.stages.Lowered:
        return lower_ahead(self.update, self.update_shapes, donate=(0,))

    @property
    def update_shapes(self) -> tuple[Any, ...]:
        """Shapes of the arguments of `update`."""
        ids = jax.ShapeDtypeStruct((self.batches(0).batch_size,), jnp.int32)
        return self.joined.abstract(self.abstract_state), *self.step_arguments(ids)

    def update(self, state: TrainState, resident: Any, ids: jax.Array, votes: Any) -> tuple[TrainState, UpdateReport]:
        """Traced: an update of a joined state."""
        tree = self.joined.traced_split(state)
        new, report = self.update_program(tree, self._resident.traced_split(resident), ids, votes)
        return self.joined.traced_join(new), report

    def lower_evaluation(self, bucket: int = 0) -> jax.stages.Lowered:
        return lower_ahead(self.evaluation, (self.abstract_joined_params, *self.evaluation_arguments))

    @property
    def abstract_joined_params(self) -> Any:
        """Shapes of joined parameters."""
        return self.joined.abstract(self.abstract_params)

    @property
    def evaluation_arguments(self) -> tuple[Any, ...]:
        """What an evaluation is called with beside the parameters."""
        return (self._evaluated.arrays,)

    def evaluation(self, params: Any, read: Any) -> Any:
        """Traced, of joined parameters, without dropout: what the task makes its figures from."""
        inputs, task_data = self._evaluated.traced_split(read)
        model, rows = self.forward(self.joined.traced_split(params), inputs)
        return self.task.evaluate(model, rows, task_data)

    def forward(self, params: Params, inputs: GraphInputs) -> tuple[Any, Mapping[str, jax.Array]]:
        """Traced: the model, and what its head reads of all nodes, in as little memory as a step that recomputes."""
        with recomputing(without_gradient(self.config.training.remat)):
            model: Any = nnx.merge(self.structure, params)
            return model, self.task.represent(model, inputs, model.encode(inputs))

    def lower_inference(self) -> jax.stages.Lowered:
        def infer(params: Any, inputs: GraphInputs) -> Any:
            return self.task.infer(*self.forward(self.joined.traced_split(params), inputs))

        return lower_ahead(infer, (self.abstract_joined_params, self.inputs))

    def profile_facts(self) -> dict[str, Any]:
        return {"rows": ": ".join(self.rows_computed)}

    def rows(self, params: Params, seed: int) -> Mapping[str, jax.Array]:
        return jax.jit(lambda params, inputs: self.forward(params, inputs)[1])(params, self.inputs)

    def resident_bytes(self) -> int:
        params_bytes = num_bytes(self.abstract_params)
        state_bytes = params_bytes * (1 if self.config.training.optimizer == "sgd" else 3)
        field = () if self.resident.inputs is self.inputs else self.resident.inputs
        staying = (self.inputs, self.resident.task, self._splits, field, self.resident.excluded)
        return num_bytes(staying) + state_bytes + params_bytes

    def compile(self) -> WholeGraphPrograms:
        check_supported(self.config.training.remat)
        return WholeGraphPrograms(self, *self.compile_all(evaluations=1))


def choose_aggregation(problem: Problem, name: str, graph: SemanticGraph) -> Choice:
    """The implementation of neighbor aggregation on one semantic graph.

    Raises:
        InputError: the recipe names one that does not cover it.
    """
    op, key = OPS[problem.model.aggregation], _kernels_key(problem)
    named = getattr(problem.config.kernels, key)
    if named == "auto":
        return Choice(op.name, name, *op.choose(graph))
    check_kernel(problem, key, SemanticGraph, _dense_bytes(key, [graph]), name)
    return Choice(op.name, name, named, f"named by kernels.{key}")


def _check_together(problem: Problem, graphs: Sequence[SemanticGraph]) -> None:
    """Refuses dense adjacency matrices that are over the memory limit together, where each is within it."""
    if graphs:
        key = _kernels_key(problem)
        check_kernel(problem, key, SemanticGraph, _dense_bytes(key, graphs), f"{len(graphs)} graphs together")


def _kernels_key(problem: Problem) -> str:
    return "attention" if problem.model.aggregation == "neighbor_attention" else "mean"


def _dense_bytes(key: str, graphs: Sequence[SemanticGraph]) -> int:
    """Of the adjacency matrices of graphs, which stay, and for means of one more as float32 for the product with it."""
    sizes = [graph.num_targets * graph.num_sources for graph in graphs]
    return sum(sizes) + (0 if key == "attention" else 4 * max(sizes))


def place_features(
    problem: Problem, node_type: str, matrix: np.ndarray | sparse.csr_array, row_ids: np.ndarray | None = None
) -> tuple[jax.Array | SparseFeatures, Choice | None]:
    """A type's features on the device, and the implementation of their projection where they are sparse.

    Args:
        row_ids: the rows' node ids, where `matrix` has a part of the type's rows; dropout hashes them.

    Raises:
        InputError: as `choose_aggregation`.
    """
    if isinstance(matrix, np.ndarray):
        return jax.device_put(matrix), None
    op, named = OPS["sparse_matmul"], problem.config.kernels.projection
    check_kernel(problem, "projection", SparseFeatures, 4 * matrix.shape[0] * matrix.shape[1], node_type)
    if named == DENSIFIED:
        return jax.device_put(matrix.toarray()), Choice(op.name, node_type, named, "named by kernels.projection")
    features = SparseFeatures.from_scipy(matrix, row_ids)
    chosen = op.choose(features) if named == "auto" else (named, "named by kernels.projection")
    return features.place(op.views(chosen[0], SparseFeatures)), Choice(op.name, node_type, *chosen)


def _views(problem: Problem, implementation: str, leaves_out: bool) -> tuple[str, ...]:
    return OPS["neighbor_sum" if leaves_out else problem.model.aggregation].views(implementation)


def _choose_rows(
    problem: Problem, host_graphs: Mapping[str, SemanticGraph], model: Any
) -> tuple[ReceptiveField | None, tuple[str, str]]:
    """The training examples' receptive field, or None where a step computes all rows; and which it is, and why."""
    named, name = problem.config.training.rows, problem.config.model.name
    if not problem.task.by_example:
        return None, ("all", "links are scored among all nodes")
    if named == "all" or not takes_fields(problem.model):
        return None, ("all", "named by training.rows" if named == "all" else f"{name} computes all rows")
    if problem.config.model.edge_features:
        return None, ("all", "features of edges are read over the whole graph")
    graph = problem.graph
    plans = [layer.plan for layer in model.layers]
    (target,) = problem.task.targets
    field = receptive_field(plans, host_graphs, graph.num_nodes, target, problem.task.training_examples())
    why = f"training nodes reach {field.share:.0%} of the layers' rows and edges"
    if named == "auto" and field.share >= NEEDED_BELOW:
        return None, ("all", why)
    return field, ("needed", why)


def _place_field(
    problem: Problem,
    field: ReceptiveField,
    host_graphs: Mapping[str, SemanticGraph],
    views: Mapping[str, Sequence[str]],
    packing: Packing | None,
) -> FieldInputs:
    """The field's features and edges on the device."""
    graph = problem.graph
    features: dict[str, jax.Array | SparseFeatures] = {}
    row_of, sparse_types = {}, {}
    for node_type, count in field.counts[-1].items():
        ids = field.ids[node_type][:count]
        if node_type in graph.features:
            own = graph.features[node_type][ids]
            features[node_type] = place_features(problem, node_type, own, ids)[0]
            if isinstance(features[node_type], SparseFeatures):
                sparse_types[node_type] = own
        else:
            row_of[node_type] = np.full(graph.num_nodes[node_type], -1, np.int32)
            row_of[node_type][ids] = np.arange(count, dtype=np.int32)
    if packing is None:
        graphs = [field.graphs(hop, host_graphs) for hop in range(len(field.layers))]
        inside = [own for by_name in graphs for own in by_name.values()]
        _check_together(problem, [*(host_graphs[name] for name in views), *inside])
    else:
        graphs = [{}] * len(field.layers)
    return FieldInputs(
        features=features,
        graphs=tuple({name: each.place(views[name]) for name, each in by_name.items()} for by_name in graphs),
        ids=jax.device_put(dict(field.ids)),
        row_of=jax.device_put(row_of),
        counts=tuple(FrozenCounts.of(counts) for counts in field.counts),
        packed=() if packing is None else place_field(packing, field, host_graphs, sparse_types),
    )


def _stacked(problem: Problem) -> tuple[dict[str, StackedRelations], dict[str, np.ndarray]]:
    """Stacks by name, with the order of their edges."""
    stacks, orders = {}, {}
    for own in stackable(problem):
        source = next(iter(own)).source
        implementation = summing(problem)
        views = OPS["neighbor_sum"].views(implementation)
        stack, order = stack_relations(own, problem.graph.num_nodes[source], implementation, views)
        stacks[stack.graph.name], orders[stack.graph.name] = stack, order
    return stacks, orders


def _choice_of_sums(problem: Problem, name: str, why: str) -> Choice:
    return Choice("neighbor_sum", name, summing(problem), why)


def _target_edges(
    problem: Problem, stacks: Mapping[str, StackedRelations], orders: Mapping[str, np.ndarray]
) -> dict[str, TargetEdges]:
    task, edges = problem.task, problem.graph.edges
    assert isinstance(task, LinkPrediction)
    shown = shown_links(task.whole, task.links, edges)
    none = len(task.links.triples["train"])

    def of(relation: Relation, own: EdgeSet) -> ShownLinks:
        empty = np.full(own.num_edges, none, np.int32)
        return shown.get(relation, ShownLinks(empty, empty))

    found = {str(each): TargetEdges(of(each, own), own.receivers, own.num_targets) for each, own in edges.items()}
    for name, stack in stacks.items():
        joined = [found.pop(relation).shown for relation in stack.relations]
        both = ShownLinks(*(np.concatenate(sides)[orders[name]] for sides in zip(*joined, strict=True)))
        found[name] = TargetEdges(both, stack.group_of_edge, stack.num_groups)
    return found
