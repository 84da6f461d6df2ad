"""The planted labels: several relations together beat each one alone and the features alone, in closed form."""

import numpy as np
import pytest
from scipy import sparse

from jhgnn.data.synthetic import generate
from jhgnn.graph.hetero_graph import HeteroGraph

# (metapaths to combine, accuracy of all, least gain over the best single metapath with features, gain over features)
CASES = {
    "acm": (["PAP", "PSP"], (0.82, 0.93), 0.08, 0.2),
    "imdb": (["MDM", "MAM"], (0.65, 0.85), 0.03, 0.12),
    "dblp": (["APA", "APVPA", "APTPA"], (0.85, 0.95), 0.15, 0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imdb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("acm", "dblp"))])
def test_several_metapaths_are_needed(name: str) -> None:
    metapaths, (low, high), gain_over_one, gain_over_features = CASES[name]
    graph = generate(name)
    features = graph.features[graph.target].toarray()
    own = standardized(features)
    neighbours = {metapath: standardized(mean_along(graph, metapath) @ features) for metapath in metapaths}
    alone = accuracy(graph, [own])
    best_single = max(accuracy(graph, [own, block]) for block in neighbours.values())
    together = accuracy(graph, [own, *neighbours.values()])
    assert low < together < high
    assert together > best_single + gain_over_one
    assert together > alone + gain_over_features


@pytest.mark.slow
def test_several_relations_of_mag_are_needed() -> None:
    """Label histograms and mean features of neighbours over one relation or all, at a hundredth of the size."""
    graph = generate("mag", scale=0.01)
    features = graph.features["paper"]
    known = np.zeros((len(features), graph.num_classes), np.float32)
    known[graph.splits["train"], graph.labels[graph.splits["train"]]] = 1
    own = standardized(features)
    neighbours = {}
    for metapath in (["rev_writes", "writes"], ["has_topic", "rev_has_topic"], ["cites"]):
        mean = mean_along(graph, metapath)
        shares = mean @ known
        shares /= np.maximum(shares.sum(1, keepdims=True), 1e-6)
        neighbours[metapath[0]] = np.hstack([standardized(np.sqrt(shares)), standardized(mean @ features)])
    alone = accuracy(graph, [own], (1.0,))
    best_single = max(accuracy(graph, [own, block], (1.0,)) for block in neighbours.values())
    together = accuracy(graph, [own, *neighbours.values()], (1.0,))
    assert together > 1.5 * best_single
    assert together > 2.5 * alone


def test_label_noise_keeps_the_best_model_below_one() -> None:
    """The planted class itself predicts the label, but not always."""
    from jhgnn.data.synthetic import _Planting
    from jhgnn.data.synthetic_presets import ACM

    graph = generate("acm")
    planted = _Planting("acm", ACM, 1.0, 0)._classes("paper", 3025)
    agreement = (planted == graph.labels).mean()
    assert 0.95 < agreement < 0.99


def mean_along(graph: HeteroGraph, metapath: object) -> sparse.csr_array:
    """Mean over the metapath's boolean neighbours without the node itself; rows of isolated nodes are zero."""
    product = None
    for relation in graph.schema.metapath(metapath).relations:
        edge_set = graph.edges[relation]
        shape = (graph.num_nodes[relation.target], graph.num_nodes[relation.source])
        step = sparse.csr_array(
            (np.ones(edge_set.num_edges, np.float32), edge_set.senders, edge_set.indptr), shape=shape
        )
        product = step if product is None else step @ product
        product.data[:] = 1
    product = sparse.csr_array(product - sparse.diags_array(product.diagonal()))
    product.eliminate_zeros()
    degree = np.maximum(product.sum(1), 1)
    return sparse.csr_array(sparse.diags_array(1 / degree) @ product)


def standardized(block: np.ndarray) -> np.ndarray:
    """Centred, with mean squared row length 1, so that one ridge penalty suits every block."""
    centred = block - block.mean(0)
    return (centred / np.sqrt(np.mean(np.sum(centred**2, 1)))).astype(np.float64)


def accuracy(graph: HeteroGraph, blocks: list[np.ndarray], penalties: tuple[float, ...] = (0.03, 0.3)) -> float:
    """Test accuracy of ridge regression onto one-hot labels, in closed form; the penalty is chosen on the val split."""
    x = np.hstack(blocks)
    train, val, test = (graph.splits[split] for split in ("train", "val", "test"))
    onehot = np.eye(graph.num_classes)[graph.labels[train]]
    x -= x[train].mean(0)
    dual = len(train) < x.shape[1]
    gram = x[train] @ x[train].T if dual else x[train].T @ x[train]
    found = []
    for penalty in penalties:
        damped = gram + penalty * np.trace(gram) / len(gram) * np.eye(len(gram))
        weights = x[train].T @ np.linalg.solve(damped, onehot) if dual else np.linalg.solve(damped, x[train].T @ onehot)
        correct = np.argmax(x @ weights, 1) == graph.labels
        found.append((correct[val].mean(), correct[test].mean()))
    return float(max(found)[1])
