"""`kernels.relations`: all semantic graphs of a layer as one give what they give one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from jhgnn import native
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from tests.executions import built, configured, loss_of, whole
from tests.models.heterographs import academic, with_edge_features

METAPATHS = (("written_by", "writes"), ("is_about", "covers"), ("written_by", "reviews"))
CASES = {
    "rgcn": {"name": "rgcn", "layers": 2},
    "rgcn without self-loops": {"name": "rgcn", "layers": 2, "self_loop": False},
    "rgcn, bases, residual": {"name": "rgcn", "layers": 3, "bases": 2, "residual": True, "layer_norm": True},
    "rgcn, blocks": {"name": "rgcn", "layers": 1, "blocks": 2},
    "rgat": {"name": "rgat", "layers": 2},
    "rgat without self-loops": {"name": "rgat", "layers": 3, "self_loop": False, "residual": True},
    "han": {"name": "han", "layers": 1, "metapaths": METAPATHS},
    "han, 2 layers": {"name": "han", "layers": 2, "metapaths": METAPATHS, "residual": True, "layer_norm": True},
}
FASTEST = "native" if native.available() else "segment"


def sparse_graph() -> HeteroGraph:
    """The academic graph with a relation within a type, one of a single edge, and few papers that have any."""
    graph = academic(papers=60)
    edges = {(each.source, each.name, each.target): (own.senders, own.receivers) for each, own in graph.edges.items()}
    edges["paper", "cites", "paper"] = (np.array([3, 3, 4, 9, 9]), np.array([4, 5, 4, 3, 3]))
    edges["author", "reviews", "paper"] = (np.array([2]), np.array([59]))
    return HeteroGraph.from_arrays(
        name="sparse",
        num_nodes=graph.num_nodes,
        edges=edges,
        features=graph.features,
        target=graph.target,
        labels=graph.labels,
        num_classes=graph.num_classes,
        splits=dict(graph.splits) | {"train": graph.splits["train"][:4]},
    )


def set_kernels(config, relations, rows="auto", **kernels):
    return dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, rows=rows),
        kernels=dataclasses.replace(config.kernels, relations=relations, **kernels),
    )


def losses_and_gradients(graph, config, *, double=False, **kernels):
    """By `kernels.relations`, with dropout."""
    found = {}
    for relations in ("apart", "packed"):
        chosen = set_kernels(config, relations, config.training.rows, **kernels)
        execution, params = built(graph, chosen)
        if double:
            chosen = dataclasses.replace(chosen, model=dataclasses.replace(chosen.model, dtype="float64"))
            execution = whole(graph, chosen)
        assert bool(execution.inputs.packed) == (relations == "packed")
        inputs = execution.resident.inputs

        def loss(params, inputs, ids, execution=execution):
            return loss_of(execution, params, inputs, ids, jnp.uint32(5))

        ids = execution.task.splits["train"]
        with jax.enable_x64(double):
            if double:
                params, inputs = jax.tree.map(as_double, (params, inputs))
            value = jax.jit(jax.value_and_grad(loss))(params, inputs, ids)
            found[relations] = jax.tree.map(np.asarray, value)
    return found["apart"], found["packed"]


def as_double(leaf):
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def assert_equal(found, expected, rtol, atol):
    np.testing.assert_allclose(found[0], expected[0], rtol=rtol)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected[1]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol * largest), found[1], expected[1])


@pytest.mark.parametrize("rows", ["all", "needed"])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_relations_apart_with_dropout(case, rows):
    if rows == "needed" and case.startswith("han"):
        pytest.skip("HAN computes all rows")
    config = configured(**CASES[case], feature_dropout=0.3, attention_dropout=0.4, dropout=0.3)
    apart, packed = losses_and_gradients(sparse_graph(), set_kernels(config, "auto", rows))
    assert_equal(packed, apart, 1e-5, 2e-6)


@pytest.mark.parametrize("implementation", ["segment", "bucketed"])
@pytest.mark.parametrize("case", ["rgcn", "rgat", "han"])
def test_float64_gradients_agree_to_rounding(case, implementation):
    config = configured(**CASES[case], feature_dropout=0.3, attention_dropout=0.4, dropout=0.3)
    kernels = {"attention": implementation, "mean": implementation, "projection": "dense"}
    config = set_kernels(config, "auto", "all")
    apart, packed = losses_and_gradients(sparse_graph(), config, double=True, **kernels)
    assert apart[0].dtype == packed[0].dtype == np.float64
    assert_equal(packed, apart, 1e-12, 1e-12)
