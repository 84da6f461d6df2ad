"""Neighbor aggregation (NA): what each relation or metapath sends to its receivers, by mean or by attention."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.nn import recompute
from jhgnn.nn.dropout import site_seed
from jhgnn.nn.stage import border, stage
from jhgnn.ops.neighbor_attention import fanout as fanout_attention
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_mean import fanout as fanout_mean
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.ops.neighbor_sum import neighbor_sum


def mean_aggregation(
    graph: SemanticGraph | NeighborTable,
    z: jax.Array,
    *,
    layer: int,
    implementation: str,
    weights: jax.Array | None = None,
) -> jax.Array:
    """Mean over in-edges, `[num_sources, width]` to `[num_targets, width]`, or their sum with `weights` `[num_edges]`.

    A sampled table has one implementation, `fanout`; a semantic graph the one that is named, which for weights is
    `native` or `segment`.
    """
    with stage("NA", layer, graph.name):
        if isinstance(graph, NeighborTable):
            out = fanout_mean.neighbor_mean(graph, z)
        elif weights is not None:
            out = neighbor_sum(graph, z, weights, implementation=implementation)
        else:
            out = neighbor_mean(graph, z, implementation=implementation)
        return border(out, "na_out")


class AttentionAggregation(nnx.Module):
    """Graph attention along several semantic graphs of one layer: their attention vectors, stacked `[graphs, H, D]`.

    The logits are linear in the rows that are projected, so they are columns of the FP matmul (`source_columns`,
    `target_columns`) and a receiver's rows need no projection of their own.
    """

    def __init__(
        self,
        names: Sequence[str],
        heads: int,
        head_width: int,
        *,
        negative_slope: float,
        dropout_rate: float,
        rngs: nnx.Rngs,
    ) -> None:
        self.names = tuple(names)
        self.heads, self.head_width = heads, head_width
        self.negative_slope, self.dropout_rate = negative_slope, dropout_rate
        init = nnx.initializers.glorot_normal(in_axis=-1, out_axis=-2, batch_axis=(0,))
        self.a_src_rhd = nnx.Param(init(rngs.params(), (len(names), heads, head_width)))
        self.a_dst_rhd = nnx.Param(init(rngs.params(), (len(names), heads, head_width)))

    def source_columns(self, name: str, weight: jax.Array) -> jax.Array:
        """`[width, H]`: what maps a sender's rows to logits, given the `[width, H * D]` matrix of its projection."""
        return self._fold(weight, self.a_src_rhd[self.names.index(name)])

    def target_columns(self, name: str, weight: jax.Array) -> jax.Array:
        """`[width, H]`: the same for a receiver."""
        return self._fold(weight, self.a_dst_rhd[self.names.index(name)])

    def _fold(self, weight: jax.Array, a_hd: jax.Array) -> jax.Array:
        return jnp.einsum("ihd,hd->ih", weight.reshape(-1, self.heads, self.head_width), a_hd)

    def __call__(
        self,
        graph: SemanticGraph | NeighborTable,
        z: jax.Array,
        logit_src: jax.Array,
        logit_dst: jax.Array,
        *,
        layer: int,
        step_seed: jax.Array | None,
        implementation: str,
    ) -> jax.Array:
        """Attention over in-edges, `[num_sources, H * D]` to `[num_targets, H * D]`; no dropout without a seed.

        A sampled table has one implementation, `fanout`; a semantic graph the one that is named.
        """
        with stage("NA", layer, graph.name):
            rate, seed = 0.0, jnp.zeros((), jnp.uint32)
            if step_seed is not None:
                rate, seed = self.dropout_rate, site_seed(step_seed, f"layer{layer}/NA/{graph.name}")
            z_nhd = z.reshape(-1, self.heads, self.head_width)
            if isinstance(graph, NeighborTable):
                out = fanout_attention.neighbor_attention(
                    graph, z_nhd, logit_src, logit_dst, seed, self.negative_slope, rate, recompute.of_attention()
                )
            else:
                out = neighbor_attention(
                    graph,
                    z_nhd,
                    logit_src,
                    logit_dst,
                    negative_slope=self.negative_slope,
                    dropout_rate=rate,
                    dropout_seed=seed,
                    implementation=implementation,
                    recompute=recompute.of_attention(),
                )
            return border(out.reshape(graph.num_targets, -1), "na_out")
