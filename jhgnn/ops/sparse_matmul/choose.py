"""Which implementation `auto` means for a feature matrix."""

from jhgnn.graph.sparse_features import SparseFeatures


def choose(matrix: SparseFeatures, *, width: int, platform: str | None = None) -> tuple[str, str]:
    """The implementation for a matrix of this density times `[num_columns, width]`, and the reason in words."""
    return "segment", f"{matrix.density:.1%} dense, XLA"
