"""Neighbor aggregation (NA): what each relation or metapath sends to its receivers, by mean or by attention."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.nn import recompute
from jhgnn.nn.dropout import site_seed
from jhgnn.nn.feature_projection import Columns, Rows
from jhgnn.nn.observed import show
from jhgnn.nn.stage import border, stage
from jhgnn.ops.column_parts import column_parts
from jhgnn.ops.indexed_rows import rows_at
from jhgnn.ops.logit_columns import logit_columns
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_attention.segment import attention_weights
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.ops.neighbor_sum import neighbor_sum
from jhgnn.ops.neighbor_sum.sampled import sampled_neighbor_sum
from jhgnn.ops.registry import AS_ROWS
from jhgnn.ops.row_attention import row_attention


def mean_aggregation(
    graph: SemanticGraph | NeighborTable,
    z: jax.Array,
    *,
    layer: int,
    implementation: str,
    weights: jax.Array | None = None,
) -> jax.Array:
    """Mean over in-edges, `[num_sources, width]` to `[num_targets, width]`, or the sum by `weights`, `[num_edges]`.

    `implementation` is one of `neighbor_mean`, or of `neighbor_sum` where there are weights, as whole graphs may have.
    """
    with stage("NA", layer, graph.name):
        if weights is not None:
            assert isinstance(graph, SemanticGraph)
            out = neighbor_sum(graph, z, weights, implementation=implementation)
        else:
            out = neighbor_mean(graph, z, implementation=implementation)
        return border(out, "na_out")


def sum_aggregation(
    graph: SemanticGraph | NeighborTable, x: jax.Array, weights: jax.Array, *, implementation: str
) -> jax.Array:
    """Weighted sum over in-edges, `[num_sources, width]` to `[num_targets, width]`; the caller opens the stage.

    `weights` are `[num_edges]`, or of a sampled table for each entry, `[num_targets, width]`, 0 for padding.
    """
    if isinstance(graph, NeighborTable):
        return sampled_neighbor_sum(graph, x, weights)
    return neighbor_sum(graph, x, weights, implementation=implementation)


def logits_follow(x: Rows, dtype: jax.typing.DTypeLike) -> bool:
    """Whether logits are better computed from projected rows than as columns of the projection.

    They are in a sparse first layer, whose weights may have as many rows as there are nodes. To make columns of such a
    weight takes as long as to make logits of projected rows, and the columns have to be multiplied besides. They are
    not for dtypes below float32, in which projected rows are rounded.
    """
    if not isinstance(x, SparseFeatures) or jnp.dtype(dtype) != jnp.float32:
        return False
    return x.num_rows <= 2 * x.num_columns


def weighs_rows(graph: SemanticGraph | NeighborTable, implementation: str) -> TypeGuard[NeighborTable]:
    """Whether attention along a graph reads senders' rows as they are (`AttentionAggregation.over_rows`)."""
    return implementation == AS_ROWS and isinstance(graph, NeighborTable)


class AttentionAggregation(nnx.Module):
    """Graph attention along several semantic graphs of one layer: their attention vectors, stacked `[graphs, H, D]`.

    A logit is linear in the row that is projected, so it can be computed as one more column of the FP matmul
    (`logit_columns`), and receivers need no projected rows. It can also be computed from projected rows (`logits`).
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

    def vectors(self, attention: nnx.Param, names: Iterable[str]) -> jax.Array:
        """The attention vectors of these graphs, `[names, H, D]`, of one of the two parameters."""
        place_of = {name: place for place, name in enumerate(self.names)}
        return rows_at(attention[...], [place_of[name] for name in names])

    def logit_columns(self, stack: jax.Array, sent: Mapping[str, int], received: Mapping[str, int]) -> Columns:
        """What maps rows to their logits, `NAME/src` as senders and `NAME/dst` as receivers.

        Args:
            stack: `[matrices, width, H * D]` that project the rows.
            sent, received: the place in the stack of a semantic graph's matrix.
        """
        vectors = [
            self.vectors(attention, places)
            for attention, places in ((self.a_src_rhd, sent), (self.a_dst_rhd, received))
            if places
        ]
        names = [f"{name}/src" for name in sent] + [f"{name}/dst" for name in received]
        joined = jnp.concatenate(vectors) if vectors else jnp.zeros((0, self.heads, self.head_width), stack.dtype)
        return names, logit_columns(stack, [*sent.values(), *received.values()], joined)

    def logits(self, z: jax.Array, sent: Sequence[str], received: Sequence[str]) -> dict[str, jax.Array]:
        """Logits `[num_rows, H]` from projected rows `[num_rows, H * D]`, named as `logit_columns` names them."""
        names, logits = self.logit_columns(z[None], dict.fromkeys(sent, 0), dict.fromkeys(received, 0))
        parts = column_parts(logits, [self.heads] * len(names))
        return {name: border(part, "fp_out") for name, part in zip(names, parts, strict=True)}

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
        """Attention over in-edges, `[num_sources, H * D]` to `[num_targets, H * D]`; no dropout without a seed."""
        with stage("NA", layer, graph.name):
            rate, seed = self._dropout(layer, graph.name, step_seed)
            z_nhd = z.reshape(-1, self.heads, self.head_width)
            if isinstance(graph, SemanticGraph):
                show(
                    "edge attention",
                    layer,
                    graph.name,
                    lambda: attention_weights(graph, logit_src, logit_dst, self.negative_slope),
                )
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

    def over_rows(
        self,
        table: NeighborTable,
        x: jax.Array,
        weight: jax.Array,
        logit_dst: jax.Array,
        *,
        layer: int,
        step_seed: jax.Array | None,
    ) -> jax.Array:
        """The same of rows `[num_sources, in_width]` that `weight`, `[in_width, H * D]`, projects once they are summed.

        The projection is a part of NA then; only the logits' columns are FP.
        """
        with stage("FP", layer, table.name):
            _, columns = self.logit_columns(weight[None], {table.name: 0}, {})
        with stage("NA", layer, table.name):
            rate, seed = self._dropout(layer, table.name, step_seed)
            out = row_attention(
                table,
                x,
                weight,
                columns,
                logit_dst,
                negative_slope=self.negative_slope,
                dropout_rate=rate,
                dropout_seed=seed,
                implementation="native",
            )
            return border(out, "na_out")

    def _dropout(self, layer: int, name: str, step_seed: jax.Array | None) -> tuple[float, jax.Array]:
        """The rate and the seed of a semantic graph's edges."""
        if step_seed is None:
            return 0.0, jnp.zeros((), jnp.uint32)
        return self.dropout_rate, site_seed(step_seed, f"layer{layer}/NA/{name}")
