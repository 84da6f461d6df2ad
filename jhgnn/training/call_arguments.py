"""Few arrays in the place of many, where a program of the whole graph is called.

Every array costs the host about a microsecond a call on a GPU, as an argument and again as a result, and steps over
small graphs take no longer than that. So small parameters and their moments come as one vector each, and the small
index arrays of degree buckets as one. R-GCN on DBLP is called with 27 arrays in the place of 323, which takes 0.44 ms
of the host of an H200 in the place of 0.89. On CPUs parameters stay as they are: its steps took 4 to 7 % longer so.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.degree_buckets import DegreeBuckets
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
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
        return self._joined(tree, on_host=True)

    def split(self, tree: Any) -> Any:
        """The tree again, of arrays that are at hand."""
        return self._split(tree, on_host=True)

    def abstract(self, tree: Any) -> Any:
        """Shapes of a joined state or of joined parameters, from those of the tree."""
        return jax.eval_shape(self._joined, tree)

    def traced_join(self, state: TrainState) -> TrainState:
        """Within a program."""
        with stage("PU"):
            joined: TrainState = self._joined(state)
        return joined

    def traced_split(self, tree: Any) -> Any:
        """Within a program: the tree of a joined state or of joined parameters."""
        with stage("PU"):
            return self._split(tree)

    def _joined(self, tree: Any, *, on_host: bool = False) -> Any:
        leaves = self._leaves
        if not self._is(tree, leaves.structure):
            return tree
        if not isinstance(tree, TrainState):
            return leaves.join(tree, on_host=on_host)
        moments = leaves.join_within(tree.opt_state, on_host=on_host)
        return tree._replace(params=leaves.join(tree.params, on_host=on_host), opt_state=moments)

    def _split(self, tree: Any, *, on_host: bool = False) -> Any:
        leaves = self._leaves
        if not self._is(tree, leaves.joined_structure):
            return tree
        if not isinstance(tree, TrainState):
            return leaves.split(tree, on_host=on_host)
        params, moments = (
            leaves.split(tree.params, on_host=on_host),
            leaves.split_within(tree.opt_state, on_host=on_host),
        )
        return tree._replace(params=params, opt_state=moments)

    def _is(self, tree: Any, structure: Any) -> bool:
        params = tree.params if isinstance(tree, TrainState) else tree
        return bool(self._leaves.small) and bool(jax.tree.structure(params) == structure)


class _Piece(NamedTuple):
    """A leaf of a tree, and whether it is a part of the vector."""

    shape: tuple[int, ...]
    is_index: bool


class JoinedIndices:
    """What a program reads and never writes, with the small index arrays of what has degree buckets joined.

    Those of other graphs stay: kernels of our own would need each of them cut out of the vector first.

    Attributes:
        arrays: what the program is called with: the tree as it is where nothing is joined.
    """

    def __init__(self, tree: Any) -> None:
        """`tree`: arrays on the device."""
        leaves, structure = jax.tree.flatten(tree)
        self._structure: Any = structure
        inside = [
            _in_buckets(each) for each in jax.tree.leaves(tree, is_leaf=_in_buckets) for _ in jax.tree.leaves(each)
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


def _in_buckets(tree: Any) -> bool:
    """Whether loops over buckets alone read a part of a tree, whose slices XLA reads in place."""
    with_buckets = isinstance(tree, SemanticGraph | SparseFeatures) and tree.buckets is not None
    return with_buckets or isinstance(tree, DegreeBuckets)
