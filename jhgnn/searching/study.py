"""A study: trials of settings, pruned and picked by validation figures alone, in a folder that can be continued."""

import dataclasses
import json
import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jhgnn.config import Config
from jhgnn.config.recipe import override, to_toml
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.runtime.console import Say
from jhgnn.runtime.files import write_json, write_text
from jhgnn.runtime.interrupt import StopRequest
from jhgnn.searching.space import Dimension
from jhgnn.tasks.task import figure_text
from jhgnn.training.execution import Programs
from jhgnn.training.loop import Callback, EpochResult, NonFiniteLossError, Outcome, train
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose

if TYPE_CHECKING:
    import optuna

STARTING_TRIALS = 8
"""Trials drawn at random before others are chosen by what those scored; none of them is pruned."""
UNPRUNED_SHARE = 10
"""No trial is pruned in the first tenth of its epochs."""
STUDY_FILE, JOURNAL = "study.json", "trials.journal"


@dataclasses.dataclass(frozen=True)
class Tried:
    """One trial as the table shows it.

    Attributes:
        number: from 0.
        state: `done`, `pruned` (worse than half of the trials at its epoch) or `refused` (the settings do not go
            together, or the loss stopped being finite; `reason` says which).
        value: its best validation figure, signed as it is shown; NaN without one.
        settings: field -> value.
        epochs, seconds: trained.
        reason: of a trial that was refused.
    """

    number: int
    state: str
    value: float
    settings: dict[str, Any]
    epochs: int
    seconds: float
    reason: str = ""


class Study:
    """Trials of one recipe over one space, in one folder.

    Source: the tree-structured Parzen estimator and median pruning of Optuna (Akiba et al., KDD 2019).
    """

    def __init__(self, folder: Path, config: Config, space: Sequence[Dimension]) -> None:
        """Opens the folder, or begins it.

        Raises:
            InputError: Optuna is missing, or the folder's study is of another recipe or space.
        """
        try:
            import optuna
            from optuna.storages.journal import JournalFileBackend
        except ImportError:
            raise InputError("a search needs Optuna: pip install 'jhgnn[search]'") from None
        self.folder, self.config, self.space = folder, config, tuple(space)
        asked = {"recipe": to_toml(config), "space": [dataclasses.asdict(each) for each in space]}
        known = folder / STUDY_FILE
        if known.exists():
            _check_same(known, json.loads(json.dumps(asked)))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(known, asked)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
        self._study = optuna.create_study(
            storage=storage,
            study_name="search",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(
                n_startup_trials=STARTING_TRIALS, n_warmup_steps=1 + config.training.epochs // UNPRUNED_SHARE
            ),
        )
        begun = len(self._study.trials)
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTING_TRIALS, seed=(config.run.seed + begun) % 2**32
        )

    @property
    def trials(self) -> list[Tried]:
        """Those that ended, in their order."""
        states = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "refused"}
        return [
            Tried(
                trial.number,
                states[trial.state.name],
                trial.user_attrs.get("shown", math.nan),
                dict(trial.user_attrs.get("settings", {})),
                trial.user_attrs.get("epochs", 0),
                trial.user_attrs.get("seconds", 0.0),
                trial.user_attrs.get("reason", ""),
            )
            for trial in self._study.trials
            if trial.state.is_finished() and "settings" in trial.user_attrs
        ]

    @property
    def best(self) -> Tried | None:
        """The trial with the best validation figure of those that were not pruned; None before the first."""
        done = {trial.number: trial for trial in self.trials if trial.state == "done"}
        finished = [trial for trial in self._study.trials if trial.number in done]
        return done[min(finished, key=lambda trial: (trial.value, trial.number)).number] if finished else None

    def config_of(self, tried: Tried) -> Config:
        """The recipe with a trial's settings."""
        return override(self.config, _tables(tried.settings), where="--search")

    def run(self, graph: HeteroGraph, num_trials: int, say: Say, stop: StopRequest) -> None:
        """Tries settings until `num_trials` have ended, those of earlier calls counted, or until asked to stop.

        Args:
            graph: as read by the recipe's `data`, which no dimension changes.

        Raises:
            InputError: the data cannot be learnt from, or has nothing to validate on.
        """
        if not len(pose(graph, self.config).task.splits.get("val", ())):
            raise InputError("--search: the data has no validation split, by which trials are picked")
        while len(self.trials) < num_trials and not stop:
            trial = self._study.ask()
            settings = {each.field: _suggest(trial, each) for each in self.space}
            state, value = self._try(trial, settings, graph, say, stop)
            if state is None:  # interrupted: it is not counted, and others will be tried
                self._study.tell(trial, state=_states().FAIL)
                return
            trial.set_user_attr("settings", settings)
            self._study.tell(trial, value if state == _states().COMPLETE else None, state=state)
            say(f"trial {trial.number + 1}: {_line(self.trials[-1])}")

    def _try(
        self, trial: "optuna.trial.Trial", settings: dict[str, Any], graph: HeteroGraph, say: Say, stop: StopRequest
    ) -> "tuple[optuna.trial.TrialState | None, float]":
        """Trains one trial; how it ended, None where it was interrupted, and the value of which less is better."""
        import jax

        states, start = _states(), time.perf_counter()
        pruned, epochs = False, 0
        try:
            config = override(self.config, _tables(settings), where="--search")
            execution = execution_of(pose(graph, config))

            def watch(result: EpochResult) -> bool:
                nonlocal pruned, epochs
                epochs = result.epoch
                if result.scores:
                    value = execution.task.monitored(result.scores, execution.monitor, result.loss)
                    trial.report(value, result.epoch)
                    pruned = result.epoch < config.training.epochs and trial.should_prune()
                return pruned

            outcome = trained(execution.compile(), self.folder, config, config.run.seed, stop, [watch])
            if stop:
                return None, math.nan
            value = outcome.progress.best_value
            trial.set_user_attr("shown", value if execution.monitor == "loss" else -value)
            trial.set_user_attr("figure", figure_text(execution.monitor))
            return (states.PRUNED if pruned else states.COMPLETE), value
        except (InputError, NonFiniteLossError) as error:
            trial.set_user_attr("reason", str(error))
            return states.FAIL, math.nan
        finally:
            trial.set_user_attr("epochs", epochs)
            trial.set_user_attr("seconds", time.perf_counter() - start)
            jax.clear_caches()  # else compiled programs of all trials stay

    @property
    def figure(self) -> str:
        """What `value` is, such as `micro-F1`."""
        return next(
            (trial.user_attrs["figure"] for trial in self._study.trials if "figure" in trial.user_attrs), "value"
        )


