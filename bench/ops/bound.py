"""What no implementation can beat on this machine: bytes over bandwidth, or operations over their rate."""

import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from bench.ops.cases import HEADS, WIDTH
from jhgnn.graph.semantic_graph import SemanticGraph


def rates() -> dict[str, float]:
    """Bytes per second from and to memory, and float32 operations per second, the best of several tries."""
    megabytes = 256
    array = jnp.ones(megabytes * 2**18, jnp.float32)
    add = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    total = jax.jit(lambda x: jnp.sum(x.reshape(-1, 1024), axis=0))
    square = jnp.ones((1536, 1536), jnp.float32)
    product = jax.jit(lambda x: x @ x)
    bytes_per_s = operations_per_s = 0.0
    for _ in range(8):
        array, seconds = _timed(add, array)
        bytes_per_s = max(bytes_per_s, 2 * array.nbytes / seconds)
        bytes_per_s = max(bytes_per_s, array.nbytes / _timed(total, array)[1])
        operations_per_s = max(operations_per_s, 2 * 1536**3 / _timed(product, square)[1])
    return {"bytes_per_s": bytes_per_s, "operations_per_s": operations_per_s}


def _timed(function: Callable[..., jax.Array], *arguments: jax.Array) -> tuple[jax.Array, float]:
    start = time.perf_counter()
    out = jax.block_until_ready(function(*arguments))
    return out, time.perf_counter() - start


def last_level_cache_bytes() -> int:
    """Of the first processor; 32 MiB where the system does not say."""
    sizes = [int(path.read_text().strip()[:-1]) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")]
    return 1024 * max(sizes, default=32 * 1024)


def moved_bytes(graph: SemanticGraph, backward: bool, cache_bytes: int) -> int:
    """Bytes that no implementation can do without: edges' indices, and each vertex's 64 floats once where the gathered
    side fits a cache of that size; where it does not, 64 floats an edge (a cache line a vertex can be lucky, but not 7
    million random rows).
    """
    row, passes = 4 * HEADS * WIDTH, 2 if backward else 1
    vertices = graph.num_sources + graph.num_targets
    rows = graph.num_edges + min(graph.num_targets, graph.num_sources) if gathers(graph, cache_bytes) else vertices
    return passes * (4 * graph.num_edges + row * rows)


def gathers(graph: SemanticGraph, cache_bytes: int) -> bool:
    """Whether the rows that edges point at are more than a cache of that size holds."""
    return max(graph.num_sources, graph.num_targets) * 4 * HEADS * WIDTH > cache_bytes


def bound_ms(graph: SemanticGraph, op: str, backward: bool, measured: dict[str, float]) -> float:
    """Milliseconds that no implementation can beat: bytes over bandwidth or operations over rate, the larger."""
    moved = moved_bytes(graph, backward, last_level_cache_bytes())
    operations = (2 if backward else 1) * graph.num_edges * HEADS * WIDTH * (2 if op == "neighbor_attention" else 1)
    return 1e3 * max(moved / measured["bytes_per_s"], operations / measured["operations_per_s"])
