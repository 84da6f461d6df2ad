"""Layers and ops in somebody's own `jax.jit` loop, without recipes, tasks or anything else of the package."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jhgnn
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.models.rgat import RGATLayer
from jhgnn.models.rgcn import RGCNLayer
from jhgnn.nn import AttentionAggregation, Block, GraphSpec, ModelConfig, plan_layers
from jhgnn.ops.neighbor_mean import OP, neighbor_mean
from tests.models.heterographs import academic

CLASSES = 3


def descend(loss, params, steps: int = 60) -> list[float]:
    """Somebody's own loop: losses of Adam on `loss(params)`, compiled once."""
    optimizer, compilations = optax.adam(0.03), []

    @jax.jit
    def step(params, state):
        compilations.append(1)
        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    state, values = optimizer.init(params), []
    for _ in range(steps):
        params, state, value = step(params, state)
        values.append(float(value))
    assert len(compilations) == 1
    return values


@pytest.fixture(scope="module")
def graph() -> jhgnn.HeteroGraph:
    return academic()


def cross_entropy(logits: jax.Array, graph: jhgnn.HeteroGraph) -> jax.Array:
    ids = graph.splits["train"]
    return optax.softmax_cross_entropy_with_integer_labels(logits[ids], graph.labels[ids]).mean()


@pytest.mark.slow
@pytest.mark.parametrize("layer_class", [RGCNLayer, RGATLayer])
def test_a_layer_is_trained_in_a_loop_of_ones_own(layer_class, graph):
    relations = {str(relation): relation for relation in graph.schema.relations}
    widths = {"paper": 12, "author": 5, "subject": 6}
    config = ModelConfig(hidden=8, heads=2, activation="elu")
    spec = GraphSpec(
        num_nodes=graph.num_nodes,
        feature_widths=widths,
        targets=("paper",),
        relations=relations,
        metapaths=(),
        implementations=dict.fromkeys(relations, "segment"),
        sparse_implementation="segment",
    )
    (plan,) = plan_layers(relations, spec.targets, num_layers=1, reads_targets=True)
    rng = np.random.default_rng(0)
    rows = {name: jnp.asarray(rng.normal(size=(graph.num_nodes[name], widths[name])), jnp.float32) for name in widths}
    graphs = {}
    for name, relation in relations.items():
        edges, num_sources = graph.edges[relation], graph.num_nodes[relation.source]
        graphs[name] = SemanticGraph.from_incoming(edges.indptr, edges.senders, num_sources, name).place(("coo",))

    class Own(nnx.Module):
        def __init__(self, rngs):
            self.layer = layer_class(0, plan, widths, config, spec, rngs=rngs)
            self.head = nnx.Linear(config.hidden, CLASSES, rngs=rngs)

    structure, params = nnx.split(Own(nnx.Rngs(0)), nnx.Param)

    def loss(params, graphs=graphs):
        own = nnx.merge(structure, params)
        made = own.layer(rows, Block(graphs, graph.num_nodes))
        assert set(made) == {"paper"}
        return cross_entropy(own.head(made["paper"]), graph)

    gradients = jax.grad(loss)(params)
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(gradients))
    losses = descend(loss, params)
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("implementation", OP.names(SemanticGraph, "cpu"))
def test_an_op_is_trained_through_in_a_loop_of_ones_own(implementation, graph):
    """Authors' embeddings are learnt through the mean over each paper's authors, as NumPy computes it."""
    (edges,) = (own for relation, own in graph.edges.items() if relation.name == "writes")
    writes = SemanticGraph.from_pairs(edges.senders, edges.receivers, 25, 40).place(OP.views(implementation))
    rng = np.random.default_rng(0)
    params = {"x": jnp.asarray(rng.normal(size=(25, CLASSES)), jnp.float32), "bias": jnp.zeros(CLASSES)}

    def logits(params):
        return neighbor_mean(writes, params["x"], implementation=implementation) + params["bias"][None]

    counts = np.zeros((40, 25))
    np.add.at(counts, (edges.receivers, edges.senders), 1)
    expected = counts @ np.asarray(params["x"]) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(logits(params), expected, rtol=1e-5, atol=1e-6)
    losses = descend(lambda params: cross_entropy(logits(params), graph), params)
    assert losses[-1] < 0.6 * losses[0]


def test_attention_alone_weighs_all_neighbours_alike_at_first(graph):
    """With attention vectors of zeros it is the mean."""
    (edges,) = (own for relation, own in graph.edges.items() if relation.name == "writes")
    writes = SemanticGraph.from_pairs(edges.senders, edges.receivers, 25, 40, "writes").place(("coo",))
    own = AttentionAggregation(["writes"], 2, 4, negative_slope=0.2, dropout_rate=0.0, rngs=nnx.Rngs(0))
    own.a_src_rhd[...] = own.a_dst_rhd[...] = jnp.zeros((1, 2, 4))
    z = jnp.asarray(np.random.default_rng(0).normal(size=(25, 8)), jnp.float32)
    logits = own.logits(z, ["writes"], [])["writes/src"]
    attended = own(writes, z, logits, jnp.zeros((40, 2)), layer=0, step_seed=None, implementation="segment")
    np.testing.assert_allclose(attended, neighbor_mean(writes, z, implementation="segment"), rtol=1e-5, atol=1e-6)
