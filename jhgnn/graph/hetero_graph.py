"""HeteroGraph: a heterograph on the host, in NumPy, immutable and never traced."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.array_checks import SPLITS, ArrayChecks, key_index
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.key_index import KeyIndex
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation, Schema
from jhgnn.graph.texts import Texts, as_texts

__all__ = ["SPLITS", "EdgeArrays", "EdgeSet", "Features", "HeteroGraph"]

Features: TypeAlias = np.ndarray | sparse.csr_array
EdgeArrays: TypeAlias = (
    Mapping[Relation, tuple[np.ndarray, ...]]
    | Mapping[Relation, "EdgeSet"]
    | Mapping[tuple[str, str, str], tuple[np.ndarray, ...]]
    | Mapping[Relation | tuple[str, str, str], tuple[np.ndarray, ...]]
)
"""Relation (or its three names) -> (senders, receivers[, weights[, features]]), or an `EdgeSet`."""


@dataclasses.dataclass(frozen=True, eq=False)
class HeteroGraph:
    """A heterograph: schema, node counts, features, edges, and the labels and splits of one target type.

    Build it with `from_arrays`, which validates; the plain constructor trusts its arguments.

    Attributes:
        name: what reports call it.
        schema: node types and relations.
        num_nodes: nodes of each type.
        features: float32 `[num_nodes, width]` dense, or CSR; a type without features is absent.
        edges: edges of each relation.
        target: the labelled node type, or None.
        labels: int32 `[num_targets]` (-1: unlabelled), uint8 `[num_targets, num_classes]` (multi-label), or None.
        num_classes: 0 without labels.
        splits: `train`, `val`, `test` -> int32 ids of target nodes, ascending, disjoint.
        links: a published split of edges to predict, which are all among `edges`; or None.
        keys: what the data calls its nodes: int64 or strings (`StringDType`) `[num_nodes]`; a type whose nodes have
            numbers alone is absent.
        node_times: int64 `[num_nodes]` of the types that have them; those of edges stand in `edges`.
        time_unit: `us`: microseconds since 1970-01-01 UTC; empty: whole numbers as the data gives them.
        class_names: what the data calls its classes, `[num_classes]`; or empty.
        columns: what the columns of each feature matrix mean, where the features came from tables.
        edge_columns: the same of edge features, by relation as `source:name:target`.
    """

    name: str
    schema: Schema
    num_nodes: Mapping[str, int]
    features: Mapping[str, Features]
    edges: Mapping[Relation, EdgeSet]
    target: str | None = None
    labels: np.ndarray | None = None
    num_classes: int = 0
    splits: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    links: LinkTriples | None = None
    keys: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    node_times: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    time_unit: str = ""
    class_names: tuple[str, ...] = ()
    columns: Mapping[str, tuple[FeatureColumn, ...]] = dataclasses.field(default_factory=dict)
    edge_columns: Mapping[str, tuple[FeatureColumn, ...]] = dataclasses.field(default_factory=dict)

    @property
    def multi_label(self) -> bool:
        return self.labels is not None and self.labels.ndim == 2

    @property
    def num_edges(self) -> int:
        return sum(edges.num_edges for edges in self.edges.values())

    @property
    def times(self) -> dict[str | Relation, np.ndarray]:
        """Every timestamp: node type -> int64 `[num_nodes]`, relation -> int64 `[num_edges]` in the edges' order."""
        times: dict[str | Relation, np.ndarray] = dict(self.node_times.items())
        times.update((relation, edges.times) for relation, edges in self.edges.items() if edges.times is not None)
        return times

    def node_ids(self, node_type: str, keys: Sequence[str] | Sequence[int] | np.ndarray) -> np.ndarray:
        """Numbers of the nodes with these keys, int32 `[num_keys]`; without keys of its own, a type's are 0, 1, 2, ...

        Keys are compared as text: 12 and "12" are one key.

        Raises:
            InputError: the type or a key is unknown.
        """
        if not isinstance(node_type, str) or node_type not in self.num_nodes:
            raise InputError(f"{node_type!r} is not a node type of {self.name!r}; known: {', '.join(self.num_nodes)}")
        if isinstance(keys, str) or not isinstance(keys, Iterable) or getattr(keys, "ndim", 1) != 1:
            raise InputError(f"keys of {node_type!r} must be a list or a one-dimensional array of keys, not {keys!r}")
        wanted = keys if isinstance(keys, np.ndarray) else Texts.from_strings(map(str, keys))
        if isinstance(wanted, np.ndarray) and wanted.dtype.kind not in "iu":
            wanted = as_texts(wanted)
        if node_type not in self._key_indices:
            own_keys = self.keys.get(node_type)
            numbers = np.arange(self.num_nodes[node_type], dtype=np.int64)
            self._key_indices[node_type] = KeyIndex(numbers) if own_keys is None else key_index(own_keys)
        found = self._key_indices[node_type].find(wanted)
        if (found < 0).any():
            key = wanted[int(np.argmax(found < 0))]
            own = self.keys.get(node_type, range(self.num_nodes[node_type]))
            example = f"; its first is {str(own[0])!r}" if len(own) else ""
            raise InputError(f"{str(key)!r} is no key of node type {node_type!r} in {self.name!r}{example}")
        return found

    def node_keys(self, node_type: str, ids: np.ndarray) -> np.ndarray:
        """What the data calls these nodes, `[num_ids]`: their keys, or their numbers where the type has no keys."""
        keys = self.keys.get(node_type)
        return np.asarray(ids, np.int64) if keys is None else keys[ids]

    @functools.cached_property
    def _key_indices(self) -> dict[str, KeyIndex]:
        """Built when keys of a type are first looked for."""
        return {}

    @classmethod
    def from_arrays(
        cls,
        *,
        num_nodes: Mapping[str, int],
        edges: EdgeArrays,
        features: Mapping[str, object] | None = None,
        target: str | None = None,
        labels: np.ndarray | None = None,
        num_classes: int | None = None,
        splits: Mapping[str, np.ndarray] | None = None,
        links: LinkTriples | None = None,
        keys: Mapping[str, np.ndarray] | None = None,
        node_times: Mapping[str, np.ndarray] | None = None,
        time_unit: str = "",
        class_names: Sequence[str] = (),
        columns: Mapping[str, tuple[FeatureColumn, ...]] | None = None,
        name: str = "graph",
        where: str = "",
    ) -> "HeteroGraph":
        """Validates plain arrays and compresses them.

        Args:
            num_nodes: nodes of each type.
            edges: relation (or its three names) -> (senders, receivers[, weights[, features]]), each `[num_edges]`, but
                for features, `[num_edges, width]`; weights may be None; or an `EdgeSet`.
            features: type -> dense `[num_nodes, width]` or any scipy sparse array; absent or None: no features.
            target: the labelled type.
            labels: `[num_targets]` class ids (-1: unlabelled) or `[num_targets, num_classes]` zeros and ones.
            num_classes: found from the labels where None; at most 1,048,576.
            splits: `train`, `val`, `test` -> node ids, or boolean masks `[num_targets]`.
            links: edges to predict; each must be an edge of its relation.
            keys: type -> integers or strings `[num_nodes]`, each once.
            node_times: type -> integers `[num_nodes]`; times of edges are given in an `EdgeSet`.
            time_unit: `us` or empty.
            class_names: `[num_classes]`, or empty.
            columns: type -> what the columns of its features mean; their widths add up to the matrix's.
            where: prefix of error messages, such as the file read.

        Raises:
            InputError: ids out of range, wrong lengths, features that are not finite, unknown types, splits that
                are empty, overlap or hold unlabelled nodes, labels out of range, a key that stands twice. The message
                names what is wrong.
        """
        check = ArrayChecks(where)
        check.table(num_nodes, "num_nodes")
        check.table(edges, "edges")
        optional = {"features": features, "splits": splits, "keys": keys, "node_times": node_times, "columns": columns}
        for what, table in optional.items():
            if table is not None:
                check.table(table, what)
        relations = tuple(check.relation(key) for key in edges)
        for node_type, count in num_nodes.items():
            number = isinstance(count, int | float | np.number) and not isinstance(count, bool)
            if not number or count != count or not 0 <= count < 2**31 or int(count) != count:
                raise check.error(f"node type {node_type!r} has {count!r} nodes; need a whole number below 2**31")
        schema = Schema(tuple(num_nodes), relations)
        counts = {node_type: int(count) for node_type, count in num_nodes.items()}
        given: Iterable[EdgeSet | tuple[np.ndarray, ...]] = edges.values()
        edge_sets = {
            relation: check.edges(relation, arrays, counts) for relation, arrays in zip(relations, given, strict=True)
        }
        checked_features = {}
        for node_type, matrix in (features or {}).items():
            if node_type not in counts:
                raise check.error(f"features for the unknown node type {node_type!r}; known: {', '.join(counts)}")
            if matrix is not None:
                checked_features[node_type] = check.features(node_type, matrix, counts[node_type])
        if target is not None and (not isinstance(target, str) or target not in counts):
            raise check.error(f"target {target!r} is not a node type; known: {', '.join(counts)}")
        if (labels is not None or splits) and target is None:
            raise check.error("labels or splits are given without a target node type")
        checked_labels, classes = None, 0
        if labels is not None and target is not None:
            checked_labels, classes = check.labels(labels, counts[target], num_classes)
        checked_splits = {}
        if splits and target is not None:
            checked_splits = check.splits(splits, counts[target], checked_labels)
        if links is not None:
            if not isinstance(links, LinkTriples):
                raise check.error(f"links must be LinkTriples, not {type(links).__name__}")
            links.check(counts, edge_sets, where)
        if time_unit not in ("", "us"):
            raise check.error(f"time_unit is {time_unit!r}; need 'us' or nothing")
        if not isinstance(class_names, Sequence | np.ndarray):
            raise check.error(f"class_names must be a list, not {type(class_names).__name__}")
        if len(class_names) and len(class_names) != classes:
            raise check.error(f"{len(class_names)} names for {classes} classes; need one for each, or none")
        for node_type in {**(keys or {}), **(node_times or {}), **(columns or {})}:
            if node_type not in counts:
                raise check.error(f"keys, times or columns of {node_type!r}; known types: {', '.join(counts)}")
        for node_type, parts in (columns or {}).items():
            width = sum(part.width for part in parts)
            if node_type not in checked_features or checked_features[node_type].shape[1] != width:
                raise check.error(f"columns of {node_type!r} are {width} wide, unlike its features")
        return cls(
            name,
            schema,
            counts,
            checked_features,
            edge_sets,
            target,
            checked_labels,
            classes,
            checked_splits,
            links,
            {node_type: check.keys(node_type, own, counts[node_type]) for node_type, own in (keys or {}).items()},
            {
                node_type: check.times(node_type, own, counts[node_type])
                for node_type, own in (node_times or {}).items()
            },
            time_unit,
            tuple(class_names),
            dict(columns or {}),
        )

    def without_empty(self) -> "HeteroGraph":
        """The graph without relations that have no edges and types that have no nodes, but for the target.

        Nothing that is computed from the rest changes; the names of metapaths may become shorter.
        """
        edges = {relation: own for relation, own in self.edges.items() if own.num_edges}
        kept = [name for name, count in self.num_nodes.items() if count or name == self.target]
        if len(edges) == len(self.edges) and len(kept) == len(self.num_nodes):
            return self

        def of_kept(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in values.items() if name in kept}

        links = self.links
        if links is not None and any(relation not in edges for relation in links.relations):
            links = links.of_relations(tuple(relation for relation in links.relations if relation in edges))
        return dataclasses.replace(
            self,
            schema=Schema(tuple(kept), tuple(edges)),
            num_nodes=of_kept(self.num_nodes),
            features=of_kept(self.features),
            edges=edges,
            links=links,
            keys=of_kept(self.keys),
            node_times=of_kept(self.node_times),
            columns=of_kept(self.columns),
        )

    def with_reverse_relations(self) -> "HeteroGraph":
        """Adds `rev_NAME` for every relation between two types that nothing joins backwards yet.

        A relation within one type gets a reverse as well, unless its edges are symmetric, or another relation
        already holds them backwards (as HGB ACM's `ref` does for `cite`). Doing it twice changes nothing more.
        """
        edges = dict(self.edges)
        for relation, edge_set in self.edges.items():
            back = relation.reversed()
            between = self.schema.relations_between(relation.target, relation.source)
            if back in edges or (relation.source != relation.target and between):
                continue
            reverse = edge_set.reversed(self.num_nodes[relation.source])
            if not any(self.edges[other].joins_as(reverse) for other in between):
                edges[back] = reverse
        schema = Schema(self.schema.node_types, tuple(edges))
        return dataclasses.replace(self, schema=schema, edges=edges)