def trained(
    programs: Programs,
    folder: Path,
    config: Config,
    seed: int,
    stop: StopRequest,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """Trains in a temporary folder inside `folder`, of which nothing stays.

    Raises:
        NonFiniteLossError: the loss stopped being finite.
    """
    own = Path(tempfile.mkdtemp(prefix=".trial-", dir=folder))
    try:
        return train(
            programs,
            own,
            seed=seed,
            recipe=to_toml(config),
            resume=False,
            stop=stop,
            say=Say(quiet=True),
            callbacks=callbacks,
        )
    finally:
        shutil.rmtree(own, ignore_errors=True)


def write_best(study: Study, config: Config) -> Path:
    """Writes a recipe that the search picked into the study's folder."""
    path = study.folder / "best.toml"
    write_text(path, to_toml(dataclasses.replace(config, run=dataclasses.replace(config.run, dir=""))))
    return path


def _line(tried: Tried) -> str:
    shown = ", ".join(f"{field} = {short(value)}" for field, value in tried.settings.items())
    if tried.state == "refused":
        return f"{shown}: refused ({tried.reason})"
    return f"{shown}: {tried.value:.4f} after {tried.epochs} epochs{', pruned' if tried.state == 'pruned' else ''}"


def short(value: Any) -> str:
    """A setting as people read it: numbers to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _states() -> Any:
    import optuna

    return optuna.trial.TrialState


def _suggest(trial: "optuna.trial.Trial", dimension: Dimension) -> Any:
    if dimension.choices:
        return trial.suggest_categorical(dimension.field, dimension.choices)
    if isinstance(dimension.low, int):
        return trial.suggest_int(dimension.field, dimension.low, int(dimension.high), log=dimension.log)
    return trial.suggest_float(dimension.field, dimension.low, dimension.high, log=dimension.log)


def _tables(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for field, value in settings.items():
        section, _, name = field.partition(".")
        tables.setdefault(section, {})[name] = value
    return tables


def _check_same(path: Path, asked: dict[str, Any]) -> None:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); name another folder with --out") from None
    for key in ("space", "recipe"):
        if known.get(key) != asked[key]:
            raise InputError(f"{path.parent} holds a search of another {key}; name another folder with --out")
