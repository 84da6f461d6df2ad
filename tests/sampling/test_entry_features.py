"""Features of sampled edges: the right ones by every sampler, and ops on them against float64 with padding."""

import dataclasses
import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn.graph.sampled import FrozenCounts, NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.entry_features import edge_features_of, with_entry_features
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.sampled_feed import SampledFeed
from tests.models.heterographs import academic
from tests.ops import reference
from tests.ops.tolerances import FLOAT32, assert_close
from tests.training.minibatches import recipe, sampled

SLOW = pytest.mark.slow
SOURCES, TARGETS, WIDTH, COLUMNS, HEADS, DEPTH = 6, 5, 4, 3, 2, 3


def drawn(seed: int) -> tuple[NeighborTable, np.ndarray, np.ndarray]:
    """A table whose rows have 0 to `WIDTH` neighbours, the edges of its entries, and those edges' features."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, WIDTH + 1, TARGETS).astype(np.int32)
    counts[rng.integers(TARGETS)] = 0
    senders = np.where(np.arange(WIDTH) < counts[:, None], rng.integers(0, SOURCES, (TARGETS, WIDTH)), 0)
    table = NeighborTable(senders.astype(np.int32), counts, None, None, None, num_sources=SOURCES, name="of")
    features = rng.normal(size=(9, COLUMNS)).astype(np.float32)
    return table, rng.integers(0, len(features), (TARGETS, WIDTH)), features


def with_kernels_view(table: NeighborTable) -> NeighborTable:
    blocks = SampledBlocks({}, ({"of": table},), np.zeros(1), np.zeros(()), (FrozenCounts(()),) * 2, ())
    return with_edges(blocks, ("of",)).hops[0]["of"]


@functools.partial(jax.jit, static_argnames="implementation")
def attend(table, z, src, dst, matrix, cotangent, *, implementation):
    """As `RGATLayer` reads edge features: the result, and the gradients by z, logits and the edges' matrix."""
    features = edge_features_of(table)

    def attended(z, src, dst, matrix):
        logit_src = src[features.senders] + features.rows @ matrix
        return neighbor_attention(table, z[features.senders], logit_src, dst, implementation=implementation)

    out, vjp = jax.vjp(attended, z, src, dst, matrix)
    return out, *vjp(cotangent)


@pytest.mark.parametrize("implementation", ["native", "fanout", pytest.param("bucketed", marks=SLOW)])
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=8, deadline=None)
def test_attention_on_sampled_edges_agrees_with_float64(implementation, seed):
    table, positions, features = drawn(seed)
    rng = np.random.default_rng(seed + 1)
    shapes = [(SOURCES, HEADS, DEPTH), (SOURCES, HEADS), (TARGETS, HEADS), (COLUMNS, HEADS), (TARGETS, HEADS, DEPTH)]
    z, src, dst, matrix, cotangent = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    split = with_entry_features(table, positions, features, splits=True)
    if implementation == "native":
        split = with_kernels_view(split)
    actual = attend(jax.device_put(split), z, src, dst, matrix, cotangent, implementation=implementation)
    rows, columns = np.nonzero(table.mask)
    senders, of_edges = table.senders[rows, columns], features[positions[rows, columns]].astype(np.float64)
    alone = SemanticGraph.from_pairs(np.arange(len(rows)), rows, len(rows), TARGETS)
    logits = src[senders].astype(np.float64) + of_edges @ matrix
    out, d_z, d_src, d_dst = reference.attention(alone, z[senders], logits, dst, cotangent)
    by_sender = np.eye(SOURCES)[senders].T
    expected = (out, np.einsum("se,ehd->shd", by_sender, d_z), by_sender @ d_src, d_dst, of_edges.T @ d_src)
    for name, ours, exact in zip(("out", "z", "src", "dst", "matrix"), actual, expected, strict=True):
        assert_close(ours, exact, FLOAT32, max(10.0, np.abs(exact).max(initial=0.0)), name)


@hypothesis.given(seed=st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=20, deadline=None)
def test_means_are_over_the_entries_that_count(seed):
    table, positions, features = drawn(seed)
    read = edge_features_of(jax.device_put(with_entry_features(table, positions, features, splits=False)))
    assert read.senders is None
    for row, count in enumerate(table.num_neighbors):
        own = features[positions[row, :count]].astype(np.float64)
        np.testing.assert_allclose(read.rows[row], own.mean(axis=0) if count else np.zeros(COLUMNS), atol=1e-6)


