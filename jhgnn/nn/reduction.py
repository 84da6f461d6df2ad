"""Partial sums of a layer's fusion, and the function that adds them up.

A layer's fusion may need sums over targets or relations of which it holds only some: a device has its share of a batch,
a micro-batch its part. So the layer computes the sums over what it has (`Partial`). Whoever runs the layer knows who
holds the rest, turns them into the sums over everything (`Reduce`), and hands these back to the layer's fusion.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax

Over: TypeAlias = Literal["targets", "relations"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Partial:
    """A layer's sums over the targets or relations at hand; those of several holders add up leaf by leaf.

    Attributes:
        values: a pytree of floating arrays.
        over: what is summed over. `targets`: rows of the batch, of which other devices, micro-batches or chunks may
            hold more. `relations`: semantic graphs into the same rows, of which others may hold more.
        layer: number of the layer.
    """

    values: Any
    over: Over = dataclasses.field(metadata={"static": True})
    layer: int = dataclasses.field(metadata={"static": True})


Reduce: TypeAlias = Callable[[Partial], Any]
"""From a layer's partial sums to the `values` of the sums over everything."""


def alone(partial: Partial) -> Any:
    """The reduction where everything is at hand."""
    return partial.values
