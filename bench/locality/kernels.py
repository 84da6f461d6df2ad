"""The CPU kernels whose times are held against modelled hit rates."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn import native
from jhgnn.graph.semantic_graph import Csr, SemanticGraph
from jhgnn.native.row_sum import row_sum
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_mean import neighbor_mean

HEADS = 8
ATTENTION_HEADER = 32
"""Floats before a packed row's features: factors of 8 heads (`AttentionLayout` of `jhgnn/native/kernels.h`)."""
PREFETCH_BYTES = 2**20
"""Of a table, from which rows are fetched ahead (`kPrefetchBytes` of `jhgnn/native/handlers.cc`)."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One native kernel in one pass.

    Attributes:
        op: `mean` or `attention`.
        backward: whether it walks the out-edges.
        floats: of a vertex's row, heads together.
    """

    op: str
    backward: bool
    floats: int

    @property
    def name(self) -> str:
        return f"{self.op} {'backward' if self.backward else 'forward'} {4 * self.floats} B"

    @property
    def row_bytes(self) -> int:
        """Of what an edge gathers."""
        return 4 * (self.floats + (ATTENTION_HEADER if self.op == "attention" else 0))

    def csr(self, graph: SemanticGraph) -> tuple[Csr, int]:
        return (graph.outgoing, graph.num_targets) if self.backward else (graph.incoming, graph.num_sources)

    def tile_columns(self, graph: SemanticGraph) -> int:
        """Columns of a tile, 0 without, as the kernel decides."""
        csr, columns = self.csr(graph)
        return tile_columns(csr, columns, self.row_bytes)

    def prefetches(self, graph: SemanticGraph) -> bool:
        """Whether the kernel fetches rows ahead: those of a table that it does not expect in the second-level cache."""
        _, columns = self.csr(graph)
        return not self.tile_columns(graph) and columns * self.row_bytes > PREFETCH_BYTES

    def call(self) -> Callable[..., jax.Array]:
        """From (graph, rows, logits of senders or scales of gathered rows, logits of receivers)."""
        if self.op == "attention":

            def attention(graph: SemanticGraph, x: jax.Array, src: jax.Array, dst: jax.Array) -> jax.Array:
                z = x.reshape(len(x), HEADS, -1)
                return neighbor_attention(graph, z, src, dst, implementation="native")

            return attention

        def mean(graph: SemanticGraph, x: jax.Array, src: jax.Array, dst: jax.Array) -> jax.Array:
            if not self.backward:
                return neighbor_mean(graph, x, implementation="native")
            # The gradient of the mean, as its backward pass computes it.
            return row_sum(graph.outgoing, x, row_scale=src)

        return mean

    def arguments(self, graph: SemanticGraph) -> tuple[Any, ...]:
        """Arrays for `call`, but for the graph."""
        rng = np.random.default_rng(0)
        _, columns = self.csr(graph)
        x = jnp.asarray(rng.standard_normal((columns, self.floats), np.float32))
        if self.op == "mean" and self.backward:  # a slice of the logits would cost time for each vertex
            return x, jnp.ones(columns, jnp.float32), jnp.zeros(0, jnp.float32)
        src = jnp.asarray(rng.standard_normal((graph.num_sources, HEADS), np.float32))
        return x, src, jnp.asarray(rng.standard_normal((graph.num_targets, HEADS), np.float32))


def tile_columns(csr: Csr, columns: int, row_bytes: int) -> int:
    """Columns of a tile of the native kernels, 0 where rows are walked whole."""
    import ctypes

    decide = native.library().jhgnn_tile_columns
    decide.argtypes, decide.restype = [ctypes.c_int64] * 4, ctypes.c_int64
    return int(decide(len(csr.indptr) - 1, len(csr.indices), columns, row_bytes))


KERNELS = tuple(Kernel("mean", backward, floats) for floats in (64, 512) for backward in (False, True))
"""Whose slowdowns are predicted. Attention first packs all vertices: its times are not those of its gathers alone."""
