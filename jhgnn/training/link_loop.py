"""The loop of link prediction: updates, evaluation by epoch, the best parameters, checkpoints in mid-epoch, resume.

Which links come, which negatives are drawn and what dropout drops are functions of the seed and of the cursor, so a
resumed run continues bitwise as if it had never stopped.
"""

import dataclasses
import functools
import math
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.config import Config
from jhgnn.sampling.epoch import Cursor
from jhgnn.training import diagnosis
from jhgnn.training.checkpoint import CheckpointStore
from jhgnn.training.interrupt import StopRequest
from jhgnn.training.link_problem import LinkProblem
from jhgnn.training.link_programs import LinkPrograms, link_objective, link_scores, train_links_batches
from jhgnn.training.loop import WARM_UP_EPOCHS, NonFiniteLossError, Outcome
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.reporting import EpochBar, Metrics, Say
from jhgnn.training.state import Params, init_state, random_params

Scores = dict[str, dict[str, float]]


def train_links(
    problem: LinkProblem,
    programs: LinkPrograms,
    config: Config,
    folder: Path,
    *,
    recipe: str,
    resume: bool,
    stop: StopRequest,
    say: Say,
    title: str = "",
) -> Outcome:
    """Trains one seed in a run folder; the counterpart of `jhgnn.training.loop.train`.

    Raises:
        InputError: nothing to resume from, or a folder that cannot be written.
        NonFiniteLossError: the loss or a gradient stopped being finite; the checkpoint holds the state before it.
    """
    run = _Run(problem, programs, config, folder, recipe, resume, say, title)
    try:
        return run.train(stop)
    finally:
        run.bar.close()
        run.metrics.close()


