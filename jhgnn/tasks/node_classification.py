"""Node classification: the classes of the target type's nodes."""

import csv
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, HeteroGraph
from jhgnn.nn.classifier import Classifier
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.model import Model
from jhgnn.nn.stage import stage
from jhgnn.stores.host import HostRows
from jhgnn.tasks.class_counts import Loss, Metric, SplitCounts, count, count_batch, losses, scores
from jhgnn.tasks.class_weights import class_weights as weights_of
from jhgnn.tasks.task import Array, Request, Scores, Sum, Task

CHUNK_ROWS = 2**14
"""Rows that the head reads at a time, where the rows of all nodes are on the host."""


class ClassifiedModel(Model):
    """For type checkers: a model with this task's head."""

    classifier: Classifier


class NodeClassification(Task):
    """Softmax cross entropy over the classes, or a sigmoid for each where a node may have several.

    Examples are the ids of target nodes.
    """

    name: ClassVar[str] = "node_classification"
    by_example: ClassVar[bool] = True
    repeats: ClassVar[bool] = False
    figures: ClassVar[tuple[str, ...]] = ("micro_f1",)
    summarized: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "test": ("micro_f1", "macro_f1", "accuracy", "loss"),
        "val": ("micro_f1", "macro_f1", "loss"),
        "train": ("micro_f1",),
    }
    monitors: ClassVar[tuple[str, ...]] = ("loss", "micro_f1")

    def __init__(
        self,
        graph: HeteroGraph,
        *,
        label_smoothing: float = 0.0,
        class_weights: str = "",
        loss: Loss | None = None,
        metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        """
        Args:
            graph: with a target, labels and training nodes.
            label_smoothing: share of the target spread over all classes.
            class_weights: as `training.class_weights` of a recipe; the figure `loss` is not weighed.
            loss: replaces the cross entropy in training; the figure `loss` stays the cross entropy.
            metrics: further figures by name; `training.monitor` may name them.
        """
        self.graph, self.label_smoothing = graph, label_smoothing
        self.class_weights = weights_of(class_weights, graph)
        assert graph.target is not None
        self.target: str = graph.target
        self._loss: Loss | None = None
        self.metrics: dict[str, Metric] = {}
        self.customize(loss, metrics or {})

    def customize(self, loss: Loss | None, metrics: Mapping[str, Metric]) -> None:
        known = {name for names in self.summarized.values() for name in names}
        for name in metrics:
            if name in known:
                raise InputError(f"metric {name!r} is a figure already; name it otherwise")
        self._loss = loss or self._loss
        self.metrics |= metrics
        if metrics:
            self.figures = (*self.figures, *metrics)  # type: ignore[misc]
            self.monitors = (*self.monitors, *metrics)  # type: ignore[misc]
            self.summarized = {  # type: ignore[misc]
                split: (*names, *metrics) for split, names in self.summarized.items()
            }

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def splits(self) -> Mapping[str, np.ndarray]:
        empty = np.zeros(0, np.int32)
        return {split: self.graph.splits.get(split, empty) for split in SPLITS}

    def describe(self) -> str:
        splits = ", ".join(f"{len(ids):,} {split}" for split, ids in self.splits.items())
        return f"target {self.target}: {self.graph.num_classes} classes, {splits}"

    def add_head(self, model: Model, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        cast(ClassifiedModel, model).classifier = Classifier(config.hidden, self.graph.num_classes, rngs=rngs)

    def training_examples(self) -> np.ndarray:
        return self.splits["train"]

    def resident(self) -> np.ndarray:
        """Labels of all target nodes."""
        return np.asarray(self.graph.labels)

    def requests(self, resident: Any, ids: Array, seed: Array, step: Array) -> tuple[Request, ...]:
        return (Request(self.target, ids),)

    def loss(
        self, model: Model, rows: Sequence[jax.Array], resident: Any, ids: jax.Array, seed: jax.Array, step: jax.Array
    ) -> Sum:
        (embeddings,) = rows
        logits = cast(ClassifiedModel, model).classifier(embeddings)
        labels = resident.at[jnp.maximum(ids, 0)].get(mode="promise_in_bounds")
        with stage("LC", part="loss"):
            mask = ids >= 0
            own = self._loss
            each = self._weighed(logits, labels) if own is None else _of_rows(own(logits, labels), logits)
            return Sum(jnp.where(mask, each, 0.0).sum(), mask.sum(dtype=jnp.float32))

    def _weighed(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        return losses(logits, labels, self.label_smoothing, self.class_weights)

    def evaluate(self, model: Model, rows: Mapping[str, jax.Array], resident: Any) -> Any:
        """Traced: counts of each split, `resident` being labels and the ids of the splits; and logits for `metrics`."""
        labels, splits = resident
        logits = cast(ClassifiedModel, model).classifier(rows[self.target])
        counts = {split: count(logits, labels, ids) for split, ids in splits.items()}
        return counts, logits if self.metrics else None

    def infer(self, model: Model, rows: Mapping[str, jax.Array]) -> jax.Array:
        """Logits of all target nodes."""
        return cast(ClassifiedModel, model).classifier(rows[self.target])

    def scores(self, evaluated: Any, splits: Sequence[str]) -> Scores:
        counts, logits = evaluated
        ids = {split: self.splits[split] for split in splits if len(self.splits[split])}
        counts = jax.device_get({split: counts[split] for split in ids})  # one wait for all, not one for each
        found = {split: scores(counts[split], len(own)) for split, own in ids.items()}
        return self._with_metrics(found, logits, ids)

    def _with_metrics(self, found: Scores, logits: Any, ids: Mapping[str, np.ndarray]) -> Scores:
        if not self.metrics:
            return found
        logits, labels = np.asarray(logits), np.asarray(self.graph.labels)
        for split, own in ids.items():
            for name, metric in self.metrics.items():
                found[split][name] = _figure(name, metric(logits[own], labels[own]))
        return found

    def counts(self, model: Model, rows: jax.Array, labels: jax.Array, ids: jax.Array) -> SplitCounts:
        """Traced: counts of some target nodes, -1 for none, from their rows; the loss among them is a sum."""
        logits = cast(ClassifiedModel, model).classifier(rows)
        of_ids = labels.at[jnp.maximum(ids, 0)].get(mode="promise_in_bounds")
        return count_batch(logits, of_ids, ids >= 0)

    def scores_of_rows(
        self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, np.ndarray], splits: Mapping[str, np.ndarray]
    ) -> Scores:
        count_chunk, store, labels = jax.jit(functools.partial(self._count, structure)), HostRows(rows), self.resident()
        found = {}
        for split, ids in splits.items():
            if not len(ids):
                continue
            total = None
            for chunk in chunks_of(ids):
                counts = count_chunk(params, store.gather(self.target, chunk), labels[np.maximum(chunk, 0)], chunk)
                total = added(total, counts)
            found[split] = self.mean_scores(total, len(ids))
        if self.metrics and found:
            logits = self._from_rows(structure, params, rows, lambda logits: logits)
            self._with_metrics(found, logits, {split: splits[split] for split in found})
        return found

    def mean_scores(self, total: Any, num_rows: int) -> dict[str, float]:
        """Figures from counts added up over `num_rows` rows."""
        return scores(SplitCounts(total[0] / num_rows, *total[1:]), num_rows)

    def _count(
        self, structure: nnx.GraphDef, params: Any, rows: jax.Array, labels: jax.Array, ids: jax.Array
    ) -> SplitCounts:
        model = nnx.merge(structure, params)
        return count_batch(model.classifier(rows), labels, ids >= 0)

    def predictions(
        self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array]
    ) -> dict[str, np.ndarray | str]:
        """`predictions.csv`, `probabilities.npy` and `embeddings.npy` of all target nodes."""
        probabilities = self.predict(structure, params, rows)
        embeddings = np.asarray(rows[self.target], np.float32)
        return {
            "probabilities.npy": probabilities,
            "embeddings.npy": embeddings,
            "predictions.csv": predictions_csv(self.graph, probabilities),
        }

    def describe_predictions(self) -> str:
        return f"{self.graph.num_nodes[self.target]:,} {self.target} nodes"

    def predict(self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array]) -> np.ndarray:
        """Probabilities of each class, float32 `[num_targets, num_classes]`."""
        return self._from_rows(structure, params, rows, jax.nn.sigmoid if self.graph.multi_label else jax.nn.softmax)

    def _from_rows(
        self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array], function: Callable[[Any], Any]
    ) -> np.ndarray:
        """A function of the logits of all target nodes."""

        @jax.jit
        def classify(params: Any, embeddings: jax.Array) -> jax.Array:
            return function(nnx.merge(structure, params).classifier(embeddings))

        embeddings = rows[self.target]
        if isinstance(embeddings, jax.Array):
            return np.asarray(classify(params, embeddings))
        store, ids = HostRows(rows), np.arange(len(embeddings), dtype=np.int32)
        parts = [np.asarray(classify(params, store.gather(self.target, chunk))) for chunk in chunks_of(ids)]
        return np.concatenate(parts)[: len(ids)]


