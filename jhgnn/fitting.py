"""`fit`: train a model from Python, on a graph or a recipe, with what of it is one's own."""

import contextlib
import dataclasses
import os
import shutil
import signal
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jhgnn import models
from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe, override
from jhgnn.config.settings import by_section
from jhgnn.config.shipped import find_recipe
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.nn.model import Model
from jhgnn.planning.budget import within_budget
from jhgnn.run import Run, remember
from jhgnn.runtime.console import Say
from jhgnn.runtime.files import write_json, write_text
from jhgnn.runtime.interrupt import stop_on_signals
from jhgnn.runtime.jax_settings import configure_jax
from jhgnn.runtime.own_code import name_of
from jhgnn.runtime.processes import are_several
from jhgnn.tasks.class_counts import Loss, Metric
from jhgnn.training.loop import Callback, train
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import TaskFactory, pose, read_graph
from jhgnn.training.remat import check_supported
from jhgnn.training.reporting import describe, draw_curves
from jhgnn.training.resume import with_settled
from jhgnn.training.run_folder import claimed, open_folder, recorded, storage_told, withdrawn_on_failure
from jhgnn.training.size_check import check_memory
from jhgnn.training.summary import summarize

WHERE = "fit"
"""Starts the messages about arguments, where those about a recipe's lines start with its path."""
OF_FILES = ("format", "path", "preset", "target", "scale")
"""Fields of `data` that say what to read, which a graph in memory has no use for."""


