"""The ops over sampled blocks: with all neighbours, exactly the reference over the full graph, gradients included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.graph.sampled import NeighborTable, SampledBlocks
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops import neighbor_table
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan

CITES = Relation("paper", "cites", "paper")
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}  # float32 sums in another order
HEADS, WIDTH = 3, 4


@pytest.fixture(scope="module")
def full(graph) -> SemanticGraph:
    edges = graph.edges[CITES]
    return SemanticGraph.from_incoming(edges.indptr, edges.senders, 300, "cites").place(("coo",))


@pytest.fixture(scope="module")
def blocks(graph, seeds) -> SampledBlocks:
    plan = fan_out_plan(graph, {"cites": -1}, 1)
    sampled, _ = HostSampler(graph, plan).sample(seeds, 0, 0, fixed(plan.bound_capacities({"paper": 10})))
    return jax.device_put(sampled)


def sampled_mean(table: NeighborTable, x: jax.Array) -> jax.Array:
    return neighbor_mean(table, x, implementation="fanout")


def sampled_attention(
    table: NeighborTable, *arrays: jax.Array, seed: jax.Array | None = None, rate: float = 0.0
) -> jax.Array:
    seed = jnp.uint32(0) if seed is None else seed
    return neighbor_attention(table, *arrays, dropout_rate=rate, dropout_seed=seed, implementation="fanout")


def table_of(blocks: SampledBlocks) -> NeighborTable:
    return blocks.table(0, str(CITES), "paper", "paper")


def inputs(scale: float = 1.0) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(1)
    shapes = (300, HEADS, WIDTH), (300, HEADS), (300, HEADS)
    z, src, dst = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return jnp.asarray(z), jnp.asarray(src * scale), jnp.asarray(dst * scale)


def rows(values: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows by slot; padding slots get what must not matter."""
    padding = (ids < 0).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.where(padding, 1e30, values[jnp.maximum(ids, 0)])


def test_mean_of_all_neighbours_is_the_full_graphs(full, blocks, seeds) -> None:
    x = inputs()[0].reshape(300, -1)

    def sampled(x):
        out = sampled_mean(table_of(blocks), rows(x, blocks.nodes["paper"]))
        return out, jnp.sum(jnp.sin(out))

    def reference(x):
        out = rows(neighbor_mean(full, x, implementation="segment"), blocks.frontier(0, "paper"))
        out = jnp.where((blocks.frontier(0, "paper") < 0)[:, None], 0.0, out)
        return out, jnp.sum(jnp.sin(out))

    np.testing.assert_allclose(jax.jit(sampled)(x)[0], jax.jit(reference)(x)[0], **TOLERANCE)
    gradient, expected = (jax.jit(jax.grad(lambda x, of=each: of(x)[1]))(x) for each in (sampled, reference))
    np.testing.assert_allclose(gradient, expected, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "rate"), [(1.0, 0.0), (1e4, 0.0), (1.0, 0.6)])
def test_attention_over_all_neighbours_is_the_full_graphs(full, blocks, scale: float, rate: float) -> None:
    seed = jnp.uint32(77)

    def sampled(z, src, dst):
        out = sampled_attention(
            table_of(blocks),
            rows(z, blocks.nodes["paper"]),
            rows(src, blocks.nodes["paper"]),
            rows(dst, blocks.frontier(0, "paper")),
            seed=seed,
            rate=rate,
        )
        return out, jnp.sum(jnp.sin(out))

    def reference(z, src, dst):
        out = neighbor_attention(full, z, src, dst, dropout_rate=rate, dropout_seed=seed, implementation="segment")
        ids = blocks.frontier(0, "paper")
        out = jnp.where((ids < 0)[:, None, None], 0.0, rows(out, ids))
        return out, jnp.sum(jnp.sin(out))

    arguments = inputs(scale)
    np.testing.assert_allclose(jax.jit(sampled)(*arguments)[0], jax.jit(reference)(*arguments)[0], **TOLERANCE)
    gradients, expected = (
        jax.jit(jax.grad(lambda *a, of=function: of(*a)[1], argnums=(0, 1, 2)))(*arguments)
        for function in (sampled, reference)
    )
    for own, other in zip(gradients, expected, strict=True):
        assert np.isfinite(own).all()
        np.testing.assert_allclose(own, other, **TOLERANCE)


