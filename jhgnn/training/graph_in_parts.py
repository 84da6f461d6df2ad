"""Training over a whole graph that no device holds: each has the vertices of a part, and reads a halo of others'."""

import dataclasses
import functools
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.flatten_util import ravel_pytree

from jhgnn.distributed.halo import HaloPlan, plan_halo
from jhgnn.distributed.shares import by_home
from jhgnn.errors import InputError
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Metapath, Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.nn.embeddings import tables_of
from jhgnn.nn.halo import HaloInputs
from jhgnn.nn.inputs import GraphSpec, ModelInputs
from jhgnn.nn.recompute import recomputing, without_gradient
from jhgnn.ops.registry import OPS
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.tasks.node_classification import added
from jhgnn.tasks.task import Scores, Task
from jhgnn.training.diagnosis import HINT
from jhgnn.training.execution import Batch, Execution, Programs, num_bytes
from jhgnn.training.loaded_feed import LoadedFeed
from jhgnn.training.mesh import DATA, REPLICATED, SHARDED, DeviceMesh, Specs
from jhgnn.training.parts import Parts, read_parts
from jhgnn.training.problem import Choice, Problem, feature_widths, relations_of
from jhgnn.training.programs import compile_lowered
from jhgnn.training.remat import check_supported
from jhgnn.training.sampled_choices import host_features
from jhgnn.training.state import Params, TrainState
from jhgnn.training.update import FullBatchReader, Read, UpdateProgram, UpdateReport, over_devices

IMPLEMENTATION = "segment"
"""Of neighbor aggregation: the arrays of the others have shapes that depend on degrees, which differ by part."""


class Resident(NamedTuple):
    """What stays on a device: `Task.resident` of all nodes, and its share of the graph."""

    task: Any
    inputs: HaloInputs


class HaloReader(FullBatchReader):
    """A `Reader` of a device's share of a whole graph; a batch is its own examples, int32 `[n]`, -1 for none."""

    cut: ClassVar[bool] = True

    def inputs(self, resident: Resident, batch: jax.Array) -> HaloInputs:
        return resident.inputs

    def touched(self, params: Params, inputs: ModelInputs) -> dict[str, jax.Array]:
        """Numbers of all own rows, -1 where there is no node."""
        assert isinstance(inputs, HaloInputs)
        found = {}
        for name in tables_of(params):
            count = inputs.num_rows[name]
            found[name] = jnp.where(inputs.ids[name][:count] >= 0, jnp.arange(count, dtype=jnp.int32), -1)
        return found

    def read(self, params: Params, resident: Resident, batch: jax.Array) -> Read:
        return Read(resident.inputs, self.touched(params, resident.inputs), dict(tables_of(params)))

    def pick(self, rows: Mapping[str, jax.Array], inputs: ModelInputs, task: Task, *about: Any) -> list[jax.Array]:
        assert isinstance(inputs, HaloInputs)
        return [inputs.rows_of(rows[name], name, cast(jax.Array, ids)) for name, ids in task.requests(*about)]


