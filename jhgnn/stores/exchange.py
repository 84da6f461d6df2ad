"""How places of the mesh send each other requests for rows, rows and gradients, in buffers of fixed shapes.

`AllToAll` has one capacity for all pairs of places: one collective whatever it carries. `Pairwise` has one for each
distance between two places, and none for pairs that ask each other nothing: as many collectives as there are distances,
which send little but what was asked for. It is for rows that few places keep and the others read.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.sampled import FrozenCounts
from jhgnn.ops.order import after
from jhgnn.ops.words import from_words, to_words

Leaves = Mapping[str, Sequence[jax.Array]]
PairCounts = tuple[tuple[int, ...], ...]
"""Of each place, how many rows it may ask each place for."""


class Room(NamedTuple):
    """Where a place's requests stand in its buffer of `size` entries: from `starts[p]` at most `counts[p]` of place p.

    `starts` and `counts` are int32 `[places]`.
    """

    starts: jax.Array
    counts: jax.Array
    size: int


class Exchange(Protocol):
    """Moves buffers that are laid out as `room` says, leaves `[size, ...]` of 2, 4 or 8 bytes a number."""

    @property
    def num_places(self) -> int:
        """Places that exchange."""
        ...

    def index(self) -> jax.Array:
        """This place's number, int32 scalar."""
        ...

    def room(self, name: str) -> Room:
        """The layout of the requests for rows of a type."""
        ...

    def sent(self, leaves: Leaves) -> dict[str, list[jax.Array]]:
        """Entries in the room of place p go there; what came, in a room of as many. Zeros where nobody sends."""
        ...

    def returned(self, leaves: Leaves) -> dict[str, list[jax.Array]]:
        """What came goes back with other leaves, to where the entries that `sent` took stood."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class AllToAll:
    """One `all_to_all` whatever it carries.

    Attributes:
        capacities: requests of each type that one place may send to another; 0: it needs none.
        num_places: on the axis.
        axis: of the mesh, or several of them.
    """

    capacities: FrozenCounts
    num_places: int
    axis: str | tuple[str, ...]

    def index(self) -> jax.Array:
        return jax.lax.axis_index(self.axis)

    def room(self, name: str) -> Room:
        capacity = self.capacities.get(name)
        starts = jnp.arange(self.num_places, dtype=jnp.int32) * capacity
        return Room(starts, jnp.full(self.num_places, capacity, jnp.int32), self.num_places * capacity)

    def sent(self, leaves: Leaves) -> dict[str, list[jax.Array]]:
        by_place = [leaf.reshape(self.num_places, -1, *leaf.shape[1:]) for own in leaves.values() for leaf in own]
        words = jax.lax.all_to_all(to_words(by_place), self.axis, 0, 0, tiled=True)
        got = from_words(words, [_shape(leaf) for leaf in by_place])
        return _like(leaves, [leaf.reshape(-1, *leaf.shape[2:]) for leaf in got])

    def returned(self, leaves: Leaves) -> dict[str, list[jax.Array]]:
        return self.sent(leaves)


@dataclasses.dataclass(frozen=True, eq=False)
class Pairwise:
    """A permutation of places for each distance between two of them, one after the other.

    Attributes:
        counts: rows that each place may ask each one for, of all types of one name; 0: it asks that one for none.
        axes: of the mesh, on which a place's index is its number.
    """

    counts: PairCounts
    axes: tuple[str, ...]

    @property
    def num_places(self) -> int:
        return len(self.counts)

    def index(self) -> jax.Array:
        return jax.lax.axis_index(self.axes)

    @functools.cached_property
    def distances(self) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        """For each distance at which any place asks another one: how many rows at most, and the pairs that do."""
        found = []
        for distance in range(1, self.num_places):
            pairs = [(place, (place + distance) % self.num_places) for place in range(self.num_places)]
            asking = tuple((place, other) for place, other in pairs if self.counts[place][other])
            if asking:
                found.append((max(self.counts[place][other] for place, other in asking), asking))
        return tuple(found)

    @property
    def num_rows(self) -> int:
        """Rows that all places together send in one direction, padding included."""
        return sum(count * len(pairs) for count, pairs in self.distances)

    def room(self, name: str) -> Room:
        starts, counts = np.zeros((2, self.num_places, self.num_places), np.int32)
        begin = 0
        for count, pairs in self.distances:
            for place, other in pairs:
                starts[place, other], counts[place, other] = begin, count
            begin += count
        own = self.index()
        return Room(jnp.asarray(starts)[own], jnp.asarray(counts)[own], begin)

    def sent(self, leaves: Leaves) -> dict[str, list[jax.Array]]:
        return self._permuted(leaves, back=False)

    def returned(self, leaves: Leaves) -> dict[str, list[jax.Array]]:
        return self._permuted(leaves, back=True)

    def _permuted(self, leaves: Leaves, *, back: bool) -> dict[str, list[jax.Array]]:
        """Each permutation takes a word of the one before it, and the first one waits for all that is sent, so that all
        processes run them in the same order.
        """
        flat = [leaf for own in leaves.values() for leaf in own]
        begin, got, before = 0, [], after(jnp.zeros((1, 1), jnp.int32), flat)
        for count, pairs in self.distances:
            own = [leaf[begin : begin + count][None] for leaf in flat]
            ways = [(other, place) if back else (place, other) for place, other in pairs]
            words = jax.lax.ppermute(jnp.concatenate([to_words(own), before], axis=1), self.axes, ways)
            got.append([leaf[0] for leaf in from_words(words[:, :-1], [_shape(leaf) for leaf in own])])
            before, begin = words[:, -1:], begin + count
        return _like(leaves, [jnp.concatenate(parts) for parts in zip(*got, strict=True)])


def _like(leaves: Leaves, flat: Sequence[jax.Array]) -> dict[str, list[jax.Array]]:
    found = iter(flat)
    return {name: [next(found) for _ in own] for name, own in leaves.items()}


def _shape(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
