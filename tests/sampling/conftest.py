"""A small heterograph with hubs, isolated vertices and parallel edges, and the compiled device sampler."""

import jax
import numpy as np
import pytest

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.device import sample_on_device

NUM_NODES = {"paper": 300, "author": 200, "topic": 50, "venue": 4}

sample_jit = jax.jit(sample_on_device, static_argnums=(0, 1))


def make_graph(seed: int = 0, num_nodes: dict[str, int] = NUM_NODES, density: float = 1.0) -> HeteroGraph:
    rng = np.random.default_rng(seed)

    def edges(source: str, target: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        count = int(count * density)
        # The smaller of two draws: degrees from several dozens down to none.
        receivers = np.minimum(rng.integers(0, num_nodes[target], count), rng.integers(0, num_nodes[target], count))
        return rng.integers(0, num_nodes[source], count), receivers

    writes = edges("author", "paper", 900)
    return HeteroGraph.from_arrays(
        num_nodes=num_nodes,
        edges={
            ("paper", "cites", "paper"): edges("paper", "paper", 3000),
            ("author", "writes", "paper"): writes,
            ("paper", "rev_writes", "author"): writes[::-1],
            ("topic", "in", "paper"): edges("topic", "paper", 700),
            ("venue", "of", "paper"): edges("venue", "paper", 0),
        },
        target="paper",
        splits={"train": np.arange(0, num_nodes["paper"], 3)},
    )


@pytest.fixture(scope="session")
def graph() -> HeteroGraph:
    return make_graph()


@pytest.fixture(scope="session")
def seeds() -> dict[str, np.ndarray]:
    """Seeds out of order, with repeats and padding."""
    return {"paper": np.array([3, 7, 7, 250, -1, 12, 0, 299, 3, 1], np.int32)}
