"""Task: what is learnt, whatever the model, the way of batching and the place of the rows.

A task adds a head to a model, says which nodes' rows its examples need, and turns those rows into a loss and into
figures (scores). It never asks whether the rows come from the whole graph or from a mini-batch.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import numpy as np
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.nn.inputs import GraphSpec, ModelInputs
from jhgnn.nn.model import Model

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing
Scores: TypeAlias = dict[str, dict[str, float]]
"""Figures by split and name."""


class Request(NamedTuple):
    """Nodes whose rows are needed: int32 ids `[n]` of one type, -1 for none; None: all nodes of the type, in order."""

    node_type: str
    ids: Array | None


class Sum(NamedTuple):
    """The losses of some examples added up, and how many of them count."""

    loss: jax.Array
    num_examples: jax.Array | float


class Task(abc.ABC):
    """Node classification, link prediction, or one of your own.

    Methods that are called "traced" run inside compiled programs, on one device's share of a batch.
    """

    name: ClassVar[str]
    by_example: ClassVar[bool]
    """Whether examples are nodes of one type, named by their ids, whose figures add up over batches. A full batch then
    holds all of them. For other tasks figures are made from the rows of all nodes, also in mini-batches."""
    repeats: ClassVar[bool] = True
    """Whether the requests of a batch may name a node more than once."""
    figures: ClassVar[tuple[str, ...]]
    """Names of the figures in `Scores` that a person is shown, the most telling first."""
    summarized: ClassVar[Mapping[str, tuple[str, ...]]]
    """Split -> the figures of it that a run's summary has; they are null where the split is empty."""
    monitors: ClassVar[tuple[str, ...]]
    """Figures by which the best epoch may be picked, the default first."""
    evaluated_each_epoch: ClassVar[tuple[str, ...]] = ("val", "test")

    graph: HeteroGraph
    """What messages pass over."""

    @property
    @abc.abstractmethod
    def targets(self) -> tuple[str, ...]:
        """The node types whose rows the task needs."""

    @property
    @abc.abstractmethod
    def splits(self) -> Mapping[str, np.ndarray]:
        """`train`, `val`, `test` -> the split's examples; the task decides what an example is."""

    @abc.abstractmethod
    def describe(self) -> str:
        """One line for a person: what is learnt, and on how many examples."""

    def customize(self, loss: Any, metrics: Mapping[str, Any]) -> None:
        """Replaces the loss, and adds figures by name.

        Raises:
            InputError: the task has none to replace.
        """
        raise InputError(f"task {self.name!r} takes no loss and no metrics of your own; give a task of your own")

    @abc.abstractmethod
    def add_head(self, model: Model, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        """Adds the task's head to a model, as attributes; `config` holds the model's own defaults already."""

    @abc.abstractmethod
    def training_examples(self) -> np.ndarray:
        """The training examples as batches name them, by number, int32 `[n]`."""

    @abc.abstractmethod
    def resident(self) -> Any:
        """Arrays that stay on every device, such as labels; NumPy."""

    @abc.abstractmethod
    def requests(self, resident: Any, ids: Array, seed: Array, step: Array) -> tuple[Request, ...]:
        """The nodes whose rows some training examples need; NumPy, or traced, as the arguments are.

        Args:
            resident: as `resident` gives it.
            ids: int32 `[n]` numbers of examples; -1 is no example, and asks for node -1.
            seed, step: uint32; draws, such as those of negatives, are functions of them.
        """

    def represent(self, model: Model, inputs: ModelInputs, rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Traced: from the rows that the model's layers made to those that the head reads, `[rows, hidden]` by type."""
        return dict(rows)

    @abc.abstractmethod
    def loss(
        self, model: Model, rows: Sequence[jax.Array], resident: Any, ids: jax.Array, seed: jax.Array, step: jax.Array
    ) -> Sum:
        """Traced: the loss of some training examples, from the represented rows of each of `requests`, `[n, hidden]`.

        Args:
            model: with its head.
            resident, ids, seed, step: as for `requests`.
        """

    @abc.abstractmethod
    def evaluate(self, model: Model, rows: Mapping[str, jax.Array], resident: Any) -> Any:
        """Traced: what `scores` reads, from the represented rows of all nodes."""

    @abc.abstractmethod
    def infer(self, model: Model, rows: Mapping[str, jax.Array]) -> Any:
        """Traced: what inference alone computes from the represented rows of all nodes, such as logits."""

    @abc.abstractmethod
    def scores(self, evaluated: Any, splits: Sequence[str]) -> Scores:
        """Figures of those splits that have examples, from what `evaluate` gave."""

    @abc.abstractmethod
    def scores_of_rows(
        self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, np.ndarray], splits: Mapping[str, np.ndarray]
    ) -> Scores:
        """Figures from the represented rows of all nodes on the host, of these examples of each split.

        Args:
            structure, params: the model with its head, `params` on one device.
        """

    def counts(self, model: Model, rows: jax.Array, resident: Any, ids: jax.Array) -> Any:
        """Traced: counts of some examples, -1 for none, as a pytree that adds up over batches (see `mean_scores`).

        Args:
            rows: the represented rows of the examples' nodes, `[n, hidden]`.
        """
        raise NotImplementedError(f"task {self.name!r} is by_example, so that mini-batches are evaluated by its counts")

    def mean_scores(self, total: Any, num_rows: int) -> dict[str, float]:
        """Figures of a task that is `by_example`, from the leaves of `counts`, added up over `num_rows` examples."""
        raise NotImplementedError(f"task {self.name!r} is by_example, so that it makes figures from its counts")

    @abc.abstractmethod
    def predict(self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array]) -> np.ndarray:
        """Predictions as one array, from the represented rows of all nodes."""

    @abc.abstractmethod
    def describe_predictions(self) -> str:
        """Says to a person what the predictions are made for, such as "3,025 papers"."""

    @abc.abstractmethod
    def predictions(
        self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array]
    ) -> dict[str, np.ndarray | str]:
        """The files that `jhgnn.predict` writes, by name, from the represented rows of all nodes."""

    def shown(self, scores: Scores) -> str:
        """The validation figures for a progress line, such as `, val micro-F1 0.9`; empty without."""
        if "val" not in scores:
            return ""
        return "".join(f", val {figure_text(name)} {scores['val'][name]:.4f}" for name in self.figures)

    def monitored(self, scores: Scores, monitor: str, train_loss: float) -> float:
        """The value of which less is better: a validation figure, negated where more is, or else the training loss."""
        if "val" not in scores:
            return train_loss
        return scores["val"][monitor] * (1.0 if monitor == "loss" else -1.0)


def figure_text(name: str) -> str:
    """A figure's name as it is shown to people."""
    return {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "mrr": "MRR", "auc": "AUC"}.get(name, name)
