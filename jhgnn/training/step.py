"""The compiled programs of full-batch training: one step, one evaluation, one prediction.

Graphs, features and labels are arguments, never constants; the state is donated.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jhgnn.config import Config
from jhgnn.counter_hash import GOLDEN, mix
from jhgnn.models.classifier import ModelOutput
from jhgnn.models.inputs import FieldInputs, GraphInputs, ModelInputs, SampledInputs
from jhgnn.nn import recompute
from jhgnn.nn.stage import stage
from jhgnn.training.objective import SplitCounts, count, mean_loss
from jhgnn.training.optimizer import apply_gradients, make_optimizer
from jhgnn.training.state import Params, TrainState


class StepReport(NamedTuple):
    """What a step tells the host: the loss before the update, and whether loss and gradients were finite."""

    loss: jax.Array
    finite: jax.Array
    gradient_norm: jax.Array


def apply_model(
    structure: nnx.GraphDef,
    params: Params,
    inputs: ModelInputs,
    step_seed: jax.Array | None = None,
    remat: str = "none",
    ids: jax.Array | None = None,
) -> ModelOutput:
    """The model as a pure function of its parameters; its gradient recomputes what `training.remat` says.

    The output is of all targets, or of those that `ids` names.
    """
    with recompute.recomputing(remat):
        model = nnx.merge(structure, params)
        output = model(inputs, step_seed)
        if ids is None:
            return output
        assert not isinstance(inputs, SampledInputs)
        # The logits of the others are never computed: of MAG's papers they alone would take a GiB.
        with stage("LC", part="classifier"):
            rows = inputs.named(output.embeddings, ids)
        return model.classifier(rows)


def dropout_seed(state: TrainState) -> jax.Array:
    """The seed of this step's dropout, a pure function of (seed, step): a resumed run draws the same masks."""
    return mix(state.seed ^ mix(state.step.astype(jnp.uint32) + jnp.uint32(GOLDEN)))


def train_step(
    structure: nnx.GraphDef,
    config: Config,
    state: TrainState,
    inputs: GraphInputs | FieldInputs,
    labels: jax.Array,
    ids: jax.Array,
) -> tuple[TrainState, StepReport]:
    """One update on the loss over the target nodes `ids`; inputs are of the whole graph, or the field of those nodes.

    Where the loss or a gradient is not finite, parameters and optimizer stay as they were, so that the caller can
    look for the cause.
    """

    def objective(params: Params) -> jax.Array:
        output = apply_model(structure, params, inputs, dropout_seed(state), config.training.remat, ids)
        return mean_loss(output.logits, labels[ids], config.training.label_smoothing)

    loss, gradients = jax.value_and_grad(objective)(state.params)
    with stage("PU"):
        norm = optax.tree.norm(gradients)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        optimizer = make_optimizer(config.training)
        params, opt_state = apply_gradients(optimizer, gradients, state.opt_state, state.params, finite)
    return TrainState(state.step + 1, state.seed, params, opt_state), StepReport(loss, finite, norm)


def evaluate(
    structure: nnx.GraphDef,
    params: Params,
    inputs: GraphInputs,
    labels: jax.Array,
    splits: Mapping[str, jax.Array],
    remat: str = "none",
) -> dict[str, SplitCounts]:
    """Counts of every split, without dropout; in as little memory as the step, where that recomputes."""
    logits = apply_model(structure, params, inputs, remat=remat).logits
    return {split: count(logits, labels, ids) for split, ids in splits.items()}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A program compiled ahead of time, with what compiling it told."""

    call: jax.stages.Compiled
    compile_s: float

    @property
    def peak_temp_bytes(self) -> int:
        """XLA's own figure: temporary memory of one call, beyond arguments and results."""
        analysis = self.call.memory_analysis()
        return int(analysis.temp_size_in_bytes) if analysis is not None else 0

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def compile_ahead(function: Any, arguments: tuple[Any, ...], donate: tuple[int, ...] = ()) -> Compiled:
    """Traces and compiles `function` for these arguments; nothing runs."""
    return compile_lowered(functools.partial(lower_ahead, function, arguments, donate))


def lower_ahead(function: Any, arguments: tuple[Any, ...], donate: tuple[int, ...] = ()) -> jax.stages.Lowered:
    """Traces `function` for these arguments."""
    return jax.jit(function, donate_argnums=donate).lower(*arguments)


def compile_lowered(lower: Callable[[], jax.stages.Lowered]) -> Compiled:
    """Compiles what `lower` traces; the time is of both."""
    start = time.perf_counter()
    compiled = recompute.compile_with_barriers(lower())
    return Compiled(compiled, time.perf_counter() - start)
