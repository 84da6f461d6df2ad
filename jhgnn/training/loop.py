"""The training loop, for every task and every way of batching.

It updates, evaluates by epoch, keeps the best parameters, stops early, saves checkpoints, also in mid-epoch, and
resumes. Which examples come, which neighbours and negatives are drawn, and what dropout drops are functions of the seed
and the cursor (epoch and step). So a resumed run continues, bit for bit, as if it had never stopped, on the same number
of devices.
"""

import contextlib
import dataclasses
import math
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jhgnn.runtime.compile_counter import compilations
from jhgnn.runtime.console import Say
from jhgnn.runtime.interrupt import StopRequest
from jhgnn.runtime.processes import meet
from jhgnn.runtime.step_memory import give_back_unused
from jhgnn.sampling.epoch import Cursor
from jhgnn.tasks.task import Scores
from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.execution import Batch, Programs
from jhgnn.training.mesh import local
from jhgnn.training.reporting import EpochBar, Metrics
from jhgnn.training.state import Params, TrainState
from jhgnn.training.step_times import StepTimes
from jhgnn.training.update import UpdateReport


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """What is known after an epoch.

    Attributes:
        epoch: number, from 1.
        loss: mean over the epoch's examples, each before its update.
        scores: figures of the splits that were evaluated; none where the epoch was not.
        params: the parameters after it, on the devices; the next update takes over their memory. Of training on parts
            they are whole, on the host.
        is_best: whether they are the best so far.
    """

    epoch: int
    loss: float
    scores: Scores
    params: Params
    is_best: bool


Callback = Callable[[EpochResult], bool | None]
"""Called after each epoch; returning True ends the training as if its last epoch had come."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one run ended."""

    params: Params  # the best, as the programs read them
    progress: Progress
    scores: Scores  # of the best parameters, by split
    epoch_ms: float
    stopped_by: str  # "epochs", "patience", "max_steps", "callback" or a signal's name
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what summary.json says beside


class NonFiniteLossError(ArithmeticError):
    """The loss or a gradient stopped being finite; the message names step, stage and tensor."""


