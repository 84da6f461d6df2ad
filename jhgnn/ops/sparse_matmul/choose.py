"""Which implementation `auto` means for a feature matrix."""

import jax

from jhgnn import native
from jhgnn.graph.sparse_features import SparseFeatures


def choose(matrix: SparseFeatures, *, width: int, platform: str | None = None) -> tuple[str, str]:
    """The implementation for a matrix of this density times `[num_columns, width]`, and the reason in words."""
    platform = platform or jax.default_backend()
    if platform == "cpu" and native.available():
        return "native", f"fused CPU kernel, {native.instruction_set()}"
    why = "native kernels not built, " if platform == "cpu" else ""
    return "segment", f"{why}XLA on {platform}, {matrix.density:.1%} dense"
