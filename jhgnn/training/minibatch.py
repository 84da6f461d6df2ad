"""The mini-batch training loop: batches, evaluation by epoch, the best parameters, checkpoints in mid-epoch, resume.

Which batches come, which neighbours they draw and what dropout drops are functions of the seed and of the cursor, so a
resumed run continues bitwise as if it had never stopped, on the same number of devices.
"""

import contextlib
import dataclasses
import math
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.config import Config
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.checkpoint import CheckpointStore
from jhgnn.training.compile_counter import compilations
from jhgnn.training.interrupt import StopRequest
from jhgnn.training.layerwise import layerwise_scores
from jhgnn.training.loop import NonFiniteLossError, Outcome
from jhgnn.training.minibatch_diagnosis import HINT, explain_batch, what_is_wrong
from jhgnn.training.minibatch_problem import MinibatchProblem
from jhgnn.training.minibatch_programs import Fed, Feed, MinibatchPrograms, evaluation_batches, train_batches
from jhgnn.training.minibatch_step import BatchCounts, BatchProgram, BatchReport
from jhgnn.training.objective import SplitCounts, scores
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.parallel import local
from jhgnn.training.processes import meet
from jhgnn.training.reporting import EpochBar, Metrics, Say
from jhgnn.training.state import Params, TrainState, init_params, init_state

Scores = dict[str, dict[str, float]]


