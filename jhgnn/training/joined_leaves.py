"""Small parameters joined to one vector for their update, so that a program has one update of them and not one each.

A model has tens of small weights and biases. XLA compiles a kernel for each of an update's arrays, of which Adam has
three a parameter: on ACM 137 of the 334 kernels of R-GAT's step. The optimizers here work element by element, so the
vector's update has the same values.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.ops.column_parts import column_parts

MOST_ELEMENTS = 16_384
"""Of a leaf that is joined: what joining and splitting copies fits the cache."""

FEWEST = 4
"""Leaves from which on they are joined."""


@dataclasses.dataclass(frozen=True)
class JoinedLeaves:
    """How the leaves of one tree are joined; trees of the same structure, as gradients and moments, are so too.

    Attributes:
        structure: of the tree.
        shapes: of its leaves.
        small: places of the leaves that are joined; none where nothing is.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    small: tuple[int, ...]

    @classmethod
    def of(cls, tree: Any) -> "JoinedLeaves":
        """Joins leaves of the commonest dtype among the small ones."""
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(leaf.shape for leaf in leaves)
        small = [place for place, shape in enumerate(shapes) if math.prod(shape) <= MOST_ELEMENTS]
        small = [place for place in small if leaves[place].dtype == jnp.float32]
        return cls(structure, shapes, tuple(small) if len(small) >= FEWEST else ())

    def join(self, tree: Any, *, on_host: bool = False) -> Any:
        """The leaves that stay by themselves, and a vector of the others, in a list; without small ones the tree.

        `on_host`: outside of programs, by NumPy, since JAX would compile a program for it.
        """
        if not self.small:
            return tree
        leaves = self.structure.flatten_up_to(tree)
        small = [leaves[place] for place in self.small]
        if on_host:
            vector = jax.device_put(np.concatenate([np.asarray(leaf).reshape(-1) for leaf in small]))
        else:
            vector = jnp.concatenate([leaf.reshape(-1) for leaf in small])
        return [leaf for place, leaf in enumerate(leaves) if place not in self.small] + [vector]

    def split(self, joined: Any, *, on_host: bool = False) -> Any:
        """The tree again; `on_host` as in `join`."""
        if not self.small:
            return joined
        *large, vector = joined
        shapes = [self.shapes[place] for place in self.small]
        sizes = [math.prod(shape) for shape in shapes]
        if on_host:
            parts = np.split(np.asarray(vector), np.cumsum(sizes)[:-1])
            small = [jax.device_put(part.reshape(shape)) for part, shape in zip(parts, shapes, strict=True)]
        else:
            of_vector = column_parts(vector[None], sizes)
            small = [part.reshape(shape) for part, shape in zip(of_vector, shapes, strict=True)]
        own, rest = dict(zip(self.small, small, strict=True)), iter(large)
        return self.structure.unflatten(
            [own[place] if place in own else next(rest) for place in range(len(self.shapes))]
        )

    @property
    def joined_structure(self) -> Any:
        """Of what `join` gives where it joins."""
        return jax.tree.structure([0] * (len(self.shapes) - len(self.small) + 1))

    def join_within(self, state: Any, *, on_host: bool = False) -> Any:
        """An optimizer's state with its trees of this structure joined."""
        return self._within(state, self.structure, functools.partial(self.join, on_host=on_host))

    def split_within(self, state: Any, *, on_host: bool = False) -> Any:
        """An optimizer's state as it was before `join_within`."""
        return self._within(state, self.joined_structure, functools.partial(self.split, on_host=on_host))

    def _within(self, state: Any, structure: Any, change: Any) -> Any:
        if not self.small:
            return state

        def is_own(tree: Any) -> bool:
            return bool(jax.tree.structure(tree) == structure)

        return jax.tree.map(lambda tree: change(tree) if is_own(tree) else tree, state, is_leaf=is_own)
