"""Trees of arrays whose shapes differ from device to device, as buffers of one shape: one a dtype, padded at the end.

A program mapped over a mesh takes arguments of one shape on every device. Shards of `rel` have batches and residuals of
their own shapes, which come packed, and are unpacked within each shard's branch of the program.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
Sizes = dict[str, int]
"""Elements by dtype."""


@dataclasses.dataclass(frozen=True, eq=False)
class Packing:
    """How some leaves lie in buffers: in their order, those of a dtype one after the other.

    Attributes:
        shapes: of each leaf, with its dtype.
    """

    shapes: tuple[jax.ShapeDtypeStruct, ...]

    @classmethod
    def of(cls, leaves: Sequence[Any]) -> "Packing":
        return cls(tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves))

    @property
    def sizes(self) -> Sizes:
        """Elements of each dtype that occurs."""
        found: Sizes = {}
        for each in self.shapes:
            found[each.dtype.name] = found.get(each.dtype.name, 0) + each.size
        return found

    def pack(self, leaves: Sequence[Array], sizes: Sizes) -> dict[str, Array]:
        """Traced: buffers of these sizes, at least the packing's own."""
        found = {}
        for dtype, size in sizes.items():
            flat = [leaf.reshape(-1) for leaf in leaves if leaf.dtype.name == dtype]
            empty = size - sum(len(each) for each in flat)
            found[dtype] = jnp.concatenate([*flat, jnp.zeros(empty, dtype)])
        return found

    def write(self, leaves: Sequence[np.ndarray], into: Mapping[str, np.ndarray]) -> None:
        """The same on the host, into buffers that are there."""
        starts = dict.fromkeys(into, 0)
        for leaf, each in zip(leaves, self.shapes, strict=True):
            dtype = each.dtype.name
            if leaf.shape != each.shape or np.dtype(leaf.dtype).name != dtype:
                raise ValueError(f"an array is {leaf.dtype}{leaf.shape}; the packing says {dtype}{each.shape}")
            into[dtype][starts[dtype] : starts[dtype] + each.size] = leaf.reshape(-1)
            starts[dtype] += each.size

    def unpack(self, buffers: Mapping[str, Array]) -> list[Array]:
        """The leaves, traced or on the host."""
        starts: Sizes = {}
        found = []
        for each in self.shapes:
            start = starts.get(each.dtype.name, 0)
            starts[each.dtype.name] = start + each.size
            found.append(buffers[each.dtype.name][start : start + each.size].reshape(each.shape))
        return found


def largest(packings: Sequence[Packing]) -> Sizes:
    """Sizes that hold any of some packings."""
    found: Sizes = {}
    for packing in packings:
        for dtype, size in packing.sizes.items():
            found[dtype] = max(found.get(dtype, 0), size)
    return dict(sorted(found.items()))
