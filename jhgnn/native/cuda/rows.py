"""Sums over compressed rows by the kernels of a GPU: what neighbor_mean, neighbor_sum and sparse_matmul are made of."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.semantic_graph import Csr
from jhgnn.native.cuda import layout_of, tiles_of


class Entries(NamedTuple):
    """Compressed rows as kernels take them.

    Attributes:
        indptr: int32 `[num_rows + 1]`, ascending from 0; entries from the last one on belong to no row.
        ends: int32 `[num_rows]`, where a row's entries end before the next row's begin; or empty, where none do.
        indices: int32 `[num_entries]`, columns, trusted: a kernel checks none of them.
    """

    indptr: jax.Array
    ends: jax.Array
    indices: jax.Array

    @classmethod
    def of(cls, csr: Csr) -> "Entries":
        return cls(csr.indptr, jnp.zeros(0, jnp.int32), csr.indices)

    @property
    def num_rows(self) -> int:
        return int(self.indptr.shape[0]) - 1


def row_sum(
    rows: Entries,
    x: jax.Array,
    *,
    weights: jax.Array | None = None,
    row_scale: jax.Array | None = None,
    mean: bool = False,
) -> jax.Array:
    """For each row i: the sum over its entries e of `weights[e] * row_scale[j] * x[j]`, where j = `rows.indices[e]`.

    As `jhgnn.native.row_sum.row_sum`, but for a GPU and without a check of the indices.
    """
    none = jnp.zeros((0,), jnp.float32)
    layout = layout_of(x.shape[1], x.shape[1])
    tile, carries = tiles_of("row_sum", rows.indices.shape[0], layout, layout.vector)
    shapes = (
        jax.ShapeDtypeStruct((rows.num_rows, x.shape[1]), x.dtype),
        jax.ShapeDtypeStruct((carries,), jnp.float32),
    )
    out, _ = jax.ffi.ffi_call("jhgnn_cuda_row_sum", shapes)(
        *rows,
        none if weights is None else weights,
        none if row_scale is None else row_scale,
        x,
        mean=mean,
        tile=np.int64(tile),
    )
    return out
