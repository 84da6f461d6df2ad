"""Whether semantic graphs that share a source type should be aggregated one after the other (paper, section 7.1.3)."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.neighbor_mean import neighbor_mean

SOURCES = {"order_in_cache": 50_000, "order_out_of_cache": 400_000}
"""Senders of each of two types: 12.8 and 102 MB of projected features."""

NUM_EDGES, NUM_TARGETS, WIDTH = 400_000, 50_000, 64


def orders(num_sources: int, implementation: str) -> dict[str, Callable[[], float]]:
    """Seconds of the mean over four semantic graphs, two from each of two types: grouped by type, and alternating."""
    rng = np.random.default_rng(0)
    run = jax.jit(lambda graph, x: neighbor_mean(graph, x, implementation=implementation))
    features = [jnp.asarray(rng.normal(size=(num_sources, WIDTH)), jnp.float32) for _ in range(2)]
    calls = []
    for source in (0, 0, 1, 1):
        ends = rng.integers(0, num_sources, NUM_EDGES), rng.integers(0, NUM_TARGETS, NUM_EDGES)
        graph = SemanticGraph.from_pairs(*ends, num_sources, NUM_TARGETS, f"of {source}").place(())
        calls.append((graph, features[source]))

    def in_order(order: tuple[int, ...]) -> Callable[[], float]:
        def seconds() -> float:
            start = time.perf_counter()
            for index in order:
                jax.block_until_ready(run(*calls[index]))
            return time.perf_counter() - start

        return seconds

    return {"grouped": in_order((0, 1, 2, 3)), "alternating": in_order((0, 2, 1, 3))}