def chunks_of(ids: np.ndarray) -> list[np.ndarray]:
    """Ids in equal chunks of at most `CHUNK_ROWS`, the last one filled with -1."""
    size = min(CHUNK_ROWS, max(1, len(ids)))
    padded = np.full(-(-len(ids) // size) * size, -1, np.int32)
    padded[: len(ids)] = ids
    return list(padded.reshape(-1, size))


def added(total: list[np.ndarray] | None, counts: Any) -> list[np.ndarray]:
    """Counts added to a total in float64."""
    own = [np.asarray(each, np.float64) for each in counts]
    return own if total is None else [a + b for a, b in zip(total, own, strict=True)]


def predictions_csv(graph: HeteroGraph, probabilities: np.ndarray, ids: np.ndarray | None = None) -> str:
    """One row a target node: its key, predicted class (classes joined by `|`), its probability, label, split.

    `ids` are the nodes of the rows of `probabilities`; None: all target nodes in their order.
    Nodes and classes are called as the data calls them, by numbers where it has no keys or names. A node without a
    label or a split has an empty field there; for multi-label data the probability is that of the least certain class
    among those predicted, empty where none is.
    """
    assert graph.target is not None
    splits = np.full(graph.num_nodes[graph.target], "", dtype="<U5")
    for split, own in graph.splits.items():
        splits[own] = split
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", "predicted", "probability", "label", "split"])
    nodes = np.arange(len(probabilities)) if ids is None else ids
    keys = graph.node_keys(graph.target, nodes)
    names = graph.class_names or [str(number) for number in range(probabilities.shape[1])]
    for key, node, row in zip(keys, nodes.tolist(), probabilities, strict=True):
        predicted = np.flatnonzero(row > 0.5) if graph.multi_label else [int(row.argmax())]
        certainty = f"{row[predicted].min():.6f}" if len(predicted) else ""
        shown = ["|".join(names[each] for each in classes) for classes in (predicted, _labels(graph, node))]
        writer.writerow([key, shown[0], certainty, shown[1], splits[node]])
    return text.getvalue()


def _labels(graph: HeteroGraph, node: int) -> Sequence[int] | np.ndarray:
    """The classes of a node; none where it has no label."""
    assert graph.labels is not None
    if graph.multi_label:
        return np.flatnonzero(graph.labels[node])
    return [] if graph.labels[node] < 0 else [int(graph.labels[node])]


def _of_rows(each: Any, logits: jax.Array) -> jax.Array:
    """What a loss of somebody's own gave, if it has one number for each row.

    Raises:
        InputError: it has another shape, which would be spread over all rows without a word, or no real numbers.
    """
    if not isinstance(each, jax.Array) or each.shape != logits.shape[:1]:
        found = f"shape {list(each.shape)}" if hasattr(each, "shape") else type(each).__name__
        raise InputError(f"the loss gave {found} for {logits.shape[0]} rows; need an array with one loss a row")
    if not jnp.issubdtype(each.dtype, jnp.floating):
        raise InputError(f"the loss gave {each.dtype} numbers; need floating ones, which have gradients")
    return each


def _figure(name: str, value: Any) -> float:
    """What a metric of somebody's own gave, as a number.

    Raises:
        InputError: it is none.
    """
    if isinstance(value, str) or np.ndim(value) or not np.issubdtype(np.asarray(value).dtype, np.number):
        found = f"shape {list(np.shape(value))}" if np.ndim(value) else repr(value)
        raise InputError(f"metric {name!r} gave {found}; need one number")
    return float(value)
