"""Small random heterographs of every shape that interop must carry, and what "the same graph" means.

Imports neither JAX nor torch: `peers_round_trip.py` uses it in the environment of the peers.
"""

import numpy as np
from scipy import sparse

from jhgnn.graph.hetero_graph import HeteroGraph


def random_graph(seed: int, *, multi_label: bool = False, joined: bool = False, empty: bool = False) -> HeteroGraph:
    """Types with dense, sparse or no features; relations with parallel edges, weights or no edges; partial labels.

    `joined`: every type is at some relation's end; `empty`: one type has no nodes.
    """
    rng = np.random.default_rng(seed)
    types = [f"t{i}" for i in range(int(rng.integers(2, 5)))]
    num_nodes = {t: int(rng.integers(1, 9)) for t in types}
    target = types[int(rng.integers(len(types)))]
    if empty:
        num_nodes[next(t for t in types if t != target)] = 0
    features = {}
    for t in types:
        kind = rng.integers(3)
        matrix = rng.normal(size=(num_nodes[t], int(rng.integers(1, 6)))).astype(np.float32)
        if kind == 0:
            features[t] = matrix
        elif kind == 1:
            features[t] = sparse.csr_array(np.where(rng.random(matrix.shape) < 0.3, matrix, 0))
    ends = [(types[int(rng.integers(len(types)))], types[int(rng.integers(len(types)))]) for _ in range(3)]
    if joined:
        ends += [(t, target) for t in types]
    edges = {}
    for i, (source, sink) in enumerate(ends):
        count = int(rng.integers(0, 12)) if num_nodes[source] and num_nodes[sink] else 0
        arrays = [rng.integers(0, max(1, num_nodes[t]), count) for t in (source, sink)]
        if rng.random() < 0.4:
            arrays.append(rng.normal(size=count).astype(np.float32))
        edges[source, f"r{i}", sink] = tuple(arrays)
    count, classes = num_nodes[target], int(rng.integers(2, 5))
    labels = rng.integers(0, 2, (count, classes)) if multi_label else rng.integers(-1, classes, count)
    usable = np.arange(count) if multi_label else np.flatnonzero(labels >= 0)
    parts = np.array_split(rng.permutation(usable), 3)
    return HeteroGraph.from_arrays(
        name=f"random{seed}",
        num_nodes=num_nodes,
        edges=edges,
        features=features,
        target=target,
        labels=labels,
        num_classes=classes,
        splits={split: ids for split, ids in zip(("train", "val", "test"), parts, strict=True) if len(ids)},
    )


def assert_same_graph(got: HeteroGraph, want: HeteroGraph, *, ordered: bool = True, densified: bool = False) -> None:
    """Every array and name is equal, dtypes too; `ordered`: also the order of types and relations.

    `densified`: sparse features may have come back dense.
    """
    if ordered:
        assert got.schema == want.schema
        assert got.name == want.name
    assert set(got.schema.relations) == set(want.schema.relations)
    assert dict(got.num_nodes) == dict(want.num_nodes)
    assert set(got.features) == set(want.features)
    for node_type, features in want.features.items():
        other = got.features[node_type]
        if not densified:
            assert sparse.issparse(other) == sparse.issparse(features), node_type
        assert other.dtype == features.dtype == np.float32
        np.testing.assert_array_equal(_dense(other), _dense(features))
    for relation, edge_set in want.edges.items():
        other_edges = got.edges[relation]
        for field in ("indptr", "senders", "weights"):
            a, b = getattr(other_edges, field), getattr(edge_set, field)
            assert (a is None) == (b is None), (relation, field)
            if b is not None:
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
    assert (got.target, got.num_classes) == (want.target, want.num_classes)
    assert got.labels.dtype == want.labels.dtype
    np.testing.assert_array_equal(got.labels, want.labels)
    assert list(got.splits) == list(want.splits)
    for split, ids in want.splits.items():
        np.testing.assert_array_equal(got.splits[split], ids)


def _dense(features: object) -> np.ndarray:
    return features.toarray() if sparse.issparse(features) else features