class _Run:
    def __init__(
        self,
        problem: LinkProblem,
        programs: LinkPrograms,
        config: Config,
        folder: Path,
        recipe: str,
        resume: bool,
        say: Say,
        title: str,
    ) -> None:
        self.problem, self.programs, self.config, self.folder = problem, programs, config, folder
        self.batches = train_links_batches(problem, config)
        self.store = CheckpointStore(folder / "checkpoints")
        optimizer = make_optimizer(config.training, self.batches.steps_per_epoch)
        state = init_state(random_params(problem.builder(config), config.run.seed), optimizer, config.run.seed)
        self.state, best_params, self.progress = self.store.begin(state, recipe, resume=resume)
        if resume:
            say(f"resumed after epoch {self.progress.epoch}, batch {self.progress.step} from {folder}")
        self.best_params = _copy(best_params)  # the state is donated to the next step
        after = self.progress.epoch if resume else None
        self.metrics = Metrics(folder, tensorboard=config.run.tensorboard, resume_after=after)
        epochs = config.training.epochs
        self.bar = EpochBar(say, title or config.model.name, epochs, self.progress.epoch, config.run.log_every)
        self.saved: tuple[int, int] | None = (self.progress.epoch, self.progress.step) if resume else None
        self.has_validation = problem.split_size("val") > 0
        self.step_s: list[float] = []

    def train(self, stop: StopRequest) -> Outcome:
        training, saved_at = self.config.training, time.monotonic()
        stopped_by, order, epoch = "epochs", np.zeros(0, np.int64), -1
        while self.progress.epoch < training.epochs:
            if self.progress.step == 0 and self.has_validation and 0 < training.patience <= self.progress.waited:
                stopped_by = "patience"
                break
            if stop.signal is not None:
                self._save()
                return Outcome(self.best_params, self.progress, {}, math.nan, stop.signal.name)
            if epoch != self.progress.epoch:
                epoch = self.progress.epoch
                order = self.batches.order(epoch)
            self._one_batch(order)
            if self.progress.step == 0:
                self._end_epoch()
            if time.monotonic() - saved_at >= training.checkpoint_every_s:
                self._save()
                saved_at = time.monotonic()
        if self.progress.best_epoch == 0:
            self.best_params = _copy(self.state.params)
        self._save()
        timed = self.step_s[WARM_UP_EPOCHS:] or self.step_s
        step_s = statistics.median(timed) if timed else math.nan
        return Outcome(
            self.best_params,
            self.progress,
            self._scores(self.best_params, ("val", "test")),
            step_s * self.batches.steps_per_epoch * 1e3,
            stopped_by,
            {"step_ms": step_s * 1e3, "batch_size": self.batches.batch_size},
        )

    def _one_batch(self, order: np.ndarray) -> None:
        cursor = Cursor(self.progress.epoch, self.progress.step)
        ids = jnp.asarray(self.batches.batch(order, cursor.step))
        start = time.perf_counter()
        self.state, report = self.programs.step(self.state, self.problem.data, ids)
        loss = float(report.loss)  # waits for the step
        self.step_s.append(time.perf_counter() - start)
        if not bool(report.finite):
            explained = self._explain(ids, loss)
            self.state = self.state._replace(step=self.state.step - 1)
            self._save()
            raise NonFiniteLossError(f"{explained}; the state before it stays in {self.folder}")
        following, count = self.batches.following(cursor), int((np.asarray(ids) >= 0).sum())
        self.progress = dataclasses.replace(
            self.progress,
            epoch=following.epoch,
            step=following.step,
            loss_sum=self.progress.loss_sum + loss * count,
            num_targets=self.progress.num_targets + count,
        )

    def _end_epoch(self) -> None:
        progress, training = self.progress, self.config.training
        loss = progress.loss_sum / max(1, progress.num_targets)
        self.progress = progress = dataclasses.replace(
            progress, waited=progress.waited + 1, loss_sum=0.0, num_targets=0
        )
        step_ms = statistics.fmean(self.step_s[-self.batches.steps_per_epoch :]) * 1e3
        shown = f"{step_ms:.1f} ms a batch, loss {loss:.4f}"
        if progress.epoch % training.evaluate_every == 0 or progress.epoch == training.epochs:
            found = self._scores(self.state.params, ("val",))
            value = loss
            if "val" in found:
                monitor = self.config.monitor
                value = found["val"][monitor] * (1 if monitor == "loss" else -1)
                shown += f", val MRR {found['val']['mrr']:.4f}, AUC {found['val']['auc']:.4f}"
            if value < progress.best_value or progress.best_epoch == 0 or not self.has_validation:
                self.progress = dataclasses.replace(progress, best_epoch=progress.epoch, best_value=value, waited=0)
                self.best_params = _copy(self.state.params)
            by_name = {f"val_{name}": value for name, value in found.get("val", {}).items()}
            self.metrics.write(progress.epoch, {"step_ms": step_ms, "step_loss": loss, "train_loss": loss} | by_name)
        self.bar.update(progress.epoch, shown)

    def _scores(self, params: Params, splits: tuple[str, ...]) -> Scores:
        """Scores of every split that has links."""
        rows = self.programs.encode(params, self.problem.data.inputs)
        return {split: link_scores(rows, self.programs.sets[split]) for split in splits if split in self.programs.sets}

    def _save(self) -> None:
        at = (self.progress.epoch, self.progress.step)
        if self.saved != at:
            self.metrics.flush()
            self.store.save(self.state, self.best_params, self.progress)
            self.saved = at

    def _explain(self, ids: jax.Array, loss: float) -> str:
        """Runs the failed update again, one primitive at a time; it left the parameters as they were before it."""
        before = self.state._replace(step=self.state.step - 1)
        where = f"epoch {self.progress.epoch + 1}, batch {self.progress.step} (step {int(before.step)}): "
        where += f"the loss is {loss}" if not math.isfinite(loss) else "a gradient is not finite"
        bad = [*diagnosis.non_finite_leaves({"params": before.params, "inputs": self.problem.data.inputs})]
        if bad:
            return f"{where}; not finite before the step: {', '.join(bad[:3])}"
        objective = functools.partial(
            link_objective, self.programs.structure, self.config, before, self.problem.data, ids
        )
        found = diagnosis.first_non_finite(objective, before.params)
        if found is None:
            found = diagnosis.first_non_finite(jax.grad(objective), before.params)
        hint = "lower training.learning_rate or set training.gradient_clip"
        return f"{where}; first in {found}; {hint}" if found else f"{where}; {hint}"


def _copy(params: Params) -> Params:
    return jax.tree.map(jnp.copy, params)
