"""Compressed edges of sampled tables: the same neighbours both ways, and the native ops on them as on the tables."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn import native
from jhgnn.graph.sampled import FrozenCounts, NeighborTable, SampledBlocks
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.sampling.compressed import with_edges

TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}  # float32 sums in another order


def blocks_of(seed: int, targets: int, width: int, sources: int, shards: int | None = None) -> SampledBlocks:
    """One table with random neighbours, some rows empty."""
    rng = np.random.default_rng(seed)
    shape = () if shards is None else (shards,)
    counts = rng.integers(0, width + 1, (*shape, targets)).astype(np.int32)
    senders = rng.integers(0, sources, (*shape, targets, width)).astype(np.int32)
    senders[np.arange(width) >= counts[..., None]] = 0
    table = NeighborTable(senders, counts, None, None, None, num_sources=sources, name="r")
    capacities = (FrozenCounts.of({"a": targets}), FrozenCounts.of({"a": sources}))
    return SampledBlocks({}, ({"r": table},), np.zeros((2, 1), np.int32), np.zeros((), bool), capacities, ("a",))


def pairs(indptr: np.ndarray, indices: np.ndarray) -> list[tuple[int, int]]:
    return sorted(zip(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)).tolist(), indices.tolist(), strict=True))


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 5), st.integers(1, 12))
def test_both_directions_hold_the_tables_neighbours_and_the_padding_apart(seed, targets, width, sources):
    blocks = with_edges(blocks_of(seed, targets, width, sources), ("r",))
    table = blocks.hops[0]["r"]
    edges = table.edges
    assert edges is not None
    expected = [(t, int(s)) for t in range(targets) for s in table.senders[t, : table.num_neighbors[t]]]
    padding = [(targets, 0)] * (targets * width - len(expected))
    assert pairs(edges.incoming.indptr, edges.incoming.indices) == sorted(expected + padding)
    turned = [(receiver, sender) for sender, receiver in pairs(edges.outgoing.indptr, edges.outgoing.indices)]
    assert sorted(turned) == sorted(expected + padding)
    for csr in (edges.incoming, edges.outgoing):
        assert csr.indptr.dtype == csr.indices.dtype == np.int32


def test_shards_are_compressed_one_by_one():
    both = with_edges(blocks_of(3, 4, 3, 6, shards=2), ("r",)).hops[0]["r"].edges
    assert both.incoming.indptr.shape == (2, 6)
    for shard in range(2):
        table = blocks_of(3, 4, 3, 6, shards=2).hops[0]["r"]
        own = jax.tree.map(lambda array, shard=shard: array[shard], table)
        alone = with_edges(dataclasses.replace(blocks_of(3, 4, 3, 6), hops=({"r": own},)), ("r",)).hops[0]["r"].edges
        jax.tree.map(
            lambda stacked, single, shard=shard: np.testing.assert_array_equal(stacked[shard], single), both, alone
        )


@pytest.mark.slow
@pytest.mark.skipif(not native.available(), reason="needs the native kernels")
@pytest.mark.parametrize("op", ["mean", "attention", "dropped attention"])
def test_native_ops_on_edges_equal_those_on_the_table_gradients_included(op):
    rng = np.random.default_rng(1)
    table = dataclasses.replace(
        with_edges(blocks_of(5, 40, 6, 70), ("r",)).hops[0]["r"],
        sender_ids=jnp.asarray(rng.integers(0, 10**9, 70), jnp.int32),
        receiver_ids=jnp.asarray(rng.integers(0, 10**9, 40), jnp.int32),
    )
    rate = 0.4 if op == "dropped attention" else 0.0
    z, src, dst = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((70, 2, 8), (70, 2), (40, 2)))

    def run(implementation, z, src, dst):
        if op == "mean":
            return neighbor_mean(table, z.reshape(70, -1), implementation=implementation)
        return neighbor_attention(
            table, z, src, dst, dropout_rate=rate, dropout_seed=jnp.uint32(9), implementation=implementation
        )

    np.testing.assert_allclose(run("native", z, src, dst), run("fanout", z, src, dst), **TOLERANCE)
    gradients = [
        jax.grad(lambda *x, each=each: jnp.sin(run(each, *x)).sum(), argnums=(0, 1, 2))(z, src, dst)
        for each in ("fanout", "native")
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), *gradients)


def test_a_table_without_its_edges_is_refused_by_native():
    table = blocks_of(5, 4, 6, 7).hops[0]["r"]
    with pytest.raises(ValueError, match="'r' was made without its 'edges' view"):
        neighbor_mean(table, jnp.ones((7, 2)), implementation="native")