class GraphInParts(Execution):
    """Each update over the whole graph, whose vertices are cut over the devices by parts.

    Attributes:
        parts: where vertices live; every device has a spare row of each type, for padding.
        plan: this process's shares of the edges, and the rows that devices read of each other.
        inputs: the same with features, an axis over this process's devices in front.
    """

    parts: Parts

    def __init__(
        self,
        problem: Problem,
        host_graphs: Mapping[str, SemanticGraph],
        metapaths: tuple[Metapath, ...] = (),
        *,
        sgb_s: float = 0.0,
    ) -> None:
        """Cuts the graph; nothing is placed yet.

        Args:
            problem, host_graphs, metapaths, sgb_s: as `WholeGraph` takes them.

        Raises:
            InputError: the parts do not fit the graph or the devices, or the recipe names a kernel that shares of a
                graph do not run.
        """
        super().__init__(problem)
        config, graph, task = problem.config, problem.graph, problem.task
        self.mesh = DeviceMesh(config.distributed.devices)
        parts = read_parts(config, graph, self.mesh, spare_rows=1)
        assert parts is not None
        self.parts, self.metapaths, self.sgb_s = parts, metapaths, sgb_s
        if config.kernels.relations == "packed":
            raise InputError("kernels.relations = 'packed' does not run on a graph in parts; use 'auto'")
        for key in ("attention", "mean"):
            if getattr(config.kernels, key) not in ("auto", IMPLEMENTATION):
                raise InputError(
                    f"kernels.{key} = {getattr(config.kernels, key)!r} does not run on a graph in parts; use 'auto'"
                )
        op = problem.model.aggregation
        choices = [Choice(op, name, IMPLEMENTATION, "edges are cut by part") for name in host_graphs]
        self.spec = GraphSpec(
            num_nodes=dict(graph.num_nodes),
            feature_widths=feature_widths(graph),
            targets=task.targets,
            relations=relations_of(problem, host_graphs),
            metapaths=tuple(metapath.name for metapath in metapaths),
            implementations=dict.fromkeys(host_graphs, IMPLEMENTATION),
            sparse_implementation=OPS["sparse_matmul"].choose(SparseRows)[0],
        )
        model: Any = nnx.eval_shape(lambda: problem.model(config.model, self.spec, rngs=nnx.Rngs(0)))
        relations: dict[str, Relation] = {}
        for layer in model.layers:
            relations |= layer.plan.relations
        used = {name: host_graphs[name] for name in relations}
        self.edges = {name: each.num_edges for name, each in used.items()}
        tables = {}
        for node_type in model.embeddings.widths:
            if node_type in graph.features:
                tables[node_type], choice = host_features(config, node_type, graph.features[node_type])
                choices += [choice] if choice else []
        own = self.mesh.local_shards
        self.plan: HaloPlan = plan_halo(
            used, relations, parts.placement, own, {*model.embeddings.widths, *task.targets}
        )
        self.inputs = HaloInputs(
            features=parts.cut_features(tables),
            graphs=dict(self.plan.graphs),
            ids=dict(self.plan.ids),
            asked=dict(self.plan.asked),
            row_of={name: parts.placement.homes[name] % parts.placement.rows[name] for name in task.targets},
            num_rows=FrozenCounts.of({name: parts.placement.rows[name] for name in self.plan.ids}),
            axis=DATA,
        )
        self.choices = tuple(each for each in choices if each.op != op or each.subject in used)

    def batches(self, seed: int) -> EpochBatches:
        """All training examples at once."""
        examples = self.task.training_examples()
        return EpochBatches(examples, len(examples), seed, shuffle=False)

    def cut_examples(self, ids: np.ndarray) -> np.ndarray:
        """Examples by the place that keeps them, of this process's places, int32 `[places, most of any place]`."""
        (target,) = self.task.targets
        placement, own = self.parts.placement, self.mesh.local_shards
        places = placement.places(target, np.arange(len(placement.homes[target]), dtype=np.int32))
        room = max(1, int(np.bincount(places[ids], minlength=placement.num_places).max(initial=0)))
        return by_home(ids, places, placement.num_places, room)[own.start : own.stop]

    def describe(self) -> list[str]:
        halo = ", ".join(f"{count:,} {name}" for name, count in self.plan.halo.items() if count)
        return [
            f"parts: {self.mesh.size} by {self.parts.placement.method}; the whole graph, each device with a part",
            f"halo rows, exchanged before each layer: {halo or 'none'}",
        ]

    def facts(self) -> dict[str, Any]:
        return {"rows": "all", "rows_reason": "a graph in parts computes all rows", "halo_rows": dict(self.plan.halo)}

    def semantic_edges(self) -> Mapping[str, int]:
        return self.edges

    @property
    def num_buckets(self) -> int:
        return 1

    @property
    def resident(self) -> Resident:
        """What stays on this process's devices."""
        return Resident(self.task.resident(), self.inputs)

    @property
    def resident_specs(self) -> Specs:
        """How it is cut."""
        same, cut = cast(Any, REPLICATED), cast(Any, SHARDED)
        return Resident(
            same, dataclasses.replace(self.inputs, features=cut, graphs=cut, ids=cut, asked=cut, row_of=same)
        )

    @property
    def state_specs(self) -> Specs:
        return self.parts.specs(self.abstract_state)

    @property
    def params_specs(self) -> Specs:
        """How each parameter is cut over the mesh."""
        return self.parts.specs(self.abstract_params)

    @functools.cached_property
    def update_program(self) -> UpdateProgram:
        """The update that is traced."""
        return UpdateProgram(
            self.structure, self.task, HaloReader(), self.config.training, 1, num_devices=self.mesh.size
        )

    def lower_update(self, bucket: int = 0) -> jax.stages.Lowered:
        votes = jax.ShapeDtypeStruct((len(self.mesh.local_shards), 2), jnp.float32)
        ids = self.cut_examples(self.task.training_examples())
        arguments = (self.parts.abstract(self.abstract_state), self.resident, ids, votes)
        specs = (self.state_specs, self.resident_specs, SHARDED, SHARDED)
        results = (self.state_specs, REPLICATED)
        return self.mesh.lower(self.update_program, arguments, specs, donate=(0,), results=results)

    def lower_evaluation(self, bucket: int = 0) -> jax.stages.Lowered:
        arguments = (self.parts.abstract(self.abstract_params), self.resident, self.cut_splits)
        return self.mesh.lower(self.evaluation, arguments, (self.params_specs, self.resident_specs, SHARDED))

    @functools.cached_property
    def cut_splits(self) -> dict[str, np.ndarray]:
        """The examples of every split that has any, by place."""
        return {name: self.cut_examples(np.asarray(ids)) for name, ids in self.task.splits.items() if len(ids)}

    def evaluation(self, params: Params, resident: Resident, splits: Mapping[str, jax.Array]) -> Any:
        """Traced, without dropout: the counts of each split, over all devices."""
        model, made = self.forward(params, resident)
        zero, found = jnp.zeros((), jnp.uint32), {}
        for name, ids in splits.items():
            (picked,) = HaloReader().pick(made, resident.inputs, self.task, resident.task, ids, zero, zero)
            found[name] = self.task.counts(model, picked, resident.task, ids)
        vector, unravel = ravel_pytree(
            jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), found)
        )
        return unravel(jax.lax.psum(vector, DATA))

    def forward(self, params: Params, resident: Resident) -> tuple[Any, Mapping[str, jax.Array]]:
        """Traced: the model, and what its head reads of the device's own nodes."""
        with recomputing(without_gradient(self.config.training.remat)):
            model: Any = nnx.merge(self.structure, params)
            return model, self.task.represent(model, resident.inputs, model.encode(resident.inputs, None, over_devices))

    def lower_inference(self) -> jax.stages.Lowered:
        arguments = (self.parts.abstract(self.abstract_params), self.resident)
        return self.mesh.lower(self.own_rows, arguments, (self.params_specs, self.resident_specs), results=SHARDED)

    def own_rows(self, params: Params, resident: Resident) -> Mapping[str, jax.Array]:
        """Traced: what the head reads of the device's own nodes."""
        return self.forward(params, resident)[1]

    def rows(self, params: Params, seed: int) -> Mapping[str, np.ndarray]:
        placed = self.mesh.place(self.parts.cut(params), self.params_specs)
        resident = self.mesh.place(self.resident, self.resident_specs)
        made = compile_lowered(self.lower_inference)(placed, resident)
        return {name: self.parts.gathered(name, rows) for name, rows in sorted(made.items())}

    def profile_facts(self) -> dict[str, Any]:
        return {"rows": "all: a graph in parts"}

    def resident_bytes(self) -> int:
        own = len(self.mesh.local_shards)
        params, state = (self.parts.abstract(tree) for tree in (self.abstract_params, self.abstract_state))
        return (num_bytes(self.resident) + num_bytes(params) + num_bytes(state)) // own

    def compile(self) -> "GraphInPartsPrograms":
        check_supported(self.config.training.remat)
        return GraphInPartsPrograms(self, *self.compile_all(evaluations=1, initial=False))


