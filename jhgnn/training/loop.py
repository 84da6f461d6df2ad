"""The full-batch training loop: step, evaluate, keep the best, stop early, checkpoint, resume."""

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.nn.recompute import without_gradient
from jhgnn.training import diagnosis
from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.interrupt import StopRequest
from jhgnn.training.objective import mean_loss, scores
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.problem import Problem
from jhgnn.training.remat import check_supported
from jhgnn.training.reporting import EpochBar, Metrics, Say
from jhgnn.training.state import Params, TrainState, abstract_params, init_params, init_state, model_structure
from jhgnn.training.step import Compiled, apply_model, compile_lowered, dropout_seed, evaluate, lower_ahead, train_step

WARM_UP_EPOCHS = 3  # not counted in epoch_ms, as in the characterization paper, section 3.2


@dataclasses.dataclass(frozen=True, eq=False)
class Programs:
    """The compiled step and evaluation of one problem, shared by all seeds."""

    structure: nnx.GraphDef
    step: Compiled
    evaluate: Compiled

    @property
    def compile_s(self) -> float:
        return self.step.compile_s + self.evaluate.compile_s


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one run ended."""

    params: Params
    progress: Progress
    scores: dict[str, dict[str, float]]  # of the best parameters, by split
    epoch_ms: float
    stopped_by: str  # "epochs", "patience", "max_steps" or a signal's name
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what summary.json says beside


class NonFiniteLossError(ArithmeticError):
    """The loss or a gradient stopped being finite; the message names step, stage and tensor."""


def compile_programs(problem: Problem, config: Config) -> Programs:
    """Compiles ahead of time; parameters are not needed yet.

    Raises:
        InputError: the backend cannot do what `training.remat` asks for.
    """
    check_supported(config.training.remat)
    structure = model_structure(config.model, problem.spec)
    step = compile_lowered(functools.partial(lower_step, problem, config))
    return Programs(structure, step, compile_lowered(functools.partial(lower_evaluation, problem, config)))


def lower_step(problem: Problem, config: Config) -> jax.stages.Lowered:
    """Traces the step."""
    structure = model_structure(config.model, problem.spec)
    params = abstract_params(config.model, problem.spec)
    opt_state = jax.eval_shape(make_optimizer(config.training).init, params)
    scalar = functools.partial(jax.ShapeDtypeStruct, ())
    state = TrainState(scalar(jnp.int32), scalar(jnp.uint32), params, opt_state)
    return lower_ahead(
        functools.partial(train_step, structure, config),
        (state, *problem.step_arguments),
        donate=(0,),
    )


def lower_evaluation(problem: Problem, config: Config) -> jax.stages.Lowered:
    """Traces the evaluation."""
    structure = model_structure(config.model, problem.spec)
    return lower_ahead(
        functools.partial(evaluate, structure, remat=without_gradient(config.training.remat)),
        (abstract_params(config.model, problem.spec), problem.inputs, problem.labels, dict(problem.splits)),
    )


def train(
    problem: Problem,
    programs: Programs,
    config: Config,
    folder: Path,
    *,
    recipe: str,
    resume: bool,
    stop: StopRequest,
    say: Say,
    title: str = "",
) -> Outcome:
    """Trains one seed in a run folder.

    Order on resume matters: state, then progress, then the metrics after it are dropped, so that the run continues to
    bitwise the same parameters and the same metrics as one that was never interrupted.

    Raises:
        InputError: nothing to resume from, or a folder that cannot be written.
        NonFiniteLossError: the loss or a gradient stopped being finite; the state before that step is the checkpoint.
    """
    store = CheckpointStore(folder / "checkpoints")
    state = init_state(
        init_params(config.model, problem.spec, config.run.seed), make_optimizer(config.training), config.run.seed
    )
    state, best_params, progress = store.begin(state, recipe, resume=resume)
    if resume:
        say(f"resumed after epoch {progress.epoch} from {folder}")
    best_params = _copy(best_params)  # the state is donated to the next step
    metrics = Metrics(folder, tensorboard=config.run.tensorboard, resume_after=progress.epoch if resume else None)
    bar = EpochBar(say, title or config.model.name, config.training.epochs, progress.epoch, config.run.log_every)
    step_s: list[float] = []
    stopped_by, saved_epoch, saved_at = "epochs", progress.epoch if resume else -1, time.monotonic()
    has_validation = problem.split_size("val") > 0
    try:
        while progress.epoch < config.training.epochs:
            if has_validation and 0 < config.training.patience <= progress.waited:
                stopped_by = "patience"
                break
            if stop.signal is not None:
                stopped_by = stop.signal.name
                break
            start = time.perf_counter()
            state, report = programs.step(state, *problem.step_arguments)
            loss = float(report.loss)  # waits for the step
            step_s.append(time.perf_counter() - start)
            if not bool(report.finite):
                explained = _explain(problem, programs, config, state, progress.epoch + 1, loss)
                if saved_epoch != progress.epoch:
                    metrics.flush()
                    store.save(state._replace(step=state.step - 1), best_params, progress)
                raise NonFiniteLossError(f"{explained}; the checkpoint of epoch {progress.epoch} stays in {folder}")
            progress = dataclasses.replace(progress, epoch=progress.epoch + 1, waited=progress.waited + 1)
            shown = f"{step_s[-1] * 1e3:.1f} ms, loss {loss:.4f}"
            if progress.epoch % config.training.evaluate_every == 0 or progress.epoch == config.training.epochs:
                by_split = _evaluate(problem, programs, state.params)
                value = _monitored(by_split, config, loss)
                if value < progress.best_value or progress.best_epoch == 0 or not has_validation:
                    progress = dataclasses.replace(progress, best_epoch=progress.epoch, best_value=value, waited=0)
                    best_params = _copy(state.params)
                metrics.write(
                    progress.epoch,
                    {"step_ms": step_s[-1] * 1e3, "step_loss": loss}
                    | {f"{split}_{name}": x for split, by_name in by_split.items() for name, x in by_name.items()},
                )
                if "val" in by_split:
                    shown += f", val micro-F1 {by_split['val']['micro_f1']:.4f}"
            bar.update(progress.epoch, shown)
            if time.monotonic() - saved_at >= config.training.checkpoint_every_s:
                metrics.flush()
                store.save(state, best_params, progress)
                saved_epoch, saved_at = progress.epoch, time.monotonic()
    finally:
        bar.close()
        metrics.close()
    if saved_epoch != progress.epoch:
        store.save(state, best_params, progress)
    timed_ms = [each * 1e3 for each in step_s[WARM_UP_EPOCHS:] or step_s] or metrics.kept_step_ms
    return Outcome(
        best_params,
        progress,
        _evaluate(problem, programs, best_params),
        statistics.median(timed_ms) if timed_ms else math.nan,
        stopped_by,
    )


def _copy(params: Params) -> Params:
    return jax.tree.map(jnp.copy, params)


def _evaluate(problem: Problem, programs: Programs, params: Params) -> dict[str, dict[str, float]]:
    """Scores of every split that has nodes."""
    counts = programs.evaluate(params, problem.inputs, problem.labels, dict(problem.splits))
    sizes = {split: problem.split_size(split) for split in problem.splits}
    return {split: scores(counts[split], size) for split, size in sizes.items() if size}


def _monitored(by_split: dict[str, dict[str, float]], config: Config, train_loss: float) -> float:
    """The figure to minimise: validation loss or negated F1; without a validation split, the training loss."""
    if "val" not in by_split:
        return train_loss
    return by_split["val"]["loss"] if config.monitor == "loss" else -by_split["val"]["micro_f1"]


def _explain(problem: Problem, programs: Programs, config: Config, state: TrainState, epoch: int, loss: float) -> str:
    """Runs the failed step again, one primitive at a time; the step left parameters as they were before it."""
    where = f"epoch {epoch} (step {int(state.step) - 1}): "
    where += f"the loss is {loss}" if not math.isfinite(loss) else "a gradient is not finite"
    before = state._replace(step=state.step - 1)

    def objective(params: Params) -> jax.Array:
        inputs, labels, ids = problem.step_arguments
        output = apply_model(programs.structure, params, inputs, dropout_seed(before), ids=ids)
        return mean_loss(output.logits, labels[ids], config.training.label_smoothing)

    bad_inputs = [*diagnosis.non_finite_leaves({"params": state.params, "inputs": problem.step_inputs})]
    if bad_inputs:
        return f"{where}; not finite before the step: {', '.join(bad_inputs[:3])}"
    found = diagnosis.first_non_finite(objective, state.params)
    if found is None:
        found = diagnosis.first_non_finite(jax.grad(objective), state.params)
    hint = "lower training.learning_rate or set training.gradient_clip"
    return f"{where}; first in {found}; {hint}" if found else f"{where}; {hint}"


def check_resumable(folder: Path, config: Config, recipe_config: Config) -> None:
    """Refuses to continue a run with a recipe that trains something else.

    Raises:
        InputError: a setting differs that changes the data, the model or the updates.
    """
    for section in ("data", "task", "model", "kernels", "training", "run", "sampling"):
        for field in dataclasses.fields(getattr(config, section)):
            now, then = (getattr(getattr(each, section), field.name) for each in (config, recipe_config))
            if now != then and f"{section}.{field.name}" not in MAY_CHANGE:
                raise InputError(
                    f"resume: {section}.{field.name} is {now!r}, but the run in {folder} was started with"
                    f" {then!r}; start a new run.dir, or leave it as it was"
                )
    epochs, schedule = config.training.epochs, config.training.schedule
    if schedule != "constant" and epochs != recipe_config.training.epochs:
        raise InputError(
            f"resume: training.epochs is {epochs}, but the {schedule} schedule of the run in {folder} decays over"
            f" {recipe_config.training.epochs}; leave it as it was"
        )


MAY_CHANGE = frozenset(
    {"run.dir", "run.log_every", "run.tensorboard", "training.epochs", "training.patience"}
    | {"training.checkpoint_every_s", "sampling.side", "sampling.features", "sampling.threads"}
    | {"sampling.prefetch_threads", "sampling.prefetch_depth", "sampling.prefetch_memory_gib", "sampling.max_steps"}
)
"""Settings that a resumed run may have differently without training something else."""
