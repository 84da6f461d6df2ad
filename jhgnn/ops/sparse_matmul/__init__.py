"""sparse_matmul: constant sparse features times a dense weight; the gradient is the weight's alone."""

from collections.abc import Callable

import jax

from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.ops.sparse_matmul import native, segment
from jhgnn.ops.sparse_matmul.choose import choose

__all__ = ["IMPLEMENTATIONS", "choose", "sparse_matmul", "sparse_matmul_stack"]

Implementation = Callable[[SparseFeatures, jax.Array], jax.Array]

IMPLEMENTATIONS: dict[str, Implementation] = {
    "segment": segment.sparse_matmul,
    "native": native.sparse_matmul,
}
STACKED: dict[str, Callable[[SparseFeatures, jax.Array], tuple[jax.Array, ...]]] = {
    "segment": segment.sparse_matmul_stack,
    "native": native.sparse_matmul_stack,
}


def sparse_matmul(matrix: SparseFeatures, weight: jax.Array, *, implementation: str) -> jax.Array:
    """`matrix @ weight`.

    Args:
        matrix: `[num_rows, num_columns]`, constant: it gets no gradient. Values of zero add nothing; `native` leaves
            them out where they are many, so that they do not make a NaN of an infinite weight.
        weight: `[num_columns, width]`, float32 or bfloat16 (summed in float32).
        implementation: a key of `IMPLEMENTATIONS`; `choose` picks one.

    Returns:
        `[num_rows, width]` in the weight's dtype; zeros for rows without values.

    Raises:
        ValueError: an unknown implementation, shapes that do not fit, or a dtype that `native` does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    _check(implementation, matrix, weight, 2)
    return IMPLEMENTATIONS[implementation](matrix, weight)


def sparse_matmul_stack(matrix: SparseFeatures, stack: jax.Array, *, implementation: str) -> tuple[jax.Array, ...]:
    """`matrix @ stack[i]` for each i: as `sparse_matmul`, but neither weights nor products are joined or split.

    `stack` is `[matrices, num_columns, width]`; returns as many `[num_rows, width]`. Of `segment` the promise does not
    hold: it joins and splits them itself.
    """
    _check(implementation, matrix, stack, 3)
    return STACKED[implementation](matrix, stack)


def _check(implementation: str, matrix: SparseFeatures, weight: jax.Array, ndim: int) -> None:
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"sparse_matmul has no implementation {implementation!r}; choose of {sorted(IMPLEMENTATIONS)}")
    if weight.ndim != ndim or weight.shape[-2] != matrix.num_columns:
        raise ValueError(f"sparse_matmul of {matrix.num_columns} columns got a weight of shape {weight.shape}")
