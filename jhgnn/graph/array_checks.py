"""What a heterograph's arrays must be like: a check returns the array as the graph keeps it, or says what is wrong."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.key_index import KeyIndex, RepeatedKeyError
from jhgnn.graph.schema import Relation
from jhgnn.graph.texts import as_texts

SPLITS = ("train", "val", "test")

MOST_CLASSES = 1 << 20
"""A damaged file may hold any number, and each class has weights and a line of a table, whether it is used or not."""


def key_index(keys: np.ndarray) -> KeyIndex:
    """The index of keys as a graph holds them; raises RepeatedKeyError."""
    return KeyIndex(keys if keys.dtype.kind == "i" else as_texts(keys))


@dataclasses.dataclass(frozen=True)
class ArrayChecks:
    """Validates one array at a time; every message starts with `where`."""

    where: str

    def error(self, message: str) -> InputError:
        return InputError(f"{self.where}: {message}" if self.where else message)

    def array(self, values: object, what: str) -> np.ndarray:
        """Any array or nested list as an array; rows of different lengths make none."""
        try:
            return np.asarray(values)
        except (ValueError, TypeError) as error:
            raise self.error(f"{what} cannot be made an array: {str(error).splitlines()[0]}") from None

    def table(self, values: object, what: str) -> None:
        """Refuses what is no dictionary."""
        if not isinstance(values, Mapping):
            raise self.error(f"{what} must be a dictionary, not {type(values).__name__}")

    def relation(self, key: object) -> Relation:
        """A relation from its three names."""
        if isinstance(key, Relation):
            return key
        if not isinstance(key, tuple) or len(key) != 3:
            raise self.error(f"edges have the key {key!r}; need (source type, relation, target type)")
        return Relation(*key)

    def ids(self, array: object, count: int, what: str) -> np.ndarray:
        ids = self.array(array, what)
        if ids.ndim != 1:
            raise self.error(f"{what} have shape {ids.shape}; need one dimension")
        if ids.size == 0:
            return np.zeros(0, np.int32)
        if ids.dtype.kind not in "iu":
            raise self.error(f"{what} are {ids.dtype}; need integers")
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= count:
            row = int(np.argmax((ids < 0) | (ids >= count)))
            needed = f"need 0 to {count - 1}" if count else "the type has no nodes"
            raise self.error(f"{what}: id {int(ids[row])} at row {row} is out of range; {needed}")
        return ids.astype(np.int32, copy=False)

    def edges(self, relation: Relation, arrays: EdgeSet | Sequence[np.ndarray], counts: Mapping[str, int]) -> EdgeSet:
        for node_type in (relation.source, relation.target):
            if node_type not in counts:
                raise self.error(
                    f"relation {str(relation)!r} ends at the unknown node type {node_type!r};"
                    f" known: {', '.join(counts)}"
                )
        if isinstance(arrays, EdgeSet):
            return self.edge_set(relation, arrays, counts)
        if not isinstance(arrays, Sequence | np.ndarray) or isinstance(arrays, str):
            kind = type(arrays).__name__
            raise self.error(f"edges of {str(relation)!r} are {kind}; need (senders, receivers) or an EdgeSet")
        if len(arrays) not in (2, 3, 4):
            raise self.error(
                f"relation {str(relation)!r} has {len(arrays)} arrays; need senders, receivers[, weights[, features]]"
            )
        senders = self.ids(arrays[0], counts[relation.source], f"senders of {str(relation)!r}")
        receivers = self.ids(arrays[1], counts[relation.target], f"receivers of {str(relation)!r}")
        if len(senders) != len(receivers):
            raise self.error(f"relation {str(relation)!r} has {len(senders)} senders but {len(receivers)} receivers")
        weights = None
        if len(arrays) > 2 and arrays[2] is not None:
            weights = self.array(arrays[2], f"weights of {str(relation)!r}")
            if weights.dtype.kind not in "fiub":
                raise self.error(f"weights of {str(relation)!r} are {weights.dtype}; need numbers")
            with np.errstate(over="ignore"):
                weights = weights.astype(np.float32)
            if weights.shape != senders.shape:
                raise self.error(f"relation {str(relation)!r} has {len(senders)} edges but weights {weights.shape}")
            self.finite(weights, f"weights of {str(relation)!r}")
        features = None
        if len(arrays) == 4 and arrays[3] is not None:
            if sparse.issparse(arrays[3]):
                raise self.error(f"features of {str(relation)!r} are sparse; need an array [num_edges, width]")
            dense = self.features(str(relation), arrays[3], len(senders))
            assert isinstance(dense, np.ndarray)
            features = dense
        return EdgeSet.from_pairs(senders, receivers, counts[relation.target], weights, None, features)

    def edge_set(self, relation: Relation, edges: EdgeSet, counts: Mapping[str, int]) -> EdgeSet:
        if edges.num_targets != counts[relation.target] or edges.indptr[-1] != edges.num_edges:
            raise self.error(f"edges of {str(relation)!r} are compressed for {edges.num_targets} receivers")
        if edges.num_edges:
            self.ids(edges.senders, counts[relation.source], f"senders of {str(relation)!r}")
        if edges.weights is not None:
            self.finite(edges.weights, f"weights of {str(relation)!r}")
        if edges.features is not None:
            self.features(str(relation), edges.features, edges.num_edges)
        return edges

    def keys(self, node_type: str, keys: object, count: int) -> np.ndarray:
        array = self.array(keys, f"keys of {node_type!r}")
        if array.shape != (count,):
            raise self.error(f"keys of {node_type!r} have shape {array.shape}; need ({count},)")
        if array.dtype.kind in "iu":
            array = array.astype(np.int64, copy=False)
        elif array.dtype.kind == "T" or all(isinstance(key, str) for key in array.tolist()):
            array = array.astype(np.dtypes.StringDType(), copy=False)
        else:
            raise self.error(f"keys of {node_type!r} are {array.dtype}; need integers or strings")
        try:
            key_index(array)
        except RepeatedKeyError as error:
            raise self.error(f"key {str(array[error.first])!r} of {node_type!r} stands twice: {error}") from None
        return array

    def times(self, node_type: str, times: object, count: int) -> np.ndarray:
        array = self.array(times, f"times of {node_type!r}")
        if array.shape != (count,) or array.dtype.kind not in "iu":
            raise self.error(f"times of {node_type!r} are {array.dtype} {array.shape}; need {count} integers")
        return array.astype(np.int64, copy=False)

    def finite(self, values: np.ndarray, what: str) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            row = int(np.argwhere(~finite)[0][0])
            raise self.error(f"{what}: {values[~finite].flat[0]} at row {row}; need finite numbers")

    def features(self, node_type: str, matrix: object, count: int) -> np.ndarray | sparse.csr_array:
        what = f"features of {node_type!r}"
        if sparse.issparse(matrix):
            with np.errstate(over="ignore"):  # beyond float32: infinite, refused below
                csr = sparse.csr_array(matrix).astype(np.float32)
            csr.sum_duplicates()
            shape, values = csr.shape, csr.data
        else:
            dense = self.array(matrix, what)
            if dense.dtype.kind not in "fiub":
                raise self.error(f"{what} are {dense.dtype}; need numbers")
            shape, values = dense.shape, dense
        if len(shape) != 2 or shape[0] != count:
            raise self.error(f"{what} have shape {shape}; need {count} rows")
        if shape[1] == 0:
            raise self.error(f"{what} have no columns; leave them out instead")
        if sparse.issparse(matrix):
            finite = np.isfinite(values)
            if not finite.all():
                entry = int(np.argmin(finite))
                row = int(np.searchsorted(csr.indptr, entry, side="right")) - 1
                raise self.error(f"{what}: {values[entry]} at row {row}; need finite numbers")
            return csr
        with np.errstate(over="ignore"):
            narrow = np.ascontiguousarray(values, np.float32)
        if values.dtype.kind == "f":
            self.finite(narrow, what)
        return narrow

    def labels(self, given: object, count: int, num_classes: int | None) -> tuple[np.ndarray, int]:
        labels = self.array(given, "labels")
        if num_classes is not None and (
            isinstance(num_classes, bool)
            or not isinstance(num_classes, int | np.integer)
            or not 1 <= num_classes <= MOST_CLASSES
        ):
            raise self.error(f"num_classes is {num_classes!r}; need a whole number from 1 to {MOST_CLASSES}, or None")
        if labels.ndim not in (1, 2) or len(labels) != count:
            raise self.error(f"labels have shape {labels.shape}; need {count} rows and one or two dimensions")
        if labels.dtype.kind not in "iub" and not (
            labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels == np.rint(labels)).all()
        ):
            raise self.error(f"labels are {labels.dtype} and not whole numbers; need class ids or zeros and ones")
        if labels.ndim == 2:
            if num_classes not in (None, labels.shape[1]):
                raise self.error(f"labels have {labels.shape[1]} columns but num_classes is {num_classes}")
            if not np.isin(labels, (0, 1)).all():
                raise self.error("multi-label labels hold something other than 0 and 1")
            return labels.astype(np.uint8), labels.shape[1]
        labels = labels.astype(np.int64)
        classes = min(int(labels.max(initial=-1)) + 1, MOST_CLASSES) if num_classes is None else num_classes
        bad = (labels < -1) | (labels >= classes)
        if bad.any():
            row = int(np.argmax(bad))
            raise self.error(f"label {int(labels[row])} at row {row} is out of range; need -1 to {classes - 1}")
        return labels.astype(np.int32), classes

    def splits(self, splits: Mapping[str, np.ndarray], count: int, labels: np.ndarray | None) -> dict[str, np.ndarray]:
        checked: dict[str, np.ndarray] = {}
        owner = np.full(count, -1, np.int8)
        for split, members in splits.items():
            if split not in SPLITS:
                raise self.error(f"split {split!r} is unknown; need {', '.join(SPLITS)}")
            array = self.array(members, f"ids of split {split!r}")
            if array.dtype == bool:
                if array.shape != (count,):
                    raise self.error(f"mask of split {split!r} has shape {array.shape}; need ({count},)")
                array = np.flatnonzero(array)
            ids = np.sort(self.ids(array, count, f"ids of split {split!r}"))
            if not len(ids):
                raise self.error(f"split {split!r} is empty; give it nodes or leave it out")
            if (ids[1:] == ids[:-1]).any():
                raise self.error(f"split {split!r} holds node {int(ids[1:][ids[1:] == ids[:-1]][0])} twice")
            taken = owner[ids] >= 0
            if taken.any():
                node = int(ids[np.argmax(taken)])
                raise self.error(f"splits overlap: node {node} is in {split!r} and {SPLITS[owner[node]]!r}")
            if labels is not None and labels.ndim == 1 and (labels[ids] < 0).any():
                node = int(ids[np.argmax(labels[ids] < 0)])
                raise self.error(f"split {split!r} holds the unlabelled node {node}")
            owner[ids] = SPLITS.index(split)
            checked[split] = ids
        return {split: checked[split] for split in SPLITS if split in checked}
