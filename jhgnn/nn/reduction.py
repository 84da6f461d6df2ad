"""The seam in semantic fusion: what a layer sums over rows or relations that others may hold, and who adds it up.

A layer computes the partial sums of what it has. Whoever runs it (a single step, devices, micro-batches, chunks of a
layer-wise evaluation) owns the reduction to the sums over everything, and hands those back to the layer's fusion.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax

Over: TypeAlias = Literal["targets", "relations"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Partial:
    """Sums over a part of what a layer's fusion runs over; partial sums of several parts add up leaf by leaf.

    Attributes:
        values: a pytree of floating arrays.
        over: `targets`: rows of the batch that other devices, micro-batches or chunks may hold; `relations`: semantic
            graphs of which others may hold some, for the same rows.
        layer: number of the layer.
    """

    values: Any
    over: Over = dataclasses.field(metadata={"static": True})
    layer: int = dataclasses.field(metadata={"static": True})


Reduce: TypeAlias = Callable[[Partial], Any]
"""From a layer's partial sums to the `values` of the sums over everything."""


def alone(partial: Partial) -> Any:
    """The reduction where nobody else holds any part."""
    return partial.values
