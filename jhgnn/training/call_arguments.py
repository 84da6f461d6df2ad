"""Few arrays in the place of many, where a program of the whole graph is called.

Every array costs the host about a microsecond a call on a GPU, as an argument and again as a result, and steps over
small graphs take no longer than that. So small parameters and their moments come as one vector each, and the small
index arrays of degree buckets as one. R-GCN on DBLP is called with 27 arrays in the place of 323, which takes 0.44 ms
of the host of an H200 in the place of 0.89. On CPUs parameters stay as they are: its steps took 4 to 7 % longer so.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.degree_buckets import DegreeBuckets
from jhgnn.nn.stage import stage
from jhgnn.training.joined_leaves import JoinedLeaves
from jhgnn.training.state import Params, TrainState

MOST_INDICES = 65_536
"""Of an index array that is joined: the device keeps them a second time."""


class JoinedState:
    """A state, or parameters, with small leaves joined; `jhgnn.training.joined_leaves` says which."""

    def __init__(self, params: Params, *, joins: bool = True) -> None:
        """
        Args:
            params: arrays or their shapes.
            joins: otherwise every tree stays as it is.
        """
        self._leaves = JoinedLeaves.of(params if joins else {})

    def join(self, tree: Any) -> Any:
        """Of a state or of parameters whose arrays are at hand; what is neither stays, and what is joined already."""
        join = self._joined_on_host
        return self._of(tree, join, functools.partial(self._leaves.join_within, join=join))

    def split(self, tree: Any) -> Any:
        """The tree again, of arrays that are at hand."""
        split = self._split_on_host
        return self._of(tree, split, functools.partial(self._leaves.split_within, split=split), joined=True)

    def abstract(self, tree: Any) -> Any:
        """Shapes of a joined state or of joined parameters, from those of the tree."""
        return jax.eval_shape(functools.partial(self._of, of=self._leaves.join, within=self._leaves.join_within), tree)

    def traced_join(self, state: TrainState) -> TrainState:
        """Within a program."""
        with stage("PU"):
            joined: TrainState = self._of(state, self._leaves.join, self._leaves.join_within)
        return joined

    def traced_split(self, tree: Any) -> Any:
        """Within a program: the tree of a joined state or of joined parameters."""
        with stage("PU"):
            return self._of(tree, self._leaves.split, self._leaves.split_within, joined=True)

    def _of(self, tree: Any, of: Any, within: Any, *, joined: bool = False) -> Any:
        if not self._leaves.small:
            return tree
        structure = self._leaves.joined_structure if joined else self._leaves.structure
        params = tree.params if isinstance(tree, TrainState) else tree
        if jax.tree.structure(params) != structure:
            return tree
        if isinstance(tree, TrainState):
            return tree._replace(params=of(params), opt_state=within(tree.opt_state))
        return of(params)

    def _joined_on_host(self, tree: Any) -> list[Any]:
        # By NumPy, since JAX would compile a program for it.
        leaves = self._leaves.structure.flatten_up_to(tree)
        small = set(self._leaves.small)
        vector = np.concatenate([np.asarray(leaves[place]).reshape(-1) for place in self._leaves.small])
        return [leaf for place, leaf in enumerate(leaves) if place not in small] + [jax.device_put(vector)]

    def _split_on_host(self, joined: Any) -> Any:
        *large, vector = joined
        shapes = [self._leaves.shapes[place] for place in self._leaves.small]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        parts = np.split(np.asarray(vector), ends)
        own = {
            place: jax.device_put(part.reshape(shape))
            for place, part, shape in zip(self._leaves.small, parts, shapes, strict=True)
        }
        rest = iter(large)
        count = len(self._leaves.shapes)
        return self._leaves.structure.unflatten([own[place] if place in own else next(rest) for place in range(count)])


class _Piece(NamedTuple):
    """A leaf of a tree, and whether it is a part of the vector."""

    shape: tuple[int, ...]
    is_index: bool


class JoinedIndices:
    """What a program reads and never writes, with the small index arrays of its degree buckets joined.

    Attributes:
        arrays: what the program is called with: the tree as it is where nothing is joined.
    """

    def __init__(self, tree: Any) -> None:
        """`tree`: arrays on the device."""
        leaves, structure = jax.tree.flatten(tree)
        self._structure: Any = structure
        inside = [
            isinstance(each, DegreeBuckets)
            for each in jax.tree.leaves(tree, is_leaf=_is_buckets)
            for _ in jax.tree.leaves(each)
        ]
        small = [
            own and leaf.size <= MOST_INDICES and leaf.dtype == jnp.int32
            for own, leaf in zip(inside, leaves, strict=True)
        ]
        self._pieces = tuple(_Piece(leaf.shape, own) for leaf, own in zip(leaves, small, strict=True))
        self._joins = sum(small) > 1
        self.arrays: Any = tree
        if self._joins:
            parts = [np.asarray(leaf).reshape(-1) for leaf, own in zip(leaves, small, strict=True) if own]
            others = [leaf for leaf, own in zip(leaves, small, strict=True) if not own]
            self.arrays = [*others, jax.device_put(np.concatenate(parts))]

    def traced_split(self, arrays: Any) -> Any:
        """Within a program: the tree."""
        if not self._joins:
            return arrays
        *others, vector = arrays
        parts = iter(jax.lax.split(vector, [math.prod(each.shape) for each in self._pieces if each.is_index]))
        rest = iter(others)
        return self._structure.unflatten(
            [next(parts).reshape(each.shape) if each.is_index else next(rest) for each in self._pieces]
        )


def _is_buckets(tree: Any) -> bool:
    return isinstance(tree, DegreeBuckets)
