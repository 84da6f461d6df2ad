"""Layer: what every layer of a heterogeneous graph neural network does, in three steps.

`aggregate` computes what each relation or metapath gives, `partial` sums it over what is at hand, and `fuse` makes rows
of the sums over everything. Between the last two, devices or parts of a batch can add up their sums.
"""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from jhgnn.nn.block import Block
from jhgnn.nn.feature_projection import Rows
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.nn.reduction import Partial, Reduce, alone


class Layer(nnx.Module):
    """Feature projection and neighbor aggregation (`aggregate`), then semantic fusion in two halves.

    A layer of your own gives `plan` and the three methods; `jhgnn.models` has examples.
    """

    plan: LayerPlan
    """What the layer aggregates over, reads and makes."""

    def aggregate(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> Any:
        """FP and NA: what each relation or metapath hands on, in any form that `partial` and `fuse` take.

        Args:
            rows: of each type that the layer reads, `[rows, width]`; types that these inputs do not meet are absent.
            block: the edges, and how many rows to make of each type.
            step_seed: uint32 scalar of this step's dropout; None: no dropout.
        """
        raise NotImplementedError

    def partial(self, parts: Any, block: Block) -> Partial:
        """The first half of SF: sums over the targets or relations at hand, of which others may hold more."""
        raise NotImplementedError

    def fuse(self, rows: Mapping[str, Rows], parts: Any, block: Block, sums: Any) -> dict[str, jax.Array]:
        """The second half of SF: rows made of each type, `[num_rows, hidden]`, from the sums over everything."""
        raise NotImplementedError

    def of_neighbors(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> dict[str, jax.Array]:
        """What `Block.reused` takes the place of, `[num_rows, width]` by type: here the sums of `partial`."""
        found: dict[str, jax.Array] = self.partial(self.aggregate(rows, block, step_seed), block).values
        return found

    def __call__(
        self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None = None, reduce: Reduce = alone
    ) -> dict[str, jax.Array]:
        """The whole layer: rows of each type that it reads to rows of each type that it makes."""
        parts = self.aggregate(rows, block, step_seed)
        return self.fuse(rows, parts, block, reduce(self.partial(parts, block)))
