"""Weights of classes in the loss of node classification: as a recipe names them, or balanced by the training labels."""

import numpy as np

from jhgnn.config.class_weights import BALANCED, by_class
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph


def class_weights(text: str, graph: HeteroGraph) -> np.ndarray | None:
    """Float64 `[num_classes]`; None where nothing is weighed.

    Balanced, with n training nodes, of which n_c have class c, and k classes that occur among them:

        one class a node:      n / (k n_c), so that each class counts alike, and the mean weight of a node is 1;
        several classes a node: (n - n_c) / n_c, so that having a class counts as much as not having it.

    A class without training nodes, or for several classes one that all have, weighs 1.

    Args:
        text: as `training.class_weights`.
        graph: with a target, labels and training nodes.

    Raises:
        InputError: a class is unknown.
    """
    if not text:
        return None
    names = graph.class_names or tuple(str(number) for number in range(graph.num_classes))
    weights = np.ones(graph.num_classes)
    if text != BALANCED:
        for name, weight in by_class(text).items():
            if name not in names:
                raise InputError(
                    f"training.class_weights: {name!r} is no class of {graph.target!r}; known: {', '.join(names[:20])}"
                    + (f" and {len(names) - 20} more" if len(names) > 20 else "")
                )
            weights[names.index(name)] = weight
        return weights
    labels = np.asarray(graph.labels)[graph.splits["train"]]
    if graph.multi_label:
        having = labels.sum(axis=0, dtype=np.int64)
        some = (having > 0) & (having < len(labels))
        weights[some] = (len(labels) - having[some]) / having[some]
        return weights
    counts = np.bincount(labels, minlength=graph.num_classes)
    present = counts > 0
    weights[present] = len(labels) / (present.sum() * counts[present])
    return weights