class GraphInPartsPrograms(Programs):
    """`GraphInParts`, compiled."""

    execution: GraphInParts

    def __init__(self, execution: GraphInParts, *programs: Any) -> None:
        super().__init__(execution, *programs)
        mesh = execution.mesh
        self.resident = mesh.place(execution.resident, execution.resident_specs)
        self.splits = mesh.place(execution.cut_splits, SHARDED)

    @property
    def evaluated_each_epoch(self) -> tuple[str, ...]:
        """All splits, since one program counts them together."""
        return ("train", "val", "test")

    def place(self, tree: Any) -> Any:
        parts = self.execution.parts
        return self.execution.mesh.place(parts.cut(tree), parts.specs(tree))

    def initial_state(self, seed: int) -> TrainState:
        execution = self.execution
        return execution.mesh.place(execution.parts.initial(execution.traced_state, seed), execution.state_specs)

    def whole(self, tree: Any) -> Any:
        return self.execution.parts.whole(tree)

    def shown(self, params: Params) -> Params:
        return self.whole(params)

    def feed(self, seed: int) -> "GraphInPartsFeed":
        return GraphInPartsFeed(self.execution, self.resident, seed)

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, UpdateReport]:
        (resident, ids), votes = batch.arguments
        return self.step(state, resident, ids, votes)

    def evaluate(self, params: Params, splits: Sequence[str], seed: int) -> Scores:
        counts, task = self.evaluations[0](params, self.resident, self.splits), self.execution.task
        return {
            name: task.mean_scores(added(None, counts[name]), len(task.splits[name]))
            for name in splits
            if name in counts
        }

    def explain(self, state: TrainState, batch: Batch, where: str) -> str:
        return f"{where}; {HINT}"  # a share alone has not the rows of other devices

    def inference_arguments(self, params: Params, batch: Batch) -> tuple[Any, ...]:
        return params, self.resident

    def figures(self, feed: Any, train_s: float) -> dict[str, Any]:
        return {"devices": self.execution.mesh.size, "processes": jax.process_count()}


class GraphInPartsFeed(LoadedFeed):
    """The one batch of all training examples, placed once."""

    def __init__(self, execution: GraphInParts, resident: Resident, seed: int) -> None:
        super().__init__(execution.mesh)
        self._batches = execution.batches(seed)
        ids = execution.mesh.place(execution.cut_examples(execution.task.training_examples()), SHARDED)
        self._arguments = (resident, ids)

    def iterate(self, start: Cursor, stop: Cursor | None = None) -> Generator[Batch, None, None]:
        cursor = start
        while stop is None or cursor < stop:
            following = self._batches.following(cursor)
            yield Batch(cursor, following, 0, (self._arguments, self._no_votes))
            cursor = following
