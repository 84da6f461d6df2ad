"""Message weights of a semantic graph: values and gradients against float64, and who refuses them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_max import neighbor_max
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.ops.neighbor_sum import neighbor_sum

SENDERS = np.array([0, 1, 1, 4, 2, 2, 3])
RECEIVERS = np.array([0, 0, 0, 1, 1, 3, 3])
SOURCES, TARGETS, HEADS, WIDTH = 5, 4, 2, 3


def drawn(seed: int = 0):
    draw = np.random.default_rng(seed)
    graph = SemanticGraph.from_pairs(SENDERS, RECEIVERS, SOURCES, TARGETS, "r").with_views(("coo",))
    x = draw.normal(size=(SOURCES, HEADS, WIDTH))
    logits = draw.normal(size=(SOURCES, HEADS)), draw.normal(size=(TARGETS, HEADS))
    return graph, x, logits, draw.uniform(0.1, 1.0, len(SENDERS)), draw.normal(size=(TARGETS, HEADS, WIDTH))


def reference(op: str, graph, x, logits, weights):
    """One edge after the other, in float64."""
    receivers = np.repeat(np.arange(TARGETS), np.diff(graph.incoming.indptr))
    out = np.zeros((TARGETS, HEADS, WIDTH))
    for edge, (u, v) in enumerate(zip(graph.incoming.indices, receivers, strict=True)):
        into = receivers == v
        share = np.full(HEADS, {"mean": 1 / into.sum(), "sum": 1.0}.get(op, 0.0))
        if op == "attention":
            both = logits[0][graph.incoming.indices[into]] + logits[1][v]
            scores = np.exp(np.where(both > 0, both, 0.2 * both))
            own = logits[0][u] + logits[1][v]
            share = np.exp(np.where(own > 0, own, 0.2 * own)) / scores.sum(axis=0)
        out[v] += weights[edge] * share[:, None] * x[u]
    return out


def computed(op: str, graph, x, logits, weights):
    graph = dataclasses.replace(graph, message_weights=weights)
    if op == "attention":
        return neighbor_attention(graph, x, *logits, implementation="segment")
    function = neighbor_mean if op == "mean" else neighbor_sum
    return function(graph, x.reshape(SOURCES, -1), implementation="segment").reshape(TARGETS, HEADS, WIDTH)


@pytest.mark.parametrize("op", ["mean", "sum", "attention"])
def test_values_and_gradients_are_those_of_float64(op):
    graph, x, logits, weights, cotangent = drawn()
    single = jax.tree.map(lambda each: jnp.asarray(each, jnp.float32), (x, logits, weights))

    def score(x, logits, weights):
        return (computed(op, graph, x, logits, weights) * cotangent.astype(np.float32)).sum()

    np.testing.assert_allclose(computed(op, graph, *single), reference(op, graph, x, logits, weights), atol=1e-6)
    found = jax.tree.leaves(jax.jit(jax.grad(score, argnums=(0, 1, 2)))(*single))
    arrays = [x, *logits, weights]
    for which, gradient in enumerate(found):
        expected = np.zeros_like(arrays[which])
        for place in np.ndindex(expected.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [each.copy() for each in arrays]
                moved[which][place] += step
                out = reference(op, graph, moved[0], (moved[1], moved[2]), moved[3])
                sides.append((out * cotangent).sum())
            expected[place] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(gradient, expected, atol=2e-5)


def test_weights_of_one_change_nothing():
    graph, x, logits, weights, _ = drawn()
    ones = np.ones_like(weights, np.float32)
    x, logits = jax.tree.map(lambda each: jnp.asarray(each, jnp.float32), (x, logits))
    plain = neighbor_attention(graph, x, *logits, implementation="segment")
    np.testing.assert_array_equal(computed("attention", graph, x, logits, ones), plain)


def test_implementations_that_do_not_read_weights_refuse_them():
    graph, x, _, weights, _ = drawn()
    x = jnp.asarray(x, jnp.float32)
    weighed = dataclasses.replace(graph.with_views(("coo", "buckets", "adjacency")), message_weights=weights)
    for name in ("bucketed", "dense"):
        with pytest.raises(ValueError, match=f"'{name}' does not read message weights, which 'r' has"):
            neighbor_mean(weighed, x.reshape(SOURCES, -1), implementation=name)
    with pytest.raises(ValueError, match="does not read message weights"):
        neighbor_max(weighed, x.reshape(SOURCES, -1), implementation="segment")
