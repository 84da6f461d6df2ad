"""Which implementation `auto` means for a semantic graph."""

import jax

from jhgnn import native
from jhgnn.graph.semantic_graph import SemanticGraph

DENSE_FROM = 0.07
"""Density from which the masked dense product beats segment sums where there is no native kernel."""


def choose(graph: SemanticGraph, *, heads: int, width: int, platform: str | None = None) -> tuple[str, str]:
    """The implementation for this semantic graph on a platform (JAX's default one), and the reason in words."""
    platform = platform or jax.default_backend()
    if platform == "cpu" and native.available():
        return "native", f"fused CPU kernel, {native.instruction_set()}"
    why = "native kernels not built, " if platform == "cpu" else ""
    if graph.density >= DENSE_FROM and graph.num_targets * graph.num_sources < 2**31:
        return "dense", f"{why}{graph.density:.0%} dense on {platform}"
    return "segment", f"{why}XLA on {platform}, {graph.density:.2%} dense"
