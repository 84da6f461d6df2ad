"""The meeting at the frontiers of branches that are cut deeper: each shard's sums go to the shard that has the branch.

A frontier's sums, `[vertices, hidden]`, are made by the shards that compute what is below the branch, and read by the
one that computes the branch itself, which adds them up. On the way back that shard alone knows the gradient of the sum,
which is that of each of its terms, and sends it to those shards. Both ways are permutations between the shards
concerned (`jhgnn.stores.exchange.Pairwise`); what a shard makes for itself stays.
"""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jhgnn.stores.exchange import Pairwise
from jhgnn.training.mesh import REL


class Frontier(NamedTuple):
    """The vertices that a branch leads to.

    Attributes:
        way: the branch, by relations from the targets outwards.
        low, high: the targets of a batch that it leads from.
    """

    way: tuple[str, ...]
    low: int
    high: int


@dataclasses.dataclass(frozen=True, eq=False)
class FrontierMeeting:
    """How the sums of the frontiers of one hop lie in a shard's buffer, `[size, hidden]`.

    First come those that stay, then those for each other shard, as `Pairwise` sends them.

    Attributes:
        rows: of each frontier, in this order in all buffers.
        owners: the shard that reads the sum of each frontier.
        makers: the shards that make sums of each frontier.
        num_shards: of the axis `rel`.
    """

    rows: Mapping[Frontier, int]
    owners: Mapping[Frontier, int]
    makers: Mapping[Frontier, Collection[int]]
    num_shards: int

    @property
    def size(self) -> int:
        """Rows of a buffer."""
        return self._kept + sum(count for count, _ in self.exchange.distances)

    @functools.cached_property
    def exchange(self) -> Pairwise:
        """Of the sums that do not stay, between places on `rel`."""
        shards = range(self.num_shards)
        counts = [[0 if maker == owner else self._count(maker, owner) for owner in shards] for maker in shards]
        return Pairwise(tuple(map(tuple, counts)), (REL,))

    def pack(self, maker: int, sums: Mapping[Frontier, jax.Array], empty: jax.Array) -> jax.Array:
        """A shard's buffer, with the sums that it makes; `empty` is `[0, hidden]`."""
        parts, filled = [empty], 0
        for distance, begin in self._segments:
            parts.append(_padding(empty, begin - filled))
            filled = begin
            for frontier in self._between(maker, (maker + distance) % self.num_shards):
                parts.append(sums[frontier])
                filled += self.rows[frontier]
        return jnp.concatenate([*parts, _padding(empty, self.size - filled)])

    def unpack(self, owner: int, buffer: jax.Array) -> dict[Frontier, jax.Array]:
        """The sums over all shards of the frontiers that a shard reads, from the buffer that `sent` gave it."""
        sums: dict[Frontier, jax.Array] = {}
        for distance, begin in self._segments:
            for frontier in self._between((owner - distance) % self.num_shards, owner):
                own = buffer[begin : begin + self.rows[frontier]]
                sums[frontier] = sums[frontier] + own if frontier in sums else own
                begin += self.rows[frontier]
        return sums

    def sent(self, buffer: jax.Array) -> jax.Array:
        """All shards' buffers, where they are read."""
        return self._exchanged(buffer, back=False)

    def returned(self, buffer: jax.Array) -> jax.Array:
        """The gradients of what `sent` gave, where its argument was made."""
        return self._exchanged(buffer, back=True)

    def _exchanged(self, buffer: jax.Array, *, back: bool) -> jax.Array:
        if not self.exchange.distances:
            return buffer
        leaves = {"sums": [buffer[self._kept :]]}
        (moved,) = (self.exchange.returned(leaves) if back else self.exchange.sent(leaves))["sums"]
        return jnp.concatenate([buffer[: self._kept], moved])

    @property
    def _kept(self) -> int:
        return max(self._count(shard, shard) for shard in range(self.num_shards))

    @property
    def _segments(self) -> list[tuple[int, int]]:
        """Where the sums for the shard at each distance begin; at 0 are those that stay."""
        found, begin = [(0, 0)], self._kept
        for count, ((maker, owner), *_) in self.exchange.distances:
            found.append(((owner - maker) % self.num_shards, begin))
            begin += count
        return found

    def _between(self, maker: int, owner: int) -> list[Frontier]:
        return [each for each in self.rows if self.owners[each] == owner and maker in self.makers[each]]

    def _count(self, maker: int, owner: int) -> int:
        return sum(self.rows[frontier] for frontier in self._between(maker, owner))


def frontier_meetings(
    made: Sequence[Sequence[tuple[Frontier, int]]], given: Sequence[Sequence[tuple[Frontier, int]]]
) -> tuple[FrontierMeeting, ...]:
    """The meetings at all frontiers, from those of hop 1 on.

    Args:
        made, given: of each shard, the frontiers whose sums it makes, maybe several times, and those whose sums it is
            given, with their rows.
    """
    rows: dict[Frontier, int] = {}
    for frontier, count in (each for own in (*made, *given) for each in own):
        if rows.setdefault(frontier, count) != count:
            raise ValueError(f"{frontier} has {count} slots in one piece and {rows[frontier]} in another one")
    owners = {frontier: shard for shard, own in enumerate(given) for frontier, _ in own}
    makers = {frontier: {shard for shard, own in enumerate(made) if frontier in dict(own)} for frontier in rows}
    hops = sorted({len(frontier.way) for frontier in rows})
    return tuple(
        FrontierMeeting({each: rows[each] for each in sorted(rows) if len(each.way) == hop}, owners, makers, len(made))
        for hop in hops
    )


def _padding(empty: jax.Array, rows: int) -> jax.Array:
    return jnp.zeros((rows, *empty.shape[1:]), empty.dtype)
