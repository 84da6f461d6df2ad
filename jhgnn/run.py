"""A run: what `fit` gives back, and what a run folder is opened as."""

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from jhgnn import models
from jhgnn.config import Config
from jhgnn.config.options import ExplainConfig
from jhgnn.config.recipe import load_recipe, section_of
from jhgnn.errors import InputError
from jhgnn.explaining.explainer import explain, files_of
from jhgnn.explaining.explanation import Explanation
from jhgnn.graph.hetero_graph import SPLITS, HeteroGraph
from jhgnn.inference.exported import export
from jhgnn.inference.new_rows import NewNodes
from jhgnn.inference.predictor import Predictor
from jhgnn.inference.trained_on import TrainedOn
from jhgnn.models import checked
from jhgnn.nn.model import Model
from jhgnn.runtime.console import Say
from jhgnn.runtime.jax_settings import configure_jax
from jhgnn.runtime.output_folder import write_output
from jhgnn.runtime.own_code import name_of
from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.execution import Execution
from jhgnn.training.hot import without_hot
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import TaskFactory, pose, read_graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Run:
    """A trained model with its graph, its scores, and the folder in which it lies.

    Attributes:
        folder: `recipe.toml`, `checkpoints/`, `metrics.jsonl`, `summary.json` and more (`docs/architecture.md`).
        config: the resolved recipe.
        execution: the problem, its model and the way to run it.
    """

    def __init__(self, execution: Execution, folder: Path, config: Config | None = None) -> None:
        """`config` is the recipe, where the execution's leaves out what only updates need."""
        self.execution, self.folder = execution, folder
        self.config = execution.config if config is None else config
        self._store = CheckpointStore(folder / "checkpoints")

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        config: Config | None = None,
        graph: HeteroGraph | None = None,
        model: type[Model] | None = None,
        task: TaskFactory | None = None,
        progress: bool = True,
    ) -> Self:
        """A run from its folder; a loss and metrics of one's own are not needed, since nothing is trained any more.

        Args:
            folder: as `jhgnn.train` or `fit` left it.
            config: the folder's recipe with changes, such as where the data lies now.
            graph: what was trained on, if it was in memory; None: read what the recipe names.
            model, task: those of one's own that were given to `fit`, where Python does not find them by the name that
                the recipe has.
            progress: show the readers' progress.

        Raises:
            InputError: an argument is of another type; the folder holds no run, none that is complete, or one of
                several seeds; the data has changed.
        """
        _check_kind("folder", folder, (str, os.PathLike), "a path")
        if config is not None:
            _check_kind("config", config, Config, "a Config")
        if graph is not None:
            _check_kind("graph", graph, HeteroGraph, "a HeteroGraph")
        if model is not None:
            checked(model, name_of(model))
        folder = Path(folder).expanduser()
        if config is None:
            config = read_recipe(folder)
        configure_jax()  # Orbax, which reads checkpoints, asks JAX for its devices
        store = CheckpointStore(folder / "checkpoints")
        seeds = sorted(path.parent for path in folder.glob("seed-*/checkpoints"))
        if seeds and not store.exists():
            raise InputError(f"run {folder}: holds a run of several seeds; name one of them, such as {seeds[0]}")
        store.progress()  # says what is wrong before any data is read
        if store.fallback:
            Say(quiet=not progress)(store.fallback)
        if graph is None and not (config.data.path or config.data.preset):
            raise InputError(
                f"run {folder}: was trained on a graph in memory; give it as Run.open(..., graph=...), or save it with"
                " save_graph and name its folder as data.path"
            )
        if graph is None:
            graph = read_graph(config, progress=progress)
        problem = pose(graph, without_updates(config), model=model, task=task)
        run = cls(execution_of(problem), folder, config)
        _ = run.params  # says now whether they are of this model and data
        return run

    @functools.cached_property
    def progress(self) -> Progress:
        """How far the training came."""
        return self._store.progress()

    @property
    def best_epoch(self) -> int:
        """The epoch whose parameters are kept; 0 if none was evaluated."""
        return self.progress.best_epoch

    @functools.cached_property
    def params(self) -> Any:
        """The best parameters, nested dictionaries of arrays."""
        return self._store.load_best_params(self.execution.abstract_params)

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says: scores, times, memory, versions; empty if the training did not end.

        Raises:
            InputError: the file cannot be read.
        """
        path = self.folder / "summary.json"
        if not path.exists():
            return {}
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None

    @property
    def scores(self) -> dict[str, float]:
        """The figures of the best parameters, such as `test_micro_f1`; empty if the training did not end."""
        figures = {name: value for name, value in self.summary.items() if name.partition("_")[0] in SPLITS}
        return {name: value for name, value in figures.items() if value is not None}

    @functools.cached_property
    def metrics(self) -> list[dict[str, float]]:
        """What was told of each evaluated epoch."""
        path = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    @functools.cached_property
    def _rows(self) -> Mapping[str, Any]:
        return self.execution.rows(self.params, self.config.run.seed)

    def predict(
        self,
        graph: HeteroGraph | None = None,
        *,
        nodes: Sequence[str] | Sequence[int] | np.ndarray | None = None,
        new_nodes: NewNodes = "refuse",
    ) -> np.ndarray:
        """Class probabilities of all target nodes, float32 `[num_targets, num_classes]`.

        Of links, a structured array with a row for each held-out one: `head`, `relation`, `tail`, `split`, `score`,
        and the filtered ranks `head_rank` and `tail_rank`.

        Args:
            graph: another graph of the same schema, such as one that has grown; None: the one that was trained on.
            nodes: keys of target nodes, or their numbers where they have none; the result has a row for each, in this
                order, and only their receptive field is computed. None: all.
            new_nodes: what becomes of nodes that training did not know, of types without features: `refuse`, or `mean`,
                the mean row of nodes that share a neighbour with them.

        Raises:
            InputError: the graph does not fit the model, a key is unknown, or a new node has no row.
        """
        if graph is not None or nodes is not None:
            predictor = self.predictor(graph, new_nodes=new_nodes)
            return predictor.probabilities(None if nodes is None else predictor.ids(nodes))
        return self.execution.task.predict(self.execution.structure, self.params, self._rows)

    def predictor(self, graph: HeteroGraph | None = None, *, new_nodes: NewNodes = "refuse") -> Predictor:
        """What predicts nodes of another graph, or of this one, question after question; as `predict` takes them."""
        config = without_updates(self.config)
        own = self.execution.graph if graph is None else graph
        return Predictor(config, self.execution.model, self.trained_on, own, lambda _: self.params, new_nodes=new_nodes)

    def explain(
        self,
        nodes: Sequence[str] | Sequence[int] | np.ndarray,
        *,
        graph: HeteroGraph | None = None,
        new_nodes: NewNodes = "refuse",
        folder: str | Path | None = None,
        **settings: Any,
    ) -> list[Explanation]:
        """What the predictions of some target nodes rest on; see `docs/explaining.md`.

        Args:
            nodes: their keys, or their numbers where they have none.
            graph, new_nodes: as `predict` takes them.
            folder: where `explanations.json` and `explanations.html` are written; None: nowhere.
            settings: fields of `jhgnn.config.options.ExplainConfig`, such as `top` and `steps`.

        Raises:
            InputError: as `predict`; a setting is unknown or impossible; the model erases types; a receptive field has
                too many edges; or the folder cannot be written.
            StorageError: there is no room for what is written, or its disk fails.
        """
        own = section_of(ExplainConfig, settings, "explain: ")
        predictor = self.predictor(graph, new_nodes=new_nodes)
        found = explain(predictor, predictor.ids(nodes).tolist(), own)
        if folder is not None:
            title = f"{self.config.model.name} on {predictor.graph.name}"
            write_output("folder", Path(folder).expanduser(), files_of(found, title))
        return found

    @property
    def trained_on(self) -> TrainedOn:
        """Types, categories and classes of the graph that was trained on; `from_tables` takes it as `like`."""
        return TrainedOn.of(self.execution.graph, one_hot=self.config.data.one_hot)

    def embeddings(self, node_type: str | None = None) -> np.ndarray:
        """What the head reads of all nodes of a type, float32 `[num_nodes, hidden]`; None: of the only one there is.

        Raises:
            InputError: the model makes no rows of the type.
        """
        known = self.execution.task.targets
        if node_type is None and len(known) == 1:
            node_type = known[0]
        if node_type not in known:
            raise InputError(
                f"embeddings of {node_type!r}: this run makes rows of {', '.join(known)}; name one of them"
            )
        return np.asarray(self._rows[node_type], np.float32)

    def export(self, folder: str | Path) -> Path:
        """Writes a program with its weights and inputs that JAX alone runs, on CPU and CUDA; see `docs/inference.md`.

        Its shapes are those of the graph that was trained on; its operations are XLA's own.

        Raises:
            InputError: this is no run of node classification, or the folder is there already or cannot be written.
        """
        place = Path(folder).expanduser()
        problem = dataclasses.replace(self.execution.problem, config=without_updates(self.config))
        export(problem, self.params, place)
        return place

    def prediction_files(self) -> dict[str, np.ndarray | str]:
        """What `jhgnn.predict` writes, by name of the file."""
        return self.execution.task.predictions(self.execution.structure, self.params, self._rows)

    def describe_predictions(self) -> str:
        """What was predicted, for a person."""
        return self.execution.task.describe_predictions()

    def plot(self) -> "Figure":
        """Losses and validation figures by epoch, a Matplotlib figure."""
        from jhgnn.training.reporting import curves

        return curves(self.metrics)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in list(self.scores.items())[:2])
        return f"Run({self.config.model.name} on {self.execution.graph.name}, {shown or 'not ended'}, {self.folder})"


def open_on(
    folder: Path, config: Config, graph: HeteroGraph, trained: TrainedOn, *, new_nodes: NewNodes = "refuse"
) -> tuple[Predictor, int]:
    """The predictor of a run folder on another graph, without the data that was trained on; and its best epoch.

    Args:
        folder: of the run.
        config: its recipe.
        graph: as read, tables by `trained`.
        trained: what the folder remembers.
        new_nodes: as `Run.predict`.

    Raises:
        InputError: the folder holds no complete run, or as `Predictor`.
    """
    configure_jax()
    store = CheckpointStore(folder / "checkpoints")
    best_epoch = store.progress().best_epoch
    if store.fallback:
        Say()(store.fallback)
    config = without_updates(config)
    model = models.find(config.model.name)
    return Predictor(config, model, trained, graph, store.load_best_params, new_nodes=new_nodes), best_epoch


def read_recipe(folder: Path) -> Config:
    """The recipe that a run folder keeps.

    Raises:
        InputError: the folder holds no run.
    """
    if not (folder / "recipe.toml").exists():
        raise InputError(f"run {folder}: holds no run (no recipe.toml); give the folder that train printed")
    return load_recipe(folder / "recipe.toml")


def remember(execution: Execution, folder: Path) -> None:
    """Writes into a run folder what another graph must be like; of node classification alone."""
    config = execution.config
    if config.task.name == "node_classification":
        TrainedOn.of(execution.graph, one_hot=config.data.one_hot).write(folder)


def without_updates(config: Config) -> Config:
    """The recipe where nothing is trained any more.

    No field of the training nodes is worked out, and neither a loss of one's own nor the figure that picked the best
    epoch, which may be a metric of one's own, is asked for. Nor are parts, since whoever predicts holds all rows, nor
    hot vertices, which only training has.
    """
    changes = {"loss": "", "monitor": "auto"}
    if not config.sampling.batch_size and config.task.name != "link_prediction":
        changes["rows"] = "all"
    alone = dataclasses.replace(
        config.distributed,
        strategy="data",
        parts="",
        method="",
        read="data",
        relation_shards=0,
        plan="",
        programs="auto",
    )
    training = dataclasses.replace(config.training, **changes)  # type: ignore[arg-type]
    return without_hot(dataclasses.replace(config, training=training, distributed=alone))


def _check_kind(name: str, given: Any, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Refuses an argument of `Run.open` that is of another type.

    Raises:
        InputError: it is.
    """
    if not isinstance(given, kinds):
        raise InputError(f"Run.open: {name} must be {wanted}, not {type(given).__name__}")
