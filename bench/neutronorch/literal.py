"""The baseline: results of hot vertices enter the step from outside of the gradient, as in NeutronOrch's public code.

What a hot receiver's neighbours give is computed with the current weights, so it is not stale, but no gradient flows
through it. This isolates what the public code leaves out of dL/dW of its first layer. `sampling.hot = "literal"` is the
same omission with results that are stale as well.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import NeighborTable
from jhgnn.models.rgcn import RGCN, RGCNLayer
from jhgnn.nn.feature_projection import Rows
from jhgnn.nn.inputs import Block


class LiteralLayer(RGCNLayer):
    """`RGCNLayer` whose first layer passes no gradient where a receiver's only neighbour is a mean that is kept."""

    num_nodes: Mapping[str, int]

    def _aggregate(
        self, name: str, rows: Mapping[str, Rows], z: Mapping[str, Mapping[str, jax.Array]], block: Block
    ) -> jax.Array:
        out, table = super()._aggregate(name, rows, z, block), block.graphs[name]
        if self.layer > 0 or not isinstance(table, NeighborTable):
            return out
        source = self.plan.relations[name].source
        ids = block.ids[source][table.senders[:, 0]]
        hot = (table.num_neighbors == 1) & (ids >= self.num_nodes[source])
        return jnp.where(hot[:, None], jax.lax.stop_gradient(out), out)


class LiteralRGCN(RGCN):
    """R-GCN of `LiteralLayer`s."""

    make_layer = LiteralLayer

    def __init__(self, config, spec, *, rngs) -> None:  # type: ignore[no-untyped-def]
        super().__init__(config, spec, rngs=rngs)
        for layer in self.layers:
            layer.num_nodes = self.num_nodes  # type: ignore[attr-defined]
