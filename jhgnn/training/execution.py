"""Execution: one way to train a problem, before anything is compiled; and `Programs`, the same after it.

There are two ways: each update over the whole graph (`WholeGraph`, or `GraphInParts` over several devices), or over
sampled mini-batches (`Sampled`). An
execution can describe what it will do, and trace its programs without running them, as the budget search does.
`compile` gives `Programs`, which the loop, prediction and the profiler run. A `Feed` brings them batches.
"""

import abc
import copy
import dataclasses
import functools
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.config import Config, ModelConfig
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Metapath
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.model import Model
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.tasks.task import Scores, Task
from jhgnn.training.mesh import REPLICATED, DeviceMesh, Specs, local
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.parts import Parts
from jhgnn.training.problem import Choice, Problem
from jhgnn.training.programs import Compiled, compile_lowered, compile_together, lower_ahead
from jhgnn.training.state import (
    Builder,
    Params,
    TrainState,
    abstract_model,
    abstract_state,
    new_state,
    traced_params,
)
from jhgnn.training.update import UpdateReport


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """A batch on the devices.

    Attributes:
        cursor: its epoch and step.
        following: those of the next batch, from which training resumes after this one.
        bucket: number of the first program whose shapes may hold it.
        arguments: what an update is called with beside the state.
    """

    cursor: Cursor
    following: Cursor
    bucket: int
    arguments: Any


def builder_of(model: type[Model], task: Task, config: ModelConfig, spec: GraphSpec) -> Builder:
    """A function that makes a model with a task's head."""

    def build(rngs: nnx.Rngs) -> Model:
        made = model(config, spec, rngs=rngs)
        task.add_head(made, model.settled(config), spec, rngs=rngs)
        return made

    return build


