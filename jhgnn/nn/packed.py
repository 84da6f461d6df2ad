"""Feature projection and neighbor aggregation of all semantic graphs of a layer at once, along `PackedGraphs`."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.graph.packed import PackedGraphs, PackedSide
from jhgnn.graph.row_groups import TILE, RowGroups
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.nn import recompute
from jhgnn.nn.dropout import site_seeds
from jhgnn.nn.feature_projection import Rows
from jhgnn.nn.neighbor_aggregation import AttentionAggregation
from jhgnn.nn.stage import border
from jhgnn.ops.basis_rows import basis_rows
from jhgnn.ops.grouped_rows import grouped_matmul, matrix_of_tiles
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_sum import neighbor_sum
from jhgnn.random.counter_hash import GOLDEN, mix


@dataclasses.dataclass(frozen=True)
class PackedStages:
    """What packed stages need beside rows and weights.

    Attributes:
        packed: the semantic graphs.
        sparse_implementation: of `sparse_matmul`, where rows are sparse.
        dtype: to compute in.
    """

    packed: PackedGraphs
    sparse_implementation: str
    dtype: jnp.dtype

    def project(
        self, side: PackedSide, rows: Mapping[str, Rows], stacks: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Each slot's row times the matrix of its graph, by node type: `[slots, width]`.

        Args:
            side: whose slots are projected.
            rows: of each node type.
            stacks: of each node type the matrices of its graphs, in the order of `side.names`.
        """
        return {
            node_type: self.project_type(groups, rows[node_type], stacks[node_type])
            for node_type, groups in side.groups.items()
        }

    def project_type(self, groups: RowGroups, x: Rows, stack: jax.Array) -> jax.Array:
        """`project` of one type."""
        assert not isinstance(x, SparseRows)
        return grouped_matmul(
            x,
            groups,
            stack,
            implementation=self.packed.summing,
            sparse_implementation=self.sparse_implementation,
            dtype=self.dtype,
        )

    def project_one_hot(
        self, slots: OneHotSlots, x: SparseFeatures, c_rb: jax.Array, v_bio: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Each slot's one-hot row times its graph's combination of the bases.

        Args:
            slots: of a node type's groups.
            x: the type's rows, as dropout left them.
            c_rb: `[graphs, bases]`, a row more where there are rows of their own.
            v_bio: `[bases, in_width, out_width]`.

        Returns:
            `[slots of the groups, out_width]`, and of the type's own rows `[slots.own_rows, out_width]`.
        """
        rows = basis_rows(slots, x.values, c_rb, v_bio, dtype=self.dtype)
        of_groups, own = jax.lax.split(rows, [slots.num_slots - slots.own_rows, slots.own_rows])
        return of_groups, border(own, "fp_out")

    def sender_logits(
        self,
        attention: AttentionAggregation,
        stacks: Mapping[str, jax.Array],
        rows: Mapping[str, Rows],
        z: Mapping[str, jax.Array],
    ) -> dict[str, jax.Array]:
        """Each sender's slot's logits, `[slots, heads]`, by node type.

        From projected rows, but for dtypes below float32, in which those are rounded.
        """
        side = self.packed.senders
        vectors = {each: attention.vectors(attention.a_src_rhd, names) for each, names in side.names}
        if jnp.dtype(self.dtype).itemsize < 4:
            return self.project(side, rows, {each: narrow(stacks[each], vectors[each]) for each in vectors})
        found = {}
        for node_type, groups in side.groups.items():
            of_tiles = matrix_of_tiles(vectors[node_type], groups, implementation=self.packed.summing)
            _, heads, width = of_tiles.shape
            tiles = z[node_type].reshape(groups.num_tiles, TILE, heads, width)
            found[node_type] = (
                (tiles * of_tiles[:, None].astype(self.dtype)).sum(axis=3).reshape(groups.num_slots, heads)
            )
        return found

    def attend(
        self,
        z: Mapping[str, jax.Array],
        logit_src: Mapping[str, jax.Array],
        logit_dst: Mapping[str, jax.Array],
        attention: AttentionAggregation,
        *,
        layer: int,
        step_seed: jax.Array | None,
    ) -> jax.Array:
        """Attention of each receiver's slot over its graph's edges, `[receiver slots, heads * width]`.

        Of senders' slots come projected rows and logits, of receivers' slots logits, all by node type.

        Dropout is that of the graphs one by one (`AttentionAggregation`). An endpoint's id is hashed after it is XORed
        with its seed's hash, so ids that hold both seeds' difference make one seed do for all graphs.
        """
        packed = self.packed
        assert packed.receivers is not None
        graph, rate = packed.graph, 0.0
        if step_seed is not None and attention.dropout_rate > 0.0:
            rate = attention.dropout_rate
            none = mix(jnp.uint32(GOLDEN))
            graph = dataclasses.replace(
                graph,
                sender_ids=_seeded(packed.senders, layer, step_seed, 0, jnp.uint32(0)),
                receiver_ids=_seeded(packed.receivers, layer, step_seed, GOLDEN, none),
            )
        z_nhd = _joined(z).reshape(graph.num_sources, attention.heads, attention.head_width)
        out = neighbor_attention(
            graph,
            z_nhd,
            _joined(logit_src),
            _joined(logit_dst),
            negative_slope=attention.negative_slope,
            dropout_rate=rate,
            dropout_seed=jnp.uint32(0),
            implementation=packed.aggregation,
            recompute=recompute.of_attention(),
        )
        return border(out.reshape(out.shape[0], -1), "na_out")

    def mean_sums(self, z: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The sum over graphs of the means of senders' slots, `[rows made, width]`; all by node type."""
        joined, packed = _joined(z), self.packed
        assert packed.degrees is not None
        weights = 1.0 / packed.degrees.astype(jnp.promote_types(joined.dtype, jnp.float32))
        summed = neighbor_sum(packed.graph, joined, weights, implementation=packed.summing)
        return self._by_type(border(summed, "na_out"))

    def sums(self, values: jax.Array) -> dict[str, jax.Array]:
        """The sum over graphs of receivers' slots, `[rows made, width]` by node type."""
        assert self.packed.into_rows is not None
        return self._by_type(neighbor_sum(self.packed.into_rows, values, implementation=self.packed.summing))

    def of_slots(self, groups: RowGroups, table: jax.Array) -> jax.Array:
        """Of each slot its graph's row, `[slots, width]` of `[graphs, width]`."""
        tiles = matrix_of_tiles(table, groups, implementation=self.packed.summing)
        return jnp.repeat(tiles, TILE, axis=0)

    def sums_by_graph(self, groups: RowGroups, values: jax.Array) -> jax.Array:
        """The sum over each graph's slots, `[graphs, width]` of `[slots, width]`; filling slots do not count."""
        counted = jnp.where(groups.used[:, None], values, 0.0)
        by_tile = counted.reshape(groups.num_tiles, TILE, values.shape[1]).sum(axis=1)
        return neighbor_sum(groups.into_matrices, by_tile, implementation=self.packed.summing)

    def _by_type(self, rows: jax.Array) -> dict[str, jax.Array]:
        found, before = {}, 0
        for node_type, count in self.packed.made.items:
            found[node_type], before = rows[before : before + count], before + count
        return found


def narrow(stack: jax.Array, vectors: jax.Array) -> jax.Array:
    """The matrices that give logits: `[graphs, in_width, heads]` of `[graphs, in_width, heads * width]` and vectors."""
    graphs, heads, width = vectors.shape
    split = stack.reshape(graphs, -1, heads, width)
    return jnp.einsum("gihd,ghd->gih", split, vectors)


def _joined(parts: Mapping[str, jax.Array]) -> jax.Array:
    """All types' slots, one type's after the other's: what a stage of feature projection gives."""
    arrays = list(parts.values())
    return border(arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays), "fp_out")


def _seeded(side: PackedSide, layer: int, step_seed: jax.Array, offset: int, base: jax.Array) -> jax.Array:
    """Ids of slots which, hashed with one seed, give what nodes give that are hashed with their own graph's seed."""
    seeds = site_seeds(step_seed, [f"layer{layer}/NA/{name}" for name in side.joined_names])
    keys = mix(seeds + jnp.uint32(offset)) ^ base
    return jax.lax.bitcast_convert_type(side.ids.astype(jnp.uint32) ^ keys[side.number], jnp.int32)