def train(
    programs: Programs,
    folder: Path,
    *,
    seed: int,
    recipe: str,
    resume: bool,
    stop: StopRequest,
    say: Say,
    title: str = "",
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """Trains one seed in a run folder.

    Where there are several processes, the first one writes, and all save and stop after the same batch.

    Args:
        programs: the compiled execution.
        folder: of the run; it must exist.
        seed: of initial weights, dropout, batches and draws.
        recipe: the resolved recipe in TOML, for the checkpoint.
        resume: continue from the newest checkpoint.
        stop: asks the run to end after the batch at hand.
        say, title: for progress.
        callbacks: called in their order after each epoch, in every process.

    Raises:
        InputError: nothing to resume from.
        StorageError: a checkpoint or the metrics cannot be written, or the folder was removed.
        NonFiniteLossError: the loss or a gradient stopped being finite; the checkpoint holds the state before it.
        LoaderError: a batch could not be prepared.
    """
    meet("programs are compiled")
    run = _Run(programs, folder, seed, recipe, resume, say, title, callbacks)
    try:
        return run.train(stop)
    finally:
        run.close()


class _Run:
    def __init__(
        self,
        programs: Programs,
        folder: Path,
        seed: int,
        recipe: str,
        resume: bool,
        say: Say,
        title: str,
        callbacks: Sequence[Callback],
    ) -> None:
        self.programs, self.execution, self.folder, self.seed = programs, programs.execution, folder, seed
        self.config, self.task, self.callbacks = self.execution.config, self.execution.task, callbacks
        self.steps_per_epoch = self.execution.steps_per_epoch
        self.store = CheckpointStore(folder / "checkpoints")
        # Order on resume matters: state, then progress, then the metrics after it are dropped.
        parts = self.execution.parts
        state, best_params, self.progress = self.store.begin(
            self.execution.saved_state, recipe, resume=resume, parts=parts
        )
        if resume:
            batches = f", batch {self.progress.step}" if self.progress.step else ""
            say(f"resumed after epoch {self.progress.epoch}{batches} from {folder}")
            if self.store.fallback:
                say(self.store.fallback)
        # As the programs read them, so that rows that are cut over devices are so in the best parameters as well;
        # copied, since the state is donated to the next step.
        place = programs.place if parts is None else programs.place_cut
        self.state: TrainState = place(state) if resume else programs.initial_state(seed)
        self.best_params: Params = programs.copied(place(best_params) if resume else self.state.params)
        del state, best_params
        self.metrics: Metrics | None = None
        if self.execution.mesh.leads:
            after = self.progress.epoch if resume else None
            self.metrics = Metrics(folder, tensorboard=self.config.run.tensorboard, resume_after=after)
        epochs, log_every = self.config.training.epochs, self.config.run.log_every
        self.bar = EpochBar(say, title or self.config.model.name, epochs, self.progress.epoch, log_every)
        self.feed = programs.feed(seed)
        self.times = StepTimes()
        self.several, self.votes = jax.process_count() > 1, np.zeros(2, np.float32)
        self.compiled_late = 0
        self.saved: tuple[int, int] | None = (self.progress.epoch, self.progress.step) if resume else None
        self.has_validation = self.execution.split_size("val") > 0
        self.latest: Scores = {}
        self.ended_by_callback = False
        give_back_unused()

    def close(self) -> None:
        self.bar.close()
        if self.metrics is not None:
            self.metrics.close()

    def train(self, stop: StopRequest) -> Outcome:
        training = self.config.training
        stopped_by, saved_at = "epochs", time.monotonic()
        compilations()
        start = Cursor(self.progress.epoch, self.progress.step)
        with contextlib.closing(self.feed.iterate(start, Cursor(training.epochs))) as batches:
            while self.progress.epoch < training.epochs:
                why = self._ends_here()
                if why:
                    stopped_by = why
                    break
                if self._agreed_to_stop(stop):
                    self._save()
                    # The caller is told to resume, so nothing is evaluated; other processes may not have stopped here.
                    name = (stop.signal or signal.SIGTERM).name
                    return Outcome(self.best_params, self.progress, {}, math.nan, name)
                began, compiled = time.perf_counter(), compilations()
                wants_save = time.monotonic() - saved_at >= training.checkpoint_every_s
                self._one_batch(next(batches), wants_save, stop)
                self.compiled_late += compilations() - compiled if self.times.count else 0
                self.times.add(time.perf_counter() - began)
                if self.progress.step == 0:
                    self._end_epoch()
                if self.votes[0] if self.several else time.monotonic() - saved_at >= training.checkpoint_every_s:
                    self._save()
                    saved_at = time.monotonic()
        if self.progress.best_epoch == 0:  # nothing was evaluated yet; what a resumed run evaluates replaces it
            self.best_params = self.programs.copied(self.state.params)
        self._save()
        return Outcome(
            self.best_params,
            self.progress,
            self._scores(self.best_params, ("train", "val", "test")),
            self._step_ms() * self.steps_per_epoch,
            stopped_by,
            self._figures(),
        )

    def _ends_here(self) -> str:
        """Why training ends here, or an empty string where it goes on."""
        training, max_steps = self.config.training, self.config.sampling.max_steps
        if self.ended_by_callback:
            return "callback"
        if self.progress.step == 0 and self.has_validation and 0 < training.patience <= self.progress.waited:
            return "patience"
        return "max_steps" if max_steps and self._steps_done() >= max_steps else ""

    def _steps_done(self) -> int:
        return self.progress.epoch * self.steps_per_epoch + self.progress.step

    def _step_ms(self) -> float:
        kept = self.metrics.kept_step_ms if self.metrics is not None else []
        return self.times.median_ms() if self.times.count or not kept else statistics.median(kept)

    def _agreed_to_stop(self, stop: StopRequest) -> bool:
        """Whether to stop after this batch; several processes learn of each other's signals from its report."""
        return bool(self.votes[1]) if self.several else stop.signal is not None

    def _one_batch(self, batch: Batch, wants_save: bool, stop: StopRequest) -> None:
        if self.several:
            votes = np.array([wants_save and self.execution.mesh.leads, stop.signal is not None], np.float32)
            batch = self.feed.voting(batch, votes)
        self.state, report = self.programs.update(self.state, batch)
        if self.several:
            self.votes = np.asarray(local(report.votes))
        # One wait for all three: from a GPU each takes as long as a step over a small graph.
        told = jax.device_get([local(each) for each in (report.loss, report.num_examples, report.finite)])
        loss, count = float(told[0]), float(told[1])
        if not told[2]:
            self._stop_before(batch, report, loss)
        self.progress = dataclasses.replace(
            self.progress,
            epoch=batch.following.epoch,
            step=batch.following.step,
            loss_sum=self.progress.loss_sum + loss * count,
            num_targets=self.progress.num_targets + int(count),
        )

    def _stop_before(self, batch: Batch, report: UpdateReport, loss: float) -> None:
        """Saves the state as it was before an update that was not finite, and raises."""
        step = local(self.state.step) - 1
        self.state = self.state._replace(step=self.programs.place(step))
        self._save()
        at = f", batch {batch.cursor.step + 1}" if self.steps_per_epoch > 1 else ""
        what = f"the loss is {loss}" if not math.isfinite(loss) else "a gradient is not finite"
        where = f"epoch {batch.cursor.epoch + 1}{at} (step {int(step)}): {what}"
        explained = self.programs.explain(self.state, batch, where)
        raise NonFiniteLossError(f"{explained}; the state before it stays in {self.folder}")

    def _end_epoch(self) -> None:
        progress, training = self.progress, self.config.training
        loss = progress.loss_sum / max(1, progress.num_targets)
        self.progress = dataclasses.replace(progress, waited=progress.waited + 1, loss_sum=0.0, num_targets=0)
        step_ms = self.times.end_epoch_ms()
        shown = f"{step_ms:.1f} ms{' a batch' if self.steps_per_epoch > 1 else ''}, loss {loss:.4f}"
        if self.metrics is not None:
            self.metrics.check()
        found: Scores = {}
        if progress.epoch % training.evaluate_every == 0 or progress.epoch == training.epochs:
            found = self._evaluate(loss, step_ms)
        shown += self.task.shown(self.latest)
        self.bar.update(progress.epoch, shown)
        if self.callbacks:
            is_best = self.progress.best_epoch == progress.epoch
            result = EpochResult(progress.epoch, loss, found, self.programs.shown(self.state.params), is_best)
            for callback in self.callbacks:  # each is called, whatever the others say
                self.ended_by_callback |= bool(callback(result))

    def _evaluate(self, loss: float, step_ms: float) -> Scores:
        self.latest = self._scores(self.state.params, self.programs.evaluated_each_epoch)
        value = self.task.monitored(self.latest, self.execution.monitor, loss)
        progress = self.progress
        if value < progress.best_value or progress.best_epoch == 0 or not self.has_validation:
            self.progress = dataclasses.replace(progress, best_epoch=progress.epoch, best_value=value, waited=0)
            self.best_params = self.programs.copied(self.state.params)
        if self.metrics is not None:
            by_name = {f"{split}_{name}": x for split, named in self.latest.items() for name, x in named.items()}
            if "train_loss" not in by_name and not self.task.by_example:
                by_name["train_loss"] = loss  # its validation loss is of another kind
            self.metrics.write(progress.epoch, {"step_ms": step_ms, "step_loss": loss} | by_name)
        return self.latest

    def _scores(self, params: Params, splits: Sequence[str]) -> Scores:
        """Figures of every split that has examples."""
        return self.programs.evaluate(params, splits, self.seed)

    def _save(self) -> None:
        at = (self.progress.epoch, self.progress.step)
        if self.saved == at:
            return
        if self.metrics is not None:
            self.metrics.check()
            self.metrics.flush()
        state, best_params, parts = self.state, self.best_params, self.execution.parts
        if parts is None:
            state, best_params = self.programs.whole(state), self.programs.whole(best_params)
            if self.several:  # Orbax takes NumPy arrays as equal in all processes, which all call it
                state, best_params = jax.tree.map(np.asarray, (state, best_params))
        else:
            state = self.programs.to_save(state)
        self.store.save(state, best_params, self.progress, parts=parts)
        self.saved = at

    def _figures(self) -> dict[str, Any]:
        figures = {"steps": self._steps_done(), "step_ms": self._step_ms()}
        figures |= {"compilations_after_warm_up": self.compiled_late}
        return figures | self.execution.facts() | self.programs.figures(self.feed, self.times.total_s)