def test_attention_against_float64(blocks) -> None:
    table = jax.device_get(table_of(blocks))
    z, src, dst = (np.asarray(rows(a, blocks.nodes["paper"]), np.float64) for a in inputs())
    dst = dst[: table.num_targets]
    expected = np.zeros((table.num_targets, HEADS, WIDTH))
    for target in range(table.num_targets):
        senders = table.senders[target][table.mask[target]]
        if len(senders):
            logits = src[senders] + dst[target]
            exps = np.exp(np.where(logits > 0, logits, 0.2 * logits))
            expected[target] = np.einsum("kh,khd->hd", exps / exps.sum(axis=0), z[senders])
    arguments = (jnp.asarray(a, jnp.float32) for a in (z, src, dst))
    out = sampled_attention(table_of(blocks), *arguments)
    np.testing.assert_allclose(out, expected, **TOLERANCE)


def test_bfloat16_is_summed_in_float32(blocks) -> None:
    z, src, dst = (rows(a, blocks.nodes["paper"]).astype(jnp.bfloat16) for a in inputs())
    table = table_of(blocks)
    arguments = z, src, dst[: table.num_targets]
    out = sampled_attention(table, *arguments)
    exact = sampled_attention(table, *(a.astype(jnp.float32) for a in arguments))
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out, exact.astype(jnp.bfloat16))
    mean = sampled_mean(table, z[:, 0])
    assert mean.dtype == jnp.bfloat16
    np.testing.assert_array_equal(mean, sampled_mean(table, z[:, 0].astype(jnp.float32)).astype(jnp.bfloat16))


@pytest.mark.parametrize("heads", [(), (HEADS,)])
def test_sums_by_column_and_at_once_are_the_same(heads: tuple[int, ...]) -> None:
    """The second serves the platforms that tests do not run on."""
    rng = np.random.default_rng(2)
    senders = jnp.asarray(rng.integers(0, 30, (11, 7)), jnp.int32)
    weights, values, cotangent = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((11, 7, *heads), (30, *heads, 5), (11, *heads, 5))
    )
    by_column = jax.jit(neighbor_table.sum_by_column)(senders, weights, values)
    at_once, pull = jax.vjp(lambda w, v: neighbor_table.sum_at_once(senders, w, v), weights, values)
    np.testing.assert_allclose(by_column, at_once, **TOLERANCE)
    for gradients in (neighbor_table.gradients_by_column, neighbor_table.gradients_at_once):
        for own, other in zip(jax.jit(gradients)(senders, weights, values, cotangent), pull(cotangent), strict=True):
            np.testing.assert_allclose(own, other, **TOLERANCE)


def test_training_keeps_no_messages(blocks) -> None:
    """Residuals stay below one `[num_targets, width, heads, dim]` array."""
    table = table_of(blocks)
    z, src, dst = (rows(a, blocks.nodes["paper"]) for a in inputs())
    z = jnp.tile(z, (1, 1, 64))

    def attention(z, src, dst):
        return sampled_attention(table, z, src, dst[: table.num_targets])

    _, pull = jax.vjp(attention, z, src, dst)
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(pull))
    assert kept - z.nbytes < table.senders.size * z[0].nbytes / 4


def test_shapes_and_missing_ids_are_refused(blocks) -> None:
    table, (z, src, dst) = table_of(blocks), inputs()
    with pytest.raises(ValueError, match=r"need \["):
        sampled_mean(table, z[:5, 0])
    with pytest.raises(ValueError, match="need \\[sources, heads, width\\]"):
        sampled_attention(table, z, src, dst)
    bare = blocks.hops[0][str(CITES)]
    arguments = (rows(a, blocks.nodes["paper"]) for a in (z, src))
    with pytest.raises(ValueError, match="take the table from SampledBlocks"):
        sampled_attention(bare, *arguments, dst[:10], rate=0.5)
