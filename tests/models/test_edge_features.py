"""`model.edge_features`: every implementation against float64, values and gradients; and what it does not go with."""

import dataclasses
import functools

import hypothesis
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import strategies as st

import jhgnn
from jhgnn import models
from jhgnn.errors import InputError
from jhgnn.graph.edge_features import split_senders
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.semantic_graph import VIEWS, SemanticGraph
from jhgnn.ops.neighbor_attention import neighbor_attention
from tests.executions import built, configured, forward, loss_of, whole
from tests.models.heterographs import academic, with_edge_features
from tests.ops import reference
from tests.ops.tolerances import FLOAT32, assert_close
from tests.test_fit import IN_BATCHES, small

LONG = [pytest.mark.slow, pytest.mark.long]
ATTENTION = [
    "native",
    pytest.param("segment", marks=pytest.mark.slow),
    pytest.param("dense", marks=LONG),
    pytest.param("bucketed", marks=LONG),
]
HEADS, WIDTH, EDGE_WIDTH = 2, 3, 2


@functools.partial(jax.jit, static_argnames=("implementation",))
def attend(graph, senders, rows, z, src, dst, matrix, cotangent, *, implementation):
    """As `RGATLayer` reads edge features: the result, and the gradients by z, logits and the edges' matrix."""

    def attended(z, src, dst, matrix):
        logit_src = src[senders] + rows @ matrix
        return neighbor_attention(graph, z[senders], logit_src, dst, implementation=implementation)

    out, vjp = jax.vjp(attended, z, src, dst, matrix)
    return out, *vjp(cotangent)


@pytest.mark.parametrize("implementation", ATTENTION)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), distinct=st.booleans())
@hypothesis.settings(max_examples=8, deadline=None)
def test_attention_agrees_with_float64(implementation, seed, distinct):
    """An edge a sender in the reference, so that each has a logit of its own."""
    rng = np.random.default_rng(seed)
    num_sources, num_targets, count = 6, 5, 24
    senders, receivers = rng.integers(0, num_sources, count), rng.integers(0, num_targets - 1, count)
    draws = rng.normal(size=(count, EDGE_WIDTH)) if distinct else rng.integers(0, 2, (count, EDGE_WIDTH))
    edges = EdgeSet.from_pairs(senders, receivers, num_targets, features=draws.astype(np.float32))
    shapes = [(num_sources, HEADS, WIDTH), (num_sources, HEADS), (num_targets, HEADS), (EDGE_WIDTH, HEADS)]
    z, src, dst, matrix = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    cotangent = rng.normal(size=(num_targets, HEADS, WIDTH)).astype(np.float32)
    graph, features = split_senders(edges)
    placed = graph.place(VIEWS)
    actual = attend(
        placed, features.senders, features.rows, z, src, dst, matrix, cotangent, implementation=implementation
    )
    alone = SemanticGraph.from_pairs(np.arange(count), edges.receivers, count, num_targets)
    logits = src[edges.senders].astype(np.float64) + edges.features.astype(np.float64) @ matrix
    out, d_z, d_src, d_dst = reference.attention(alone, z[edges.senders], logits, dst, cotangent)
    by_sender = np.eye(num_sources)[edges.senders].T
    expected = (
        out,
        np.einsum("se,ehd->shd", by_sender, d_z),
        by_sender @ d_src,
        d_dst,
        edges.features.T.astype(np.float64) @ d_src,
    )
    for name, ours, exact in zip(("out", "z", "src", "dst", "matrix"), actual, expected, strict=True):
        assert_close(ours, exact, FLOAT32, max(10.0, np.abs(exact).max()), name)


def of_kernels(graph, name, key, implementation):
    config = configured(name=name, layers=1, edge_features=True)
    kernels = dataclasses.replace(config.kernels, **{key: implementation})
    return built(graph, dataclasses.replace(config, kernels=kernels))


