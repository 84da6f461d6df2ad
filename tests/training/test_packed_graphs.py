"""`kernels.relations`: all semantic graphs of a layer as one give what they give one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from jhgnn import native
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.models import find
from jhgnn.training.checks import check
from tests.executions import built, configured, forward, loss_of, whole
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
QUICK = ("rgcn, bases, residual", "rgat", "han, 2 layers")


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
@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_loss_and_gradients_are_those_of_relations_apart_with_dropout(case, rows):
    if rows == "needed" and case.startswith("han"):
        pytest.skip("HAN computes all rows")
    config = configured(**CASES[case], feature_dropout=0.3, attention_dropout=0.4, dropout=0.3)
    apart, packed = losses_and_gradients(sparse_graph(), set_kernels(config, "auto", rows))
    assert_equal(packed, apart, 1e-5, 2e-6)


@pytest.mark.parametrize("implementation", ["segment", pytest.param("bucketed", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ["rgcn", "rgat", "han"])
def test_float64_gradients_agree_to_rounding(case, implementation):
    config = configured(**CASES[case], feature_dropout=0.3, attention_dropout=0.4, dropout=0.3)
    kernels = {"attention": implementation, "mean": implementation, "projection": "dense"}
    config = set_kernels(config, "auto", "all")
    apart, packed = losses_and_gradients(sparse_graph(), config, double=True, **kernels)
    assert apart[0].dtype == packed[0].dtype == np.float64
    assert_equal(packed, apart, 1e-12, 1e-12)


def test_evaluation_is_that_of_relations_apart():
    for case in ("rgcn", "rgat", "han"):
        config = configured(**CASES[case])
        outputs = [
            forward(*built(sparse_graph(), set_kernels(config, relations))).logits for relations in ("apart", "packed")
        ]
        np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-5)


def one_hot(**model):
    config = configured(name="rgcn", layers=2, **model)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, one_hot=True))


@pytest.mark.parametrize("rows", ["all", "needed"])
@pytest.mark.parametrize("model", [{"bases": 2}, {"bases": 2, "self_loop": False}, {}])
def test_one_hot_inputs_read_rows_of_the_weight(model, rows):
    """Sparse identities, of which each slot reads the row of its relation and node."""
    config = set_kernels(one_hot(dropout=0.2, feature_dropout=0.3, **model), "auto", rows)
    apart, packed = losses_and_gradients(sparse_graph(), config)
    assert_equal(packed, apart, 1e-5, 2e-6)


COMBINED = "; one-hot rows of combined bases, no matrix of a relation is made"


def steps(config, count=8):
    """Parameters after some steps of training on one-hot inputs, and the types of which the run says so."""
    execution, params = built(sparse_graph(), config)
    optimizer = optax.adam(0.01)
    state = optimizer.init(params)
    ids = execution.task.splits["train"]

    @jax.jit
    def step(params, state, inputs, seed):
        gradients = jax.grad(lambda params: loss_of(execution, params, inputs, ids, seed))(params)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state

    for seed in range(count):
        params, state = step(params, state, execution.resident.inputs, jnp.uint32(seed))
    said = {choice.subject for choice in execution.choices if choice.reason.endswith(COMBINED)}
    groups = execution.resident.inputs.packed[-1].senders.groups
    assert said == {each for each, own in groups.items() if isinstance(own.features, OneHotSlots)}
    return jax.tree.map(np.asarray, params), said


@pytest.mark.skipif(not native.available(), reason="needs the native kernels")
@pytest.mark.parametrize("rows", [pytest.param("all", marks=pytest.mark.slow), "needed"])
def test_one_hot_inputs_train_by_bases_as_by_all_matrices(rows):
    config = one_hot(bases=2, dropout=0.2, feature_dropout=0.3)
    fused, combined = steps(set_kernels(config, "packed", rows))
    assert combined
    stacked, combined = steps(set_kernels(config, "packed", rows, projection="segment"))
    assert not combined
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), fused, stacked)


@pytest.mark.slow
def test_one_hot_inputs_in_bfloat16_are_as_near_to_float32_as_by_all_matrices():
    exact = losses_and_gradients(sparse_graph(), one_hot(bases=2))[0]
    apart, packed = losses_and_gradients(sparse_graph(), one_hot(bases=2, dtype="bfloat16"))
    assert abs(packed[0] - exact[0]) < 2 * abs(apart[0] - exact[0]) + 1e-3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.1, atol=0.01), packed[1], exact[1])


@pytest.mark.parametrize(("rows", "expected"), [(2, False), (400, True)])
def test_bases_are_combined_where_slots_are_no_more_than_the_rows_of_all_matrices(rows, expected):
    """Features that rows share make small matrices, which are read more often than they have rows."""
    if not native.available():
        pytest.skip("needs the native kernels")
    graph = sparse_graph()
    tables = {
        name: sparse.csr_array((np.ones(count), (np.arange(count), np.arange(count) % rows)), shape=(count, rows))
        for name, count in graph.num_nodes.items()
    }
    config = set_kernels(configured(name="rgcn", layers=1, bases=2), "packed")
    execution = whole(dataclasses.replace(graph, features=tables), config)
    groups = execution.inputs.packed[-1].senders.groups
    assert {isinstance(own.features, OneHotSlots) for own in groups.values()} == {expected}


def test_bfloat16_is_as_near_to_float32_as_relations_apart():
    exact = losses_and_gradients(sparse_graph(), configured(**CASES["rgat"]))[0]
    rounded = configured(**CASES["rgat"], dtype="bfloat16")
    apart, packed = losses_and_gradients(sparse_graph(), rounded)
    assert abs(packed[0] - exact[0]) < 2 * abs(apart[0] - exact[0]) + 1e-3


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**16), name=st.sampled_from(["rgcn", "rgat"]), rows=st.sampled_from(["all", "needed"]))
def test_random_graphs_of_many_relations(seed, name, rows):
    """Relations within and between types, some of one edge, some of which no edge leads to what is trained."""
    rng = np.random.default_rng(seed)
    counts = {"x": 30, "y": 9}
    edges = {}
    for number in range(int(rng.integers(2, 12))):
        source, target = rng.choice(["x", "y"], 2)
        size = int(rng.choice([1, 4, 40]))
        edges[source, f"r{number}", target] = tuple(rng.integers(0, counts[each], size) for each in (source, target))
    edges["y", "last", "x"] = (np.array([0]), np.array([1]))
    graph = HeteroGraph.from_arrays(
        name="many",
        num_nodes=counts,
        edges=edges,
        target="x",
        labels=rng.integers(0, 3, 30),
        num_classes=3,
        splits={"train": np.sort(rng.choice(30, 5, replace=False))},
    )
    config = configured(name=name, layers=2, attention_dropout=0.4, dropout=0.3)
    apart, packed = losses_and_gradients(graph, set_kernels(config, "auto", rows))
    assert_equal(packed, apart, 1e-5, 5e-6)


def test_auto_packs_where_few_nodes_have_an_edge_of_a_relation():
    assert not whole(academic(), configured(name="rgcn")).inputs.packed
    rng = np.random.default_rng(0)
    edges = {("x", f"r{number}", "x"): tuple(rng.integers(0, 200, (2, 9))) for number in range(6)}
    graph = HeteroGraph.from_arrays(
        name="few",
        num_nodes={"x": 200},
        edges=edges,
        target="x",
        labels=rng.integers(0, 3, 200),
        num_classes=3,
        splits={"train": np.arange(5)},
    )
    execution = whole(graph, configured(name="rgcn"))
    assert execution.inputs.packed
    assert not execution.inputs.graphs
    assert "of 1,200 projected rows have an edge" in execution.choices[0].reason
    assert execution.semantic_edges() == {f"x:r{number}:x": 9 for number in range(6)}


@pytest.mark.parametrize(
    ("model", "kernels", "message"),
    [
        (
            {"name": "han", "metapaths": METAPATHS, "shared_projection": True},
            {},
            "'han' with these settings aggregates",
        ),
        ({"name": "gcn"}, {}, "'gcn' with these settings aggregates"),
        ({"name": "rgat", "edge_features": True}, {}, "edge_features are read along each relation"),
        ({"name": "rgat"}, {"attention": "dense"}, "kernels.attention = 'dense' multiplies each graph's adjacency"),
    ],
)
def test_what_cannot_be_packed_is_refused_by_name_and_left_apart_by_auto(model, kernels, message):
    graph, config = with_edge_features(sparse_graph()), configured(**model)
    with pytest.raises(InputError, match=message):
        whole(graph, set_kernels(config, "packed", **kernels))
    assert not whole(graph, set_kernels(config, "auto", **kernels)).inputs.packed


def test_minibatches_have_no_packed_graphs():
    config = set_kernels(configured(name="rgcn"), "packed")
    config = dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, batch_size=8))
    with pytest.raises(
        InputError, match=r"kernels.relations = 'packed' is of whole graphs, and sampling.batch_size = 8"
    ):
        check(config, find("rgcn"))
