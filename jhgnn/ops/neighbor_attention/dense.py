"""For dense semantic graphs: masked dense attention a head at a time, tiled over targets, recomputed in the backward.

Peak memory is a few `[tile, num_sources]` arrays, not `[num_targets, num_sources, heads]`.
"""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.random.counter_hash import edge_bits, keep_threshold

TILE_ELEMENTS = 1 << 20
"""Elements of one `[tile, num_sources]` block: 4 MiB in float32, so that a block's few arrays stay in cache."""


def neighbor_attention(
    graph: SemanticGraph,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """See `jhgnn.ops.neighbor_attention`. Work grows with `num_targets * num_sources * heads`."""
    if graph.adjacency is None:
        raise ValueError(f"semantic graph {graph.name!r} was placed without its 'adjacency' view, which 'dense' reads")
    heads, width = z.shape[1:]
    if graph.num_edges == 0 or width == 0 or heads == 0:
        return jnp.zeros((graph.num_targets, heads, width), z.dtype)
    accumulator = jnp.promote_types(z.dtype, jnp.float32)
    tile = max(1, min(graph.num_targets, TILE_ELEMENTS // graph.num_sources))
    num_tiles = -(-graph.num_targets // tile)
    padding = num_tiles * tile - graph.num_targets
    adjacency = jnp.pad(graph.adjacency, ((0, padding), (0, 0))).reshape(num_tiles, tile, graph.num_sources)
    targets = jnp.arange(graph.num_targets) if graph.receiver_ids is None else graph.receiver_ids
    targets = jnp.pad(targets.astype(jnp.uint32), (0, padding)).reshape(num_tiles, tile)
    senders = jnp.arange(graph.num_sources) if graph.sender_ids is None else graph.sender_ids
    logit_tiles = jnp.pad(logit_dst.astype(accumulator), ((0, padding), (0, 0))).reshape(num_tiles, tile, heads)
    logit_src, z_by_head = logit_src.astype(accumulator).T, z.astype(accumulator).transpose(1, 0, 2)

    def one_head(block: tuple[jax.Array, jax.Array, jax.Array], head: tuple[jax.Array, ...]) -> jax.Array:
        counts, target_ids, _ = block
        head_id, z_head, logit_src_head, logit_dst_head = head
        scores = jax.nn.leaky_relu(logit_dst_head[:, None] + logit_src_head[None, :], negative_slope)
        shift = jax.lax.stop_gradient(jnp.max(jnp.where(counts > 0, scores, -jnp.inf), axis=1, initial=-jnp.inf))
        shift = jnp.where(jnp.isfinite(shift), shift, 0.0)
        # Masked before exp: exp of an absent edge's score may overflow, and 0 * inf poisons the gradient.
        shifted = jnp.where(counts > 0, scores - shift[:, None], -jnp.inf)
        weights = counts.astype(accumulator) * jnp.exp(shifted)
        total = weights.sum(axis=1)
        if dropout_rate > 0.0:
            bits = edge_bits(seed, senders.astype(jnp.uint32)[None, :], target_ids[:, None], head_id)
            weights = jnp.where(bits >= jnp.uint32(keep_threshold(dropout_rate)), weights, 0.0)
            weights = weights / (1.0 - dropout_rate)
        return (weights @ z_head) / jnp.where(total > 0, total, 1.0)[:, None]

    @jax.checkpoint
    def one_block(block: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        per_head = (jnp.arange(heads, dtype=jnp.uint32), z_by_head, logit_src, block[2].T)
        return jax.lax.map(lambda head: jax.checkpoint(one_head)(block, head), per_head)  # [heads, tile, width]

    out = jax.lax.map(one_block, (adjacency, targets, logit_tiles))
    out = out.transpose(0, 2, 1, 3).reshape(num_tiles * tile, heads, width)
    return out[: graph.num_targets].astype(z.dtype)