def gradient(execution, params, step_seed=None):
    ids = jnp.asarray(execution.task.training_examples())
    loss = functools.partial(loss_of, execution)
    return jax.jit(jax.grad(lambda params: loss(params, execution.inputs, ids, step_seed)))(params)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "key", "implementation"),
    [
        pytest.param(name, key, each, marks=[] if (name, each) == ("rgat", "native") else pytest.mark.long)
        for name, key in (("rgat", "attention"), ("rgcn", "mean"))
        for each in ("native", "dense", "bucketed")
    ],
)
def test_models_agree_with_the_reference_implementation(name, key, implementation):
    """Values and all gradients, under the same dropout, which hashes the ids of original senders."""
    graph = with_edge_features(academic())
    execution, params = of_kernels(graph, name, key, implementation)
    exact, _ = of_kernels(graph, name, key, "segment")
    seed = jnp.uint32(7)
    ours, theirs = forward(execution, params, seed).logits, forward(exact, params, seed).logits
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5 * np.abs(theirs).max())
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max() + 1e-7),
        gradient(execution, params, seed),
        gradient(exact, params, seed),
    )


@pytest.mark.parametrize("name", ["rgat", pytest.param("rgcn", marks=pytest.mark.slow)])
def test_features_that_weigh_nothing_change_nothing_even_under_dropout(name):
    graph, options = with_edge_features(academic()), {"name": name, "layers": 1, "attention_dropout": 0.4}
    execution, params = built(graph, configured(edge_features=True, **options))
    bare = whole(graph, configured(**options))
    key = "edge_logits" if name == "rgat" else "edge_projection"
    assert set(params["layers"][0][key]["w_io"]) == {"author:writes:paper", "subject:covers:paper"}
    zeros = jax.tree.map(np.zeros_like, params["layers"][0][key])
    unweighed = params | {"layers": {0: params["layers"][0] | {key: zeros}}}
    without = params | {"layers": {0: {name: own for name, own in params["layers"][0].items() if name != key}}}
    seed = jnp.uint32(3)
    ours, theirs = forward(execution, unweighed, seed).logits, forward(bare, without, seed).logits
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert np.abs(forward(execution, params, seed).logits - theirs).max() > 1e-3


@pytest.mark.slow
@pytest.mark.long
def test_types_of_edges_within_one_relation_decide(compile_cache):
    """The neighbours of both classes are the same; only the type of an edge says whose class counts."""
    rng = np.random.default_rng(0)
    papers, per_paper = 100, 4
    labels = rng.integers(0, 2, papers)
    receivers = np.repeat(np.arange(papers), per_paper)
    kinds = np.tile(np.arange(per_paper) % 2, papers)
    topics = np.where(kinds == 0, labels[receivers], rng.integers(0, 2, len(receivers)))  # kind 1 says nothing
    split = rng.permutation(papers)
    graph = jhgnn.HeteroGraph.from_arrays(
        num_nodes={"paper": papers, "topic": 2},
        edges={("topic", "of", "paper"): (topics, receivers, None, np.eye(2)[kinds])},
        features={"paper": np.ones((papers, 1)), "topic": np.eye(2)},
        target="paper",
        labels=labels,
        splits={"train": split[:40], "val": split[40:60], "test": split[60:]},
    )
    options = {
        "model": "rgat",
        "hidden": 8,
        "heads": 2,
        "layers": 1,
        "epochs": 60,
        "learning_rate": 0.05,
        "dropout": 0,
    }
    with_types, without = (small(graph, **options, edge_features=reads) for reads in (True, False))
    assert with_types.scores["test_micro_f1"] > 0.97 > without.scores["test_micro_f1"]