def fit(
    source: HeteroGraph | str | Path | Config | None = None,
    /,
    *,
    recipe: str | Path | Config | None = None,
    model: str | type[Model] | Mapping[str, Any] | None = None,
    task: str | TaskFactory | Mapping[str, Any] | None = None,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    callbacks: Sequence[Callback] = (),
    folder: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Trains and evaluates a model.

        run = jhgnn.fit(graph, model="rgat", hidden=64, epochs=100)
        run = jhgnn.fit("configs/han_acm.toml", learning_rate=0.01)
        run = jhgnn.fit(graph, model=MyModel, sampling={"batch_size": 1024, "fan_out": [25, 20]})

    Args:
        source: the graph to train on; or a recipe, as its path or a `Config`, whose data is read; None: the data of
            `recipe`, or of a recipe's defaults, a synthetic graph.
        recipe: the settings to start from, as a path or a `Config`; its data is not read where there is a graph.
        model: its name, a class of your own, or the section `model` of a recipe as a dictionary; None: the recipe's.
        task: its name, what makes a task of your own from the graph, such as a class, or the section `task` as a
            dictionary; None: the recipe's, by default to classify the graph's target nodes.
        loss: of each row, from logits `[rows, num_classes]` and labels; node classification only.
        metrics: further figures by name, each from the logits and labels of a split; node classification only.
        callbacks: called with an `EpochResult` after each epoch; one that returns True ends the training.
        folder: of the run; it must not hold one. None: the recipe's `run.dir`, else a temporary folder, which goes when
            the run does.
        progress: print what is trained, and how far it is.
        settings: fields of a recipe by their names, such as `hidden` or `epochs`, or whole sections as dictionaries.

    Returns:
        the run. Ctrl-C ends the training after the batch at hand, and gives the run as it is then.

    Raises:
        InputError: what a recipe would be refused for, in the same words: a name that is no field, a wrong type or
            value, settings that do not go together, a graph that the task cannot be learnt from.
        StorageError: a file cannot be written or read; the message says what is left.
        NonFiniteLossError: the loss or a gradient stopped being finite.
    """
    graph, config = _start(source, recipe)
    own_model = models.checked(model, name_of(model)) if isinstance(model, type) else None
    own_task = task if callable(task) else None
    for section, given in (("model", model), ("task", task)):
        settings |= _section(section, given)
    if loss is not None:
        settings["training"] = _with_loss(settings.get("training", {}), loss)
    _check_own(metrics, callbacks)
    tables = by_section(settings, WHERE)
    if graph is not None and (idle := [name for name in OF_FILES if name in tables.get("data", {})]):
        raise InputError(f"{WHERE}: data.{idle[0]} says what to read, but a graph is given; leave one of them out")
    config = override(config, tables, where=WHERE)
    if are_several(config.distributed):
        raise InputError(f"{WHERE}: trains in one process; start several with `python -m jhgnn.train`")
    if config.distributed.read == "parts":
        raise InputError(
            f"{WHERE}: distributed.read = 'parts' leaves a run no features to predict with; use `python -m jhgnn.train`"
        )
    say = Say(quiet=not progress)
    with _folder(folder or config.run.dir) as (place, temporary), claimed(place), storage_told(place):
        config = dataclasses.replace(config, run=dataclasses.replace(config.run, dir=str(place)))
        write_text(place / "recipe.toml", recorded(config))
        with withdrawn_on_failure(place):
            configure_jax()
            check_supported(config.training.remat)
            if graph is None:
                graph = read_graph(config, progress=progress)
            problem = pose(graph, config, model=own_model, task=own_task, loss=loss, metrics=metrics)
            execution = execution_of(problem)
            check_memory(execution)
            config = with_settled(config, execution.config)
            write_text(place / "recipe.toml", recorded(config))
            describe(say, execution, None if temporary else place)
            execution = within_budget(execution, say)
            programs = execution.compile()
        remember(execution, place)
        with stop_on_signals() as stop:
            outcome = train(
                programs,
                place,
                seed=config.run.seed,
                recipe=recorded(config),
                resume=False,
                stop=stop,
                say=say,
                callbacks=callbacks,
            )
        if outcome.stopped_by not in signal.Signals.__members__:  # else nothing was evaluated
            write_json(place / "summary.json", summarize(programs, outcome, config.run.seed))
            draw_curves(place)
    run = Run(execution, place)
    if temporary:
        weakref.finalize(run, shutil.rmtree, place, ignore_errors=True)
    return run


def _start(
    source: HeteroGraph | str | Path | Config | None, recipe: str | Path | Config | None
) -> tuple[HeteroGraph | None, Config]:
    """The graph, if there is one in memory, and the settings to start from."""
    graph = source if isinstance(source, HeteroGraph) else None
    if graph is None and source is not None:
        if recipe is not None:
            raise InputError(f"{WHERE}: two recipes are given; leave one of them out")
        recipe = source  # type: ignore[assignment]
    if recipe is None:
        config = override(Config(), {"run": {"tensorboard": False}}, where=WHERE)
    elif isinstance(recipe, Config):
        config = recipe
    elif isinstance(recipe, str | Path):
        config = load_recipe(find_recipe(str(recipe)))
    else:
        kind = type(recipe).__name__
        raise InputError(f"{WHERE}: {kind} is nothing to train on; give a HeteroGraph, a recipe's path, or a Config")
    if graph is None:
        return None, config
    # What was in memory may be saved later, with `save_graph`, and named then.
    unread = {"format": "jhgnn", "path": "", "preset": "", "target": "", "scale": 1.0}
    return graph, override(config, {"data": unread}, where=WHERE)


def _section(section: str, given: Any) -> dict[str, Any]:
    """A section from what `model` or `task` may be."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {section: given}
    if isinstance(given, str):
        return {section: {"name": given}}
    if callable(given):
        return {section: {"name": name_of(given)}}
    kinds = "a name, a class, or a dictionary of the section's fields"
    raise InputError(f"{WHERE}: {section} must be {kinds}, not {type(given).__name__}")


def _with_loss(training: Any, loss: Any) -> dict[str, Any]:
    """The section `training` with the name of a loss, by which a resumed run finds it."""
    if not callable(loss):
        raise InputError(
            f"{WHERE}: loss must be a function of logits and labels, not {loss!r}; links name theirs by"
            " task={'loss': ...}"
        )
    if not isinstance(training, Mapping):
        raise InputError(f"{WHERE}: training must be a table, not {training!r}")
    return {**training, "loss": name_of(loss)}


def _check_own(metrics: Any, callbacks: Any) -> None:
    """Refuses what cannot be called, which would otherwise end the training after an epoch."""
    if metrics is not None and not isinstance(metrics, Mapping):
        raise InputError(f"{WHERE}: metrics must be a dictionary of functions by name, not {type(metrics).__name__}")
    if not isinstance(callbacks, Sequence):
        raise InputError(f"{WHERE}: callbacks must be a list of functions, not {type(callbacks).__name__}")
    for name in metrics or {}:
        if not isinstance(name, str) or not name:
            raise InputError(f"{WHERE}: metric {name!r} needs a text as its name")
    own = {f"metric {name!r}": metric for name, metric in (metrics or {}).items()}
    own |= {f"callback {number}": callback for number, callback in enumerate(callbacks)}
    for what, function in own.items():
        if not callable(function):
            raise InputError(f"{WHERE}: {what} must be a function, not {type(function).__name__}")


@contextlib.contextmanager
def _folder(named: str | Path) -> Iterator[tuple[Path, bool]]:
    """The run's folder, and whether it is a temporary one, which goes if nothing was trained."""
    if named:
        if not isinstance(named, str | os.PathLike):
            raise InputError(f"{WHERE}: folder must be a path, not {type(named).__name__}")
        folder = Path(named).expanduser()
        if (folder / "recipe.toml").exists():
            raise InputError(f"{WHERE}: {folder} holds a run already; name another folder, or open it with Run.open")
        open_folder(folder, num_seeds=1, resume=False)
        yield folder, False
        return
    folder = Path(tempfile.mkdtemp(prefix="jhgnn-run-"))
    try:
        yield folder, True
    finally:
        if not (folder / "checkpoints").exists():
            shutil.rmtree(folder, ignore_errors=True)
