"""Feature projection (FP): every linear map out of one node type as one matmul, dense or sparse."""

import functools
from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.nn.stage import border
from jhgnn.ops.basis_matrices import basis_matrices
from jhgnn.ops.column_parts import column_parts
from jhgnn.ops.dense_matmul import dense_matmul
from jhgnn.ops.indexed_rows import rows_at
from jhgnn.ops.sparse_matmul import sparse_matmul, sparse_matmul_stack

Rows: TypeAlias = jax.Array | SparseFeatures | SparseRows
"""What a stage projects: dense `[num_nodes, width]` or sparse features, of all nodes or of a mini-batch."""

Columns: TypeAlias = tuple[Sequence[str], jax.Array]
"""Names, and one narrow matrix for each, of equal widths, side by side: `[width, len(names) * columns]`."""

_glorot = nnx.initializers.glorot_uniform(in_axis=-2, out_axis=-1, batch_axis=(0,))


def dense_rows(x: Rows) -> jax.Array:
    """Hidden rows, which are always dense; only a first layer reads sparse ones."""
    assert not isinstance(x, SparseFeatures | SparseRows)
    return x


def project(x: Rows, weight: jax.Array, *, sparse_implementation: str, dtype: jax.typing.DTypeLike) -> jax.Array:
    """`x @ weight`, `[num_nodes, width]` times `[width, columns]`; computed in `dtype`, summed in float32 at least."""
    if isinstance(x, SparseFeatures | SparseRows):
        return sparse_matmul(x, weight.astype(dtype), implementation=sparse_implementation)
    return dense_matmul(x.astype(dtype), weight.astype(dtype))


class FeatureProjection(nnx.Module):
    """The projections of one node type into several spaces of one width, stacked `[outputs, in_width, out_width]`.

    With `bases` = B the stack is a combination of B shared matrices (R-GCN eq. 3); with `blocks` = B each matrix is
    block-diagonal (eq. 4), in as many blocks as divide both widths, at most B.
    """

    def __init__(
        self,
        names: Sequence[str],
        in_width: int,
        out_width: int,
        *,
        bases: int = 0,
        blocks: int = 0,
        rngs: nnx.Rngs,
    ) -> None:
        self.names = tuple(names)
        self.in_width, self.out_width = in_width, out_width
        self.bases, self.blocks = min(bases, len(self.names)), 0
        if self.bases:
            self.v_bio = nnx.Param(_glorot(rngs.params(), (self.bases, in_width, out_width)))
            self.c_rb = nnx.Param(nnx.initializers.glorot_uniform()(rngs.params(), (len(names), self.bases)))
        elif blocks:
            self.blocks = max(b for b in range(1, blocks + 1) if in_width % b == 0 and out_width % b == 0)
            shape = (len(names), self.blocks, in_width // self.blocks, out_width // self.blocks)
            init = nnx.initializers.glorot_uniform(in_axis=-2, out_axis=-1, batch_axis=(0, 1))
            self.w_rbio = nnx.Param(init(rngs.params(), shape))
        else:
            self.w_rio = nnx.Param(_glorot(rngs.params(), (len(names), in_width, out_width)))

    def stack(self, names: Sequence[str] | None = None) -> jax.Array:
        """The matrices of these outputs, `[outputs, in_width, out_width]`; None: of all."""
        names = self.names if names is None else names
        if self.bases:
            return basis_matrices(*self.combinations(names))
        places = self._places(names)
        if self.blocks:
            same_block = jnp.eye(self.blocks, dtype=self.w_rbio.dtype)
            stacked = jnp.einsum("rbio,bc->rbico", rows_at(self.w_rbio[...], places), same_block)
            return stacked.reshape(len(names), self.in_width, self.out_width)
        return rows_at(self.w_rio[...], places)

    def combinations(self, names: Sequence[str]) -> tuple[jax.Array, jax.Array]:
        """What the stack of these outputs is made of where there are bases.

        Returns:
            coefficients `[outputs, bases]`, and the bases `[bases, in_width, out_width]`.
        """
        return rows_at(self.c_rb[...], self._places(names)), self.v_bio[...]

    def _places(self, names: Sequence[str]) -> list[int]:
        place_of = {name: place for place, name in enumerate(self.names)}
        return [place_of[name] for name in names]


def project_together(
    x: Rows,
    names: Sequence[str],
    stack: jax.Array | None,
    columns: Sequence[Columns] = (),
    *,
    sparse_implementation: str,
    dtype: jax.typing.DTypeLike,
) -> dict[str, jax.Array]:
    """Projects rows by the matrices of a stack, named `names`, and by narrow ones, `columns`.

    Dense rows are multiplied by all matrices joined into one. For the sparse rows of a first layer the weights are as
    large as the results, so joining them would cost too much: the stack is read, and its gradient written, where it
    lies, and only the narrow matrices are joined.

    Args:
        x: `[num_rows, width]`.
        names: of the stack's matrices.
        stack: `[names, width, out_width]`; None where there are no names.
        columns: the narrow ones, in groups.

    Returns:
        By name `[num_rows, out_width]`, and `[num_rows, a few]`.
    """
    project_by = functools.partial(_project_joined, sparse_implementation=sparse_implementation, dtype=dtype)
    if stack is None:
        return project_by(x, columns)
    if not isinstance(x, SparseFeatures):
        side_by_side = stack.transpose(1, 0, 2).reshape(stack.shape[1], -1)
        return project_by(x, [(names, side_by_side), *columns])
    products = sparse_matmul_stack(x, stack.astype(dtype), implementation=sparse_implementation)
    apart = {name: border(product, "fp_out") for name, product in zip(names, products, strict=True)}
    return apart | project_by(x, columns)


def _project_joined(
    x: Rows, groups: Sequence[Columns], *, sparse_implementation: str, dtype: jax.typing.DTypeLike
) -> dict[str, jax.Array]:
    """Projects rows by groups of matrices in one matmul."""
    widths = {name: matrix.shape[1] // len(names) for names, matrix in groups for name in names}
    if not widths:
        return {}
    matrices = [matrix for names, matrix in groups if names]
    joined = jnp.concatenate(matrices, axis=1) if len(matrices) > 1 else matrices[0]
    outputs = project(x, joined, sparse_implementation=sparse_implementation, dtype=dtype)
    parts = column_parts(outputs, list(widths.values()))
    return {name: border(part, "fp_out") for name, part in zip(widths, parts, strict=True)}