class Execution(abc.ABC):
    """One problem and one way to train it, with nothing compiled yet.

    Attributes:
        problem: what is trained.
        spec: what the model is built for.
        mesh: the devices.
        metapaths: that the model aggregates over, or none.
        choices: implementations, with their reasons.
        sgb_s: seconds of semantic graph build.
        parts: where rows live, where no device holds all of them.
    """

    mesh: DeviceMesh
    parts: Parts | None = None
    spec: GraphSpec
    metapaths: tuple[Metapath, ...]
    choices: tuple[Choice, ...]
    sgb_s: float

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        _ = self.monitor

    @property
    def config(self) -> Config:
        return self.problem.config

    @property
    def task(self) -> Task:
        return self.problem.task

    @property
    def graph(self) -> HeteroGraph:
        """What messages pass over."""
        return self.problem.graph

    @property
    def model(self) -> type[Model]:
        return self.problem.model

    @property
    def read_s(self) -> float:
        return self.problem.read_s

    @property
    def monitor(self) -> str:
        """The validation figure that picks the best epoch.

        Raises:
            InputError: the recipe names one that the task does not have.
        """
        named, known = self.config.training.monitor, self.task.monitors
        if named not in ("auto", *known):
            names = ", ".join(map(repr, known))
            raise InputError(f"training.monitor = {named!r} is no figure of {self.task.name}; use one of {names}")
        return known[0] if named == "auto" else named

    # The model and its state

    def builder(self, implementations: Mapping[str, str] | None = None) -> Builder:
        """A function that makes the model with the task's head.

        `implementations`, by semantic graph, replace those that were chosen.
        """
        spec = self.spec
        if implementations is not None:
            spec = dataclasses.replace(spec, implementations=implementations)
        return builder_of(self.model, self.task, self.config.model, spec)

    @functools.cached_property
    def _abstract_model(self) -> tuple[nnx.GraphDef, Params]:
        return abstract_model(self.builder())

    @functools.cached_property
    def structure(self) -> nnx.GraphDef:
        """The model with its head, without parameters."""
        return self._abstract_model[0]

    @functools.cached_property
    def abstract_params(self) -> Params:
        """Shapes and dtypes of the parameters."""
        return self._abstract_model[1]

    @property
    def abstract_state(self) -> TrainState:
        """Shapes and dtypes of the state."""
        return abstract_state(self.abstract_params, self._optimizer)

    @property
    def saved_state(self) -> TrainState:
        """Shapes and dtypes of a state as checkpoints hold it."""
        return self.abstract_state

    @property
    def state_specs(self) -> Specs:
        """How each leaf of the state is cut over the mesh: none is, every device has all of it."""
        return jax.tree.map(lambda _: REPLICATED, self.abstract_state)

    def initial_params(self, seed: int) -> Params:
        """Random parameters, on one device."""
        return self.initial_state(seed).params

    def initial_state(self, seed: int) -> TrainState:
        """The state before the first step, on one device."""
        return self._initial_program(np.uint32(seed))

    @functools.cached_property
    def _initial_program(self) -> Compiled:
        """Makes the state from a seed; one program, since dozens of small ones compile for seconds."""
        return compile_lowered(self.lower_initial_state)

    def lower_initial_state(self) -> jax.stages.Lowered:
        """Traces what makes the state before the first step from a uint32 scalar; nothing runs."""
        return lower_ahead(self.traced_state, (jax.ShapeDtypeStruct((), jnp.uint32),))

    def traced_state(self, seed: Any) -> TrainState:
        """The same within a program, from a uint32 scalar."""
        return new_state(traced_params(self.builder(), seed), self._optimizer, seed)

    @property
    def _optimizer(self) -> Any:
        return make_optimizer(self.config.training, self.batches(0).steps_per_epoch)

    # The examples

    @abc.abstractmethod
    def batches(self, seed: int) -> EpochBatches:
        """The training examples by epoch and step; a pure function of the seed."""

    @property
    def steps_per_epoch(self) -> int:
        return self.batches(0).steps_per_epoch

    def split_size(self, split: str) -> int:
        """Examples of a split."""
        return len(self.task.splits.get(split, ()))

    # What it says of itself

    @abc.abstractmethod
    def describe(self) -> list[str]:
        """Lines for a person: what is particular to this way of running."""

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `summary.json` says of this way of running."""

    @abc.abstractmethod
    def semantic_edges(self) -> Mapping[str, int]:
        """Edges of each semantic graph that is built or drawn from."""

    # What it computes without an update

    @abc.abstractmethod
    def rows(self, params: Params, seed: int) -> Mapping[str, Any]:
        """The rows of all nodes of each target type that the task's head reads, `[num_nodes, hidden]`.

        Args:
            params: on one device.
            seed: of the draws, where neighbours are sampled.
        """

    # Programs

    @property
    @abc.abstractmethod
    def num_buckets(self) -> int:
        """Programs of each kind, for batches of different sizes."""

    @abc.abstractmethod
    def lower_update(self, bucket: int = 0) -> jax.stages.Lowered:
        """Traces the update; nothing runs."""

    @abc.abstractmethod
    def lower_evaluation(self, bucket: int = 0) -> jax.stages.Lowered:
        """Traces what is run to evaluate; nothing runs."""

    @property
    def has_evaluation_program(self) -> bool:
        """Whether figures come from the program of `lower_evaluation`, and not from a pass layer by layer."""
        return True

    @abc.abstractmethod
    def lower_inference(self) -> jax.stages.Lowered:
        """Traces the forward pass alone, without dropout; nothing runs.

        It is the "pure inference" of "Characterizing and Understanding HGNN Training on GPUs".
        """

    @property
    def batches_ahead(self) -> int:
        """Batches that may lie prepared while a step runs."""
        return 0

    @abc.abstractmethod
    def profile_facts(self) -> dict[str, Any]:
        """What a profile says of this way of running."""

    @abc.abstractmethod
    def resident_bytes(self) -> int:
        """What stays on a device beside a running program."""

    def with_training(self, **changes: Any) -> Self:
        """The same with other settings of the recipe's section `training`."""
        training = dataclasses.replace(self.config.training, **changes)
        other = self._copy()
        other.problem = dataclasses.replace(self.problem, config=dataclasses.replace(self.config, training=training))
        return other

    def _copy(self) -> Self:
        """A copy without what is worked out when it is first asked for."""
        other = copy.copy(self)
        for name in list(vars(other)):
            if isinstance(getattr(type(self), name, None), functools.cached_property):
                del other.__dict__[name]
        return other

    def compile_all(self, evaluations: int, *, initial: bool = True) -> tuple[list[Compiled], list[Compiled]]:
        """The updates of all buckets and so many evaluations; `initial`: beside them what makes the initial state."""
        updates = [functools.partial(self.lower_update, bucket) for bucket in range(self.num_buckets)]
        others = [functools.partial(self.lower_evaluation, bucket) for bucket in range(evaluations)]
        initial = initial and not jax.config.read("jax_enable_x64")  # our generator, for initial weights, draws 32 bits
        made = compile_together([*updates, *others, *([self.lower_initial_state] if initial else [])])
        if initial:
            self.__dict__["_initial_program"] = made.pop()
        return made[: len(updates)], made[len(updates) :]

    @abc.abstractmethod
    def compile(self) -> "Programs":
        """Compiles ahead of time and places what stays on the devices; parameters are not needed yet.

        Raises:
            InputError: the devices cannot do what the recipe asks for.
        """