def train_minibatches(
    problem: MinibatchProblem,
    programs: MinibatchPrograms,
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

    Of several processes one writes; they save and stop after the same batch. The outcome's `extra` holds the sampling
    figures of `summary.json`.

    Raises:
        InputError: nothing to resume from, or a folder that cannot be written.
        NonFiniteLossError: the loss or a gradient stopped being finite; the checkpoint holds the state before it.
        LoaderError: a batch could not be prepared.
    """
    meet("programs are compiled")
    run = _Run(problem, programs, config, folder, recipe, resume, say, title)
    try:
        return run.train(stop)
    finally:
        run.close()


class _Run:
    def __init__(
        self,
        problem: MinibatchProblem,
        programs: MinibatchPrograms,
        config: Config,
        folder: Path,
        recipe: str,
        resume: bool,
        say: Say,
        title: str,
    ) -> None:
        self.problem, self.programs, self.config, self.folder = problem, programs, config, folder
        self.fleet, self.say = programs.fleet, say
        self.batches = train_batches(problem, config)
        self.store = CheckpointStore(folder / "checkpoints")
        optimizer = make_optimizer(config.training, self.batches.steps_per_epoch)
        state = init_state(init_params(config.model, problem.spec, config.run.seed), optimizer, config.run.seed)
        state, best_params, self.progress = self.store.begin(state, recipe, resume=resume)
        if resume:
            say(f"resumed after epoch {self.progress.epoch}, batch {self.progress.step} from {folder}")
        self.state: TrainState = self.fleet.replicate(state)
        self.best_params: Params = _copy(best_params)
        self.metrics: Metrics | None = None
        if self.fleet.leads:
            after = self.progress.epoch if resume else None
            self.metrics = Metrics(folder, tensorboard=config.run.tensorboard, resume_after=after)
        epochs, log_every = config.training.epochs, config.run.log_every
        self.bar = EpochBar(say, title or config.model.name, epochs, self.progress.epoch, log_every)
        self.feed = Feed(problem, programs, config, self.batches)
        self.step_s: list[float] = []
        self.several, self.votes = jax.process_count() > 1, np.zeros(2, np.float32)
        self.overflows = self.compiled_late = 0
        self.saved: tuple[int, int] | None = (self.progress.epoch, self.progress.step) if resume else None
        self.has_validation = problem.split_size("val") > 0
        self.latest: Scores = {}

    def close(self) -> None:
        self.bar.close()
        if self.metrics is not None:
            self.metrics.close()

    def train(self, stop: StopRequest) -> Outcome:
        training, max_steps = self.config.training, self.config.sampling.max_steps
        stopped_by, saved_at = "epochs", time.monotonic()
        compilations()
        start = Cursor(self.progress.epoch, self.progress.step)
        with contextlib.closing(self.feed.iterate(start, Cursor(training.epochs))) as fed:
            while self.progress.epoch < training.epochs:
                if self.progress.step == 0 and self.has_validation and 0 < training.patience <= self.progress.waited:
                    stopped_by = "patience"
                    break
                if self._agreed_to_stop(stop):
                    self._save()
                    # The caller is told to resume, so nothing is evaluated; other processes may not have stopped here.
                    name = (stop.signal or signal.SIGTERM).name
                    return Outcome(self.best_params, self.progress, {}, math.nan, name)
                if max_steps and self._steps_done() >= max_steps:
                    stopped_by = "max_steps"
                    break
                began, compiled = time.perf_counter(), compilations()
                wants_save = time.monotonic() - saved_at >= training.checkpoint_every_s
                self._one_batch(next(fed), wants_save, stop)
                self.compiled_late += compilations() - compiled if self.step_s else 0
                self.step_s.append(time.perf_counter() - began)
                if self.progress.step == 0:
                    self._end_epoch()
                if self.votes[0] if self.several else time.monotonic() - saved_at >= training.checkpoint_every_s:
                    self._save()
                    saved_at = time.monotonic()
        if self.progress.best_value == math.inf:  # nothing was evaluated yet; what a resumed run evaluates replaces it
            self.best_params = _copy(jax.tree.map(local, self.state.params))
        self._save()
        steps = self.batches.steps_per_epoch
        timed = self.step_s[3:] or self.step_s
        return Outcome(
            self.best_params,
            self.progress,
            self._scores(self.fleet.replicate(self.best_params), ("train", "val", "test")),
            statistics.median(timed) * steps * 1e3 if timed else math.nan,
            stopped_by,
            self._figures(),
        )

    def _steps_done(self) -> int:
        return self.progress.epoch * self.batches.steps_per_epoch + self.progress.step

    def _agreed_to_stop(self, stop: StopRequest) -> bool:
        """Processes stop after the same batch: they learn of each other's signals from its report."""
        return bool(self.votes[1]) if self.several else stop.signal is not None

    def _one_batch(self, fed: Fed, wants_save: bool, stop: StopRequest) -> None:
        if self.several:
            votes = np.array([wants_save and self.fleet.leads, stop.signal is not None], np.float32)
            shares = self.fleet.shard(np.tile(votes, (len(self.fleet.local_shards), 1)))
            fed = dataclasses.replace(fed, share=dataclasses.replace(fed.share, votes=shares))
        report = self._update(fed)
        if self.several:
            self.votes = np.asarray(local(report.votes))
        loss, targets = float(local(report.loss)), float(local(report.num_targets))
        if not bool(local(report.finite)):
            self.state = self.state._replace(step=self.fleet.replicate(local(self.state.step) - 1))
            self._save()
            raise NonFiniteLossError(f"{self._explain(fed, loss)}; the state before it stays in {self.folder}")
        self.progress = dataclasses.replace(
            self.progress,
            epoch=fed.following.epoch,
            step=fed.following.step,
            loss_sum=self.progress.loss_sum + loss * targets,
            num_targets=self.progress.num_targets + int(targets),
        )

    def _explain(self, fed: Fed, loss: float) -> str:
        where = what_is_wrong(fed.cursor.epoch + 1, fed.cursor.step + 1, int(local(self.state.step)), loss)
        if self.several:  # the other processes are leaving, and what they hold is theirs
            return f"{where}; {HINT}"
        program = BatchProgram(
            self.programs.structure,
            self.config,
            self.problem.plan,
            self.programs.buckets.capacities[fed.bucket],
            self.problem.spec.target,
            1,
            self.batches.steps_per_epoch,
        )
        return explain_batch(program, self.state, self.programs.resident, fed.share, where)

    def _update(self, fed: Fed) -> BatchReport:
        """One update; a batch that overflows on a device leaves the state alone and runs again in a bigger bucket."""
        for bucket in range(fed.bucket, len(self.programs.steps)):
            self.state, report = self.programs.steps[bucket](self.state, self.programs.resident, fed.share)
            if fed.share.blocks is not None or not bool(local(report.overflowed)):
                self.overflows += int(bucket > 0)
                return report
        raise RuntimeError("a batch overflowed the bucket that holds any batch")

    def _end_epoch(self) -> None:
        progress, training = self.progress, self.config.training
        loss = progress.loss_sum / max(1, progress.num_targets)
        self.progress = dataclasses.replace(progress, waited=progress.waited + 1, loss_sum=0.0, num_targets=0)
        steps = self.step_s[-self.batches.steps_per_epoch :]
        shown = f"{statistics.fmean(steps) * 1e3:.1f} ms a batch, loss {loss:.4f}"
        if progress.epoch % training.evaluate_every == 0 or progress.epoch == training.epochs:
            self._evaluate(loss, statistics.fmean(steps) * 1e3)
            if "val" in self.latest:
                shown += f", val micro-F1 {self.latest['val']['micro_f1']:.4f}"
        self.bar.update(progress.epoch, shown)

    def _evaluate(self, loss: float, step_ms: float) -> None:
        self.latest = self._scores(self.state.params, ("val", "test"))
        monitor = self.config.monitor
        value = loss
        if "val" in self.latest:
            value = self.latest["val"]["loss"] if monitor == "loss" else -self.latest["val"]["micro_f1"]
        progress = self.progress
        if value < progress.best_value or progress.best_value == math.inf or not self.has_validation:
            self.progress = dataclasses.replace(progress, best_epoch=progress.epoch, best_value=value, waited=0)
            self.best_params = _copy(jax.tree.map(local, self.state.params))
        if self.metrics is not None:
            self.metrics.write(
                progress.epoch,
                {"step_ms": step_ms, "step_loss": loss}
                | {f"{split}_{name}": x for split, by_name in self.latest.items() for name, x in by_name.items()},
            )

    def _scores(self, params: Params, splits: tuple[str, ...]) -> Scores:
        """Scores of every split that has nodes; `params` on all devices."""
        if self.config.sampling.evaluation == "layerwise":
            return layerwise_scores(self.problem, self.programs, self.config, jax.tree.map(local, params), splits)
        found: Scores = {}
        for split in splits:
            batches = evaluation_batches(self.problem, self.config, split)
            if batches is None:
                continue
            total: list[Any] | None = None
            feed = Feed(self.problem, self.programs, self.config, batches)
            for fed in feed.iterate(Cursor(), Cursor(1)):
                counts = [np.asarray(local(each), np.float64) for each in self._count(params, fed)]
                total = counts if total is None else [a + b for a, b in zip(total, counts, strict=True)]
            assert total is not None
            total[0] = total[0] / len(batches.seeds)
            found[split] = scores(SplitCounts(*total), len(batches.seeds))
        return found

    def _count(self, params: Params, fed: Fed) -> SplitCounts:
        for bucket in range(fed.bucket, len(self.programs.evaluations)):
            found: BatchCounts = self.programs.evaluations[bucket](params, self.programs.resident, fed.share)
            if fed.share.blocks is not None or not int(local(found.overflowed)):
                return found.counts
        raise RuntimeError("a batch overflowed the bucket that holds any batch")

    def _save(self) -> None:
        at = (self.progress.epoch, self.progress.step)
        if self.saved == at:
            return
        if self.metrics is not None:
            self.metrics.flush()
        state, best_params = jax.tree.map(local, (self.state, self.best_params))
        if self.several:  # Orbax takes NumPy arrays as equal in all processes, which all call it
            state, best_params = jax.tree.map(np.asarray, (state, best_params))
        self.store.save(state, best_params, self.progress)
        self.saved = at

    def _figures(self) -> dict[str, Any]:
        feed, problem, train_s = self.feed, self.problem, sum(self.step_s)
        num_batches, on_host = max(1, feed.num_batches), problem.side[0] == "host"
        return {
            "batch_size": self.config.sampling.batch_size,
            "steps": self._steps_done(),
            "step_ms": statistics.median(self.step_s[3:] or self.step_s) * 1e3 if self.step_s else math.nan,
            "sampling_side": problem.side[0],
            "sampling_side_reason": problem.side[1],
            "features_on_device": problem.features_on_device[0],
            "sampling_wait_share": feed.wait_s / train_s if train_s > 0 else 0.0,
            # Of the loader's threads, beside training; handing over includes compressing tables for the CPU's kernels.
            **{f"{what}_ms": feed.host_s[what] / num_batches * 1e3 if on_host else None for what in feed.host_s},
            # Unknown where the device samples: its blocks never leave it.
            "padding_waste_slots": feed.waste["slots"] / num_batches if on_host else None,
            "padding_waste_entries": feed.waste["entries"] / num_batches if on_host else None,
            "overflows": self.overflows,
            "compilations_after_warm_up": self.compiled_late,
            "devices": self.fleet.size,
            "processes": jax.process_count(),
        }


def _copy(params: Params) -> Params:
    return jax.tree.map(jnp.copy, params)
