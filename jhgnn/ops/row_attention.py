"""row_attention: attention over drawn neighbours whose rows are weighted as they are, and projected once summed.

A head's sum of projected rows is the projection of its sum of rows. A batch has about as many senders as edges, and far
fewer receivers, so that projecting receivers spares most of the operations of projecting senders.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops.attention_options import checked_seed, kernel_attributes
from jhgnn.ops.dense_matmul import dense_matmul
from jhgnn.ops.implementation import Implementation, Op, fused_on_cpu, without_library
from jhgnn.ops.neighbor_attention import neighbor_attention

MOST_HEADS = 16
"""Of the kernel, which holds a number of each head in a vector."""


def row_attention(
    table: NeighborTable,
    x: jax.Array,
    weight: jax.Array,
    columns: jax.Array,
    logit_dst: jax.Array,
    *,
    negative_slope: float = 0.2,
    dropout_rate: float = 0.0,
    dropout_seed: jax.Array | None = None,
    implementation: str,
) -> jax.Array:
    """`neighbor_attention` of `x @ weight`, whose senders' logits are `x @ columns`, with the same dropout.

    The kernel for the CPU reads the table itself and keeps nothing for the backward pass but its arguments. It computes
    no gradient of x where none is asked for, as for fixed features.

    Args:
        table: of sampled neighbours.
        x: `[num_sources, in_width]`.
        weight: `[in_width, heads * width]`, a head's columns side by side.
        columns: `[in_width, heads]`.
        logit_dst: `[num_targets, heads]`.
        negative_slope: of the LeakyReLU, in [0, 1].
        dropout_rate: of the weights after the softmax, in [0, 1); 0 needs no seed.
        dropout_seed: uint32 scalar.
        implementation: `native`, the kernel, in float32 with at most 16 heads; or `fanout`, which projects all senders.

    Returns:
        `[num_targets, heads * width]`; zeros for targets without neighbours.

    Raises:
        ValueError: shapes or dtypes that do not fit, a rate out of range, or dropout without a seed or global ids.
        RuntimeError: `native` where the package was installed without it.

    Source: Velickovic et al., GAT, eq. 1-6; the order of the two sums is ours.
    """
    chosen = OP.resolve(implementation, table, x, weight, columns, logit_dst)
    heads = columns.shape[1] if columns.ndim == 2 else 0
    if (
        heads < 1
        or x.shape != (table.num_sources, columns.shape[0])
        or weight.shape[:1] != columns.shape[:1]
        or weight.ndim != 2
        or weight.shape[1] % heads
        or logit_dst.shape != (table.num_targets, heads)
    ):
        raise ValueError(
            f"row_attention of {table.name!r} on {table.num_sources} -> {table.num_targets} nodes got x {x.shape},"
            f" weight {weight.shape}, columns {columns.shape}, logit_dst {logit_dst.shape}; need [sources, in_width],"
            " [in_width, heads * width], [in_width, heads], [targets, heads]"
        )
    seed = checked_seed(negative_slope, dropout_rate, dropout_seed)
    attended: jax.Array = chosen.function(
        table, x, weight, columns, logit_dst, seed, negative_slope=negative_slope, dropout_rate=dropout_rate
    )
    return attended


def weighs_less(edges: int, targets: int, sources: int, heads: int, out_width: int) -> bool:
    """Whether to weight rows first takes fewer operations than to project the senders first, whatever their width.

    Args:
        edges: drawn neighbours at most, over all that are compared.
        targets, sources: receivers; senders, each of which would be projected.
        heads: of attention.
        out_width: of all heads together.
    """
    return 2 * heads * edges + out_width * targets < (out_width + heads) * sources


def _projected(
    table: NeighborTable,
    x: jax.Array,
    weight: jax.Array,
    columns: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    **options: float,
) -> jax.Array:
    """The plain form: all senders are projected."""
    heads, out_width = columns.shape[1], weight.shape[1]
    z = dense_matmul(x, weight).reshape(x.shape[0], heads, out_width // heads)
    out = neighbor_attention(
        table,
        z,
        dense_matmul(x, columns),
        logit_dst,
        negative_slope=options["negative_slope"],
        dropout_rate=options["dropout_rate"],
        dropout_seed=seed,
        implementation="fanout",
    )
    return out.reshape(table.num_targets, out_width)


def _weighted_rows(
    table: NeighborTable,
    x: jax.Array,
    weight: jax.Array,
    columns: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    *,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    if columns.shape[1] > MOST_HEADS:
        raise ValueError(f"row_attention: 'native' takes at most {MOST_HEADS} heads and got {columns.shape[1]}")
    if 0 in (table.num_targets, table.width, table.num_sources, x.shape[1], weight.shape[1]):
        return jnp.zeros((table.num_targets, weight.shape[1]), x.dtype)
    empty = jnp.zeros(0, jnp.int32)
    sender_ids, receiver_ids = table.global_ids() if dropout_rate > 0.0 else (empty, empty)
    drawn = _Drawn(table.senders, table.num_neighbors, seed.reshape(1), sender_ids, receiver_ids)
    return _attend(negative_slope, dropout_rate, drawn, x, weight, columns, logit_dst)


class _Drawn(NamedTuple):
    """The table, and what dropout hashes: the seed, uint32 `[1]`, and global ids, or empty arrays without dropout."""

    senders: jax.Array
    num_neighbors: jax.Array
    seed: jax.Array
    sender_ids: jax.Array
    receiver_ids: jax.Array

    def arguments(self, x: jax.Array, weight: jax.Array, columns: jax.Array, logit_dst: jax.Array) -> list[jax.Array]:
        """In the kernels' order."""
        return [*self[:2], x, weight, columns, logit_dst, *self[2:]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(
    slope: float,
    rate: float,
    drawn: _Drawn,
    x: jax.Array,
    weight: jax.Array,
    columns: jax.Array,
    logit_dst: jax.Array,
) -> jax.Array:
    shape = jax.ShapeDtypeStruct((logit_dst.shape[0], weight.shape[1]), jnp.float32)
    call = jax.ffi.ffi_call("jhgnn_row_attention_forward", shape)
    return jnp.asarray(call(*drawn.arguments(x, weight, columns, logit_dst), **kernel_attributes(slope, rate)))


def _forward(slope: float, rate: float, drawn: _Drawn, *arrays: CustomVJPPrimal) -> tuple[jax.Array, tuple]:
    drawn = jax.tree.map(lambda each: each.value, drawn, is_leaf=lambda node: isinstance(node, CustomVJPPrimal))
    values = [each.value for each in arrays]
    wanted = () if arrays[0].perturbed else None  # a part of the tree, as residuals are arrays
    return _attend(slope, rate, drawn, *values), (drawn, values, wanted)


def _backward(slope: float, rate: float, residuals: tuple, cotangent: jax.Array | SymbolicZero) -> tuple:
    drawn, values, wanted = residuals
    if isinstance(cotangent, SymbolicZero):
        cotangent = jnp.zeros(cotangent.shape, cotangent.dtype)
    shapes = [jax.ShapeDtypeStruct(each.shape, jnp.float32) for each in values]
    if wanted is None:
        shapes[0] = jax.ShapeDtypeStruct((0, 0), jnp.float32)
    call = jax.ffi.ffi_call("jhgnn_row_attention_backward", shapes)
    found = call(*drawn.arguments(*values), cotangent, **kernel_attributes(slope, rate))
    return None, None if wanted is None else found[0], *found[1:]


_attend.defvjp(_forward, _backward, symbolic_zeros=True)


OP = Op(
    "row_attention",
    (
        Implementation(
            "native",
            NeighborTable,
            _weighted_rows,
            fused_on_cpu,
            platforms=("cpu",),
            dtypes=("float32",),
            obstacle=without_library,
        ),
        Implementation("fanout", NeighborTable, _projected, lambda table, platform: "sampled neighbours"),
    ),
)