@pytest.mark.usefixtures("compile_cache")
def test_a_run_with_edge_features_is_opened_and_predicts_a_grown_graph():
    graph = with_edge_features(academic())
    run = small(graph, model="rgcn", edge_features=True)
    again = jhgnn.Run.open(run.folder, graph=graph)
    np.testing.assert_array_equal(again.predict(), run.predict())
    np.testing.assert_allclose(run.predict(graph, nodes=[3, 0]), run.predict()[[3, 0]], atol=1e-6)
    (relation,) = (each for each in graph.edges if each.name == "writes")
    narrow = dataclasses.replace(graph.edges[relation], features=graph.edges[relation].features[:, :1])
    other = dataclasses.replace(graph, edges=graph.edges | {relation: narrow})
    with pytest.raises(InputError, match=r"edges of 'author:writes:paper' have 1 columns of features; training had 4"):
        run.predict(other)
    empty = EdgeSet.from_pairs(np.zeros(0, int), np.zeros(0, int), graph.num_nodes["paper"])
    assert np.isfinite(run.predict(dataclasses.replace(graph, edges=graph.edges | {relation: empty}))).all()
    with pytest.raises(InputError, match=r"cannot be shown on a receptive field"):
        run.explain([0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "han"}, "model.edge_features are read by 'rgcn' and 'rgat', not by 'han'"),
        ({"model": "gat"}, "model.edge_features are read by 'rgcn' and 'rgat', not by 'gat'"),
        ({"sampling": {"batch_size": 8, "hot": "stale"}}, "keeps sums over neighbours without them; use 'none'"),
        ({"sampling": {"batch_size": 8}, "distributed": {"strategy": "raf"}}, "use distributed.strategy = 'data'"),
        ({"rows": "needed"}, "use training.rows = 'all' or 'auto'"),
        ({"task": "link_prediction"}, "for classes of nodes, not for links"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_it_does_not_go_with_is_one_line(changes, message):
    with pytest.raises(InputError, match=message):
        small(with_edge_features(academic()), **{"model": "rgcn", "edge_features": True, **changes})


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("compile_cache")
@pytest.mark.parametrize("sampling", [{}, {"sampling": IN_BATCHES}], ids=["whole", "batches"])
@pytest.mark.parametrize("name", ["rgat", "rgcn"])
def test_an_exported_program_reads_them(name, sampling, tmp_path):
    graph = with_edge_features(academic())
    run = small(graph, model=name, edge_features=True, **sampling)
    run.export(tmp_path / "program")
    program = jax.export.deserialize(bytearray((tmp_path / "program" / "program.bin").read_bytes()))
    weights, inputs = (dict(np.load(tmp_path / "program" / f"{part}.npz")) for part in ("weights", "graph"))
    found = program.call(weights, inputs)["probabilities"]
    np.testing.assert_allclose(found, run.predict(), atol=1e-6)
    inputs["edge_features/author:writes:paper"][:] = 0
    assert np.abs(np.asarray(program.call(weights, inputs)["probabilities"]) - found).max() > 1e-6


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("remat", ["na", "full"])
def test_what_is_computed_again_is_the_same(remat):
    graph = with_edge_features(academic())
    execution, params = built(graph, configured(name="rgat", layers=1, edge_features=True))
    ids = jnp.asarray(execution.task.training_examples())
    gradients = [
        jax.jit(jax.grad(lambda params, how=how: loss_of(execution, params, execution.inputs, ids, remat=how)))(params)
        for how in ("none", remat)
    ]
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7), gradients[0], gradients[1]
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["rgat", "rgcn"])
def test_in_bfloat16_they_are_rounded(name):
    graph = with_edge_features(academic())
    execution, params = built(graph, configured(name=name, layers=1, edge_features=True))
    narrow, _ = built(graph, configured(name=name, layers=1, edge_features=True, dtype="bfloat16"))
    exact, rounded = forward(execution, params).logits, forward(narrow, params).logits
    assert 0 < np.abs(exact - rounded).max() < 0.05 * np.abs(exact).max()


def test_a_model_built_without_edge_features_to_read_says_so():
    graph = with_edge_features(academic())
    spec, _ = jhgnn.nn.whole_graph(graph)
    config = dataclasses.replace(configured().model, name="rgcn", edge_features=True)
    with pytest.raises(InputError, match="has no features of edges; leave them out"):
        models.find("rgcn")(config, spec, rngs=nnx.Rngs(0))


def test_edges_without_features_are_one_line():
    with pytest.raises(
        InputError, match="no relation of 'academic' has features of edges; add features to an edge tab"
    ):
        small(academic(), model="rgcn", edge_features=True)
