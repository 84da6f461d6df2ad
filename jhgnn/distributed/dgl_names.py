"""Which of the arrays that DGL users name as they like are features, labels, splits and edge weights."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS

FEATURES = ("feat", "features", "feature", "x")
LABELS = ("label", "labels", "y")
WEIGHTS = ("weight", "weights", "w")
MASKS = {f"{split}_mask": split for split in SPLITS}


def first_of(names: Sequence[str], there: Collection[str]) -> str | None:
    """The first of some names that is there."""
    return next((name for name in names if name in there), None)


def labelled_type(names: Mapping[str, Collection[str]], target: str | None, where: str) -> str | None:
    """The node type with labels, from the names of each type's arrays.

    Raises:
        InputError: several types have labels and `target` names none of them, or `target` has none.
    """
    labelled = [node_type for node_type, own in names.items() if first_of(LABELS, own)]
    if target is not None:
        if target not in names:
            raise InputError(f"{where}: target {target!r} is not a node type; known: {', '.join(names)}")
        if labelled and target not in labelled:
            raise InputError(f"{where}: target {target!r} has no labels; labelled: {', '.join(labelled)}")
        return target
    if len(labelled) > 1:
        raise InputError(f"{where} labels several types: {', '.join(labelled)}; choose one with --data.target")
    return labelled[0] if labelled else None


def whole_labels(labels: np.ndarray, where: str) -> np.ndarray:
    """Class ids as int32 `[n]` or zeros and ones as uint8 `[n, classes]`; NaN, which some use for none, gives -1.

    Raises:
        InputError: they are not whole numbers, or not of one or two dimensions.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
        if not (labels == np.rint(labels)).all():
            row = int(np.argmax(labels != np.rint(labels)))
            raise InputError(f"{where}: label {labels[row]} at row {row} is not a whole number")
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "iufb":
        raise InputError(
            f"{where}: labels have shape {labels.shape} of {labels.dtype}; need class ids or zeros and ones"
        )
    return labels.astype(np.int32 if labels.ndim == 1 else np.uint8)