class Programs(abc.ABC):
    """An execution, compiled: what the loop, prediction and the profiler run. Shared by all seeds of a run."""

    def __init__(self, execution: Execution, steps: Sequence[Compiled], evaluations: Sequence[Compiled]) -> None:
        self.execution, self.steps, self.evaluations = execution, tuple(steps), tuple(evaluations)

    @property
    def compile_s(self) -> float:
        return sum(program.compile_s for program in (*self.steps, *self.evaluations))

    @property
    def step(self) -> Compiled:
        """The program that most batches run."""
        return self.steps[0]

    @property
    def evaluated_each_epoch(self) -> tuple[str, ...]:
        """The splits of which an evaluated epoch tells figures."""
        return self.execution.task.evaluated_each_epoch

    @abc.abstractmethod
    def place(self, tree: Any) -> Any:
        """A state or parameters where the programs read them."""

    def place_cut(self, tree: Any) -> Any:
        """The same of one whose tables are cut for this process's places, as a checkpoint gives them for `parts`."""
        assert self.execution.parts is not None
        return self.execution.mesh.place(tree, self.execution.parts.specs(tree))

    def initial_state(self, seed: int) -> TrainState:
        """The state before the first step, where the programs read it."""
        return self.place(self.execution.initial_state(seed))

    def whole(self, tree: Any) -> Any:
        """A state or parameters from the devices as this process keeps them, whole; all processes call it."""
        return as_host(tree)

    def to_save(self, state: TrainState) -> TrainState:
        """A state as checkpoints hold it, of one whose tables may be cut; all processes call it."""
        return state

    def copied(self, params: Params) -> Params:
        """Parameters to keep, which no update takes over."""
        return jax.tree.map(lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else np.copy(leaf), params)

    def shown(self, params: Params) -> Params:
        """Parameters for whoever looks at them between epochs: on the devices, or whole where they are cut there."""
        return params

    @abc.abstractmethod
    def feed(self, seed: int) -> "Feed":
        """The batches of training."""

    @abc.abstractmethod
    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, UpdateReport]:
        """One update; takes over the state's memory."""

    @abc.abstractmethod
    def evaluate(self, params: Params, splits: Sequence[str], seed: int) -> Scores:
        """Figures of those splits that have examples; `params` as `place` gives them."""

    def with_step(self, step: Compiled) -> Self:
        """The same with another program for the batches that the first one takes."""
        other = copy.copy(self)
        other.steps = (step, *self.steps[1:])
        return other

    @abc.abstractmethod
    def inference_arguments(self, params: Params, batch: Batch) -> tuple[Any, ...]:
        """What the program of `Execution.lower_inference` is called with; `params` as `place` gives them."""

    @abc.abstractmethod
    def explain(self, state: TrainState, batch: Batch, where: str) -> str:
        """Names the place in which the loss, or else its gradient, first is not finite.

        Args:
            state: as it was before the update.
            batch: the one whose update found it.
            where: begins the message: the batch's number, and what was not finite.
        """

    def figures(self, feed: "Feed", train_s: float) -> dict[str, Any]:
        """What `summary.json` says of how the batches came; `train_s` are the seconds of all updates."""
        return {}


class Feed(abc.ABC):
    """Brings the batches of training to the devices."""

    @abc.abstractmethod
    def iterate(self, start: Cursor, stop: Cursor | None = None) -> Generator[Batch, None, None]:
        """Batches from `start` up to `stop`; closing the iterator ends its threads."""

    def voting(self, batch: Batch, votes: np.ndarray) -> Batch:
        """The batch with what this process votes for, float32 `[2]`: to save, and to stop after it."""
        return batch


def as_host(tree: Any) -> Any:
    """Replicated arrays as this process holds them: one copy, on one device."""
    return jax.tree.map(local, tree)


def num_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