@pytest.mark.parametrize("splits", [False, True])
def test_host_device_and_shards_read_the_same(splits):
    (table, positions, features), (other, elsewhere, _) = drawn(3), drawn(4)
    host = with_entry_features(table, positions, features, splits=splits)
    device = with_entry_features(jax.device_put(table), jnp.asarray(positions), jnp.asarray(features), splits=splits)
    both = jax.tree.map(lambda *parts: np.stack(parts), table, other)
    shards = with_entry_features(both, np.stack([positions, elsewhere]), features, splits=splits)
    first = jax.tree.map(lambda leaf: leaf[0], shards)
    assert host.num_sources == device.num_sources == shards.num_sources
    for found in (device, first):
        jax.tree.map(np.testing.assert_array_equal, found, host)


@pytest.mark.parametrize("splits", [False, True])
def test_a_relation_without_edges_gives_zeros(splits):
    table = dataclasses.replace(drawn(0)[0], senders=np.zeros((2, 3), np.int32), num_neighbors=np.zeros(2, np.int32))
    none = np.zeros((0, COLUMNS), np.float32)
    for own, features in ((table, none), (jax.device_put(table), jnp.asarray(none))):
        made = with_entry_features(own, np.zeros((2, 3), np.int32), features, splits=splits)
        np.testing.assert_array_equal(made.entry_features, np.zeros((2, 3, COLUMNS)))


def telling_edges():
    """A graph in which the features of each edge are its sender, its receiver and its number."""
    graph = academic()
    edges = {
        relation: dataclasses.replace(
            own,
            features=np.column_stack([own.senders, own.receivers, np.arange(own.num_edges)]).astype(np.float32),
        )
        for relation, own in graph.edges.items()
    }
    return dataclasses.replace(graph, edges=edges)


def at_times(graph):
    """The same with times of edges and papers."""
    rng = np.random.default_rng(8)
    edges = {
        relation: dataclasses.replace(own, times=rng.integers(0, 8, own.num_edges))
        for relation, own in graph.edges.items()
    }
    return dataclasses.replace(graph, edges=edges, node_times={"paper": rng.integers(2, 9, graph.num_nodes["paper"])})


@pytest.mark.parametrize("side", ["host", *(pytest.param(side, marks=SLOW) for side in ("device", "times"))])
@pytest.mark.parametrize("name", ["rgat", pytest.param("rgcn", marks=SLOW)])
@pytest.mark.parametrize("fan_out", ["2,3", pytest.param("all", marks=SLOW)])
def test_each_entry_has_the_features_of_its_own_edge(name, side, fan_out):
    where = {"temporal": "until"} if side == "times" else {"side": side}
    config = recipe(name, edge_features=True, sampling={"fan_out": fan_out} | where)
    graph = at_times(telling_edges()) if side == "times" else telling_edges()
    execution = sampled(graph, config)
    batches = SampledFeed(execution.source, execution.batches(0)).iterate(Cursor())
    shard = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), next(batches).arguments[0])
    blocks = jax.jit(execution.reader(0).blocks)(execution.layout.resident, shard)
    batches.close()
    seen = 0
    for hop, tables in enumerate(blocks.hops):
        for draw_name, source, target in execution.sampling.endpoints:
            if draw_name not in tables:
                continue
            table = blocks.table(hop, draw_name, source, target)
            senders = np.asarray(table.sender_ids)[np.asarray(table.senders)]
            mask, features = np.asarray(table.mask), np.asarray(table.entry_features)
            receivers = np.broadcast_to(np.asarray(table.receiver_ids)[:, None], mask.shape)
            np.testing.assert_array_equal(features[mask][:, 0], senders[mask])
            np.testing.assert_array_equal(features[mask][:, 1], receivers[mask])
            np.testing.assert_array_equal(features[~mask], 0.0)
            for row in np.flatnonzero(mask.sum(axis=1)):  # drawn without replacement
                own = features[row, mask[row], 2]
                assert len(np.unique(own)) == len(own)
            seen += mask.sum()
    assert seen > 40
