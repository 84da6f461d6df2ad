"""Which implementation `auto` means for a semantic graph."""

from jhgnn.graph.semantic_graph import SemanticGraph

DENSE_FROM = 0.02
"""Density from which the masked dense product beats segment sums."""


def choose(graph: SemanticGraph, *, heads: int, width: int, platform: str | None = None) -> tuple[str, str]:
    """The implementation for this semantic graph, and the reason in words."""
    if graph.density >= DENSE_FROM and graph.num_targets * graph.num_sources < 2**31:
        return "dense", f"{graph.density:.0%} dense"
    return "segment", "XLA"
