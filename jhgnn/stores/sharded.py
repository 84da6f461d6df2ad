"""Rows cut over an axis of the mesh: a place keeps the rows of its own nodes, fetches those of others once a step for
all types and hops, and gives the gradients of learnable ones back to where the rows are.

A step takes one exchange of requests, one of rows, and one of gradients, whatever the number of types: see
`jhgnn.stores.exchange` for the collectives that each is. A place reads its own rows without them. Requests of one
place to another are padded to capacities; where they do not suffice, the fetch says so, its rows are invalid, and the
batch is to be run again with larger ones.

Source: pre-gathering of HopGNN (as LeapGNN, arXiv 2409.00657), for several types and with the way back.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jhgnn.stores.exchange import Exchange, Room
from jhgnn.stores.touched import TouchedRows, sum_repeated, take

Answer = Callable[[str, jax.Array, Sequence[jax.Array]], Sequence[jax.Array]]
"""What a place says of its rows: of a type, int32 rows `[...]`, -1 for none, and what was sent beside them, `[..., ]`
leaves; gives leaves `[..., any]`."""


class Route(NamedTuple):
    """Where the rows of one type that a place asked for are, and which of its rows others asked for.

    Attributes:
        own: int32 `[n]`, row of each id at this place, or -1.
        sent: int32 `[n]`, entry of each id's request in the buffer of requests, or beyond it for none.
        asked: int32 `[requests]`, rows of this place that others asked for, or -1.
    """

    own: jax.Array
    sent: jax.Array
    asked: jax.Array


class Fetched(NamedTuple):
    """Rows of several types, `[n, ...]` leaves; see `Route`; `overflowed` is a bool scalar of this place."""

    rows: dict[str, Any]
    routes: dict[str, Route]
    overflowed: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class ShardedRows:
    """Tables of rows inside a mapped program.

    Attributes:
        tables: node type -> leaves `[rows, ...]`, this place's.
        homes: node type -> int32 `[num_nodes]`, `place * rows + row`.
        exchange: of requests, rows and gradients.
    """

    tables: Mapping[str, Any]
    homes: Mapping[str, jax.Array]
    exchange: Exchange

    def fetch(self, ids: Mapping[str, jax.Array]) -> Fetched:
        """The rows of ids by type, int32 `[n]`, -1 for none, for which the rows are those of anything.

        All places call it with ids of the same types and shapes. An id that comes more than once is sent as often.
        """

        def rows_of(name: str, rows: jax.Array, _: Sequence[jax.Array]) -> list[jax.Array]:
            return [take(leaf, rows) for leaf in jax.tree.leaves(self.tables[name])]

        found, routes, overflowed = self.ask(ids, rows_of)
        structures = {name: jax.tree.structure(self.tables[name]) for name in ids}
        rows = {name: jax.tree.unflatten(structures[name], found[name]) for name in ids}
        return Fetched(rows, routes, overflowed)

    def ask(
        self, ids: Mapping[str, jax.Array], answer: Answer, beside: Mapping[str, Sequence[jax.Array]] | None = None
    ) -> tuple[dict[str, list[jax.Array]], dict[str, Route], jax.Array]:
        """What the homes of ids answer, in the order of the ids; the routes; and whether requests did not fit.

        Two exchanges for all types together, or none where no place asks another one.

        Args:
            ids: as of `fetch`.
            answer: what a place says, which is also asked of its own rows.
            beside: by type, leaves `[n]` of 4 bytes a number that go to the home with each id.
        """
        beside = {} if beside is None else beside
        routes: dict[str, Route] = {}
        requests: dict[str, jax.Array] = {}
        overflowed = jnp.zeros((), bool)
        for name, own in ids.items():
            routes[name], requests[name], over = self._request(name, own)
            overflowed |= over
        remote = [name for name in ids if len(requests[name])]
        came: dict[str, list[jax.Array]] = {}
        if remote:
            # One more than the row, so that zeros, which come from whoever has not sent, ask for none.
            sent = {
                name: [requests[name] + 1, *_sent(routes[name], requests[name], beside.get(name, ()))]
                for name in remote
            }
            asked = self.exchange.sent(sent)
            routes |= {name: routes[name]._replace(asked=asked[name][0] - 1) for name in remote}
            answers = {name: list(answer(name, routes[name].asked, more)) for name, (_, *more) in asked.items()}
            came = self.exchange.returned(answers)
        found = {name: list(answer(name, routes[name].own, beside.get(name, ()))) for name in ids}
        for name, got in came.items():
            found[name] = [_chosen(routes[name], mine, theirs) for mine, theirs in zip(found[name], got, strict=True)]
        return found, routes, overflowed

    def give_back(self, routes: Mapping[str, Route], gradients: Mapping[str, jax.Array]) -> dict[str, TouchedRows]:
        """The gradients of fetched rows, `[n, width]` by type, summed over all places by those that keep the rows.

        Each of this place's rows comes at most once, by its number here. One exchange for all types.
        """
        buffers = {}
        for name, own in gradients.items():
            route = routes[name]
            if len(route.asked):
                empty = jnp.zeros((len(route.asked), *own.shape[1:]), own.dtype)
                buffers[name] = [empty.at[route.sent].set(own, mode="drop", unique_indices=True)]
        got = self.exchange.sent(buffers) if buffers else {}
        summed = {}
        for name, own in gradients.items():
            ids, parts = routes[name].own, own
            if name in got:
                ids = jnp.concatenate([ids, routes[name].asked])
                parts = jnp.concatenate([own, *got[name]])
            summed[name] = sum_repeated(TouchedRows(ids, parts), jax.tree.leaves(self.tables[name])[0].shape[0])
        return summed

    def _request(self, name: str, ids: jax.Array) -> tuple[Route, jax.Array, jax.Array]:
        """The route of a type's ids without what others ask, the rows to ask each place for, and whether they fit."""
        rows, room = jax.tree.leaves(self.tables[name])[0].shape[0], self.exchange.room(name)
        homes = take(self.homes[name], ids)
        place, row = homes // rows, homes % rows
        here = place == self.exchange.index()
        own = jnp.where((ids >= 0) & here, row, -1)
        away = (ids >= 0) & ~here
        nowhere = room.size + jnp.arange(len(ids), dtype=jnp.int32)  # apart, so that no two writes meet
        if not room.size:
            none = jnp.zeros(0, jnp.int32)
            return Route(own, nowhere, none), none, away.any()
        entry, fits = _entries(place, away, room, self.exchange.num_places)
        sent = jnp.where(fits, entry, nowhere)
        asked = jnp.full(room.size, -1, jnp.int32).at[sent].set(row, mode="drop", unique_indices=True)
        return Route(own, sent, asked), asked, (away & ~fits).any()


def _entries(place: jax.Array, away: jax.Array, room: Room, num_places: int) -> tuple[jax.Array, jax.Array]:
    """Where in the buffer each request of a place for rows of others stands, and whether there is room for it."""
    to_place = away[:, None] & (place[:, None] == jnp.arange(num_places, dtype=jnp.int32)[None, :])
    rank = jnp.cumsum(to_place, axis=0, dtype=jnp.int32)
    rank = jnp.take_along_axis(rank, place[:, None], axis=1, mode="promise_in_bounds")[:, 0] - 1
    return room.starts[place] + rank, away & (rank < room.counts[place])


def _sent(route: Route, requests: jax.Array, leaves: Sequence[jax.Array]) -> list[jax.Array]:
    """Leaves `[n]` of ids in the places of their requests, `[requests]`."""
    empty = [jnp.zeros(len(requests), leaf.dtype) for leaf in leaves]
    return [
        each.at[route.sent].set(leaf, mode="drop", unique_indices=True)
        for each, leaf in zip(empty, leaves, strict=True)
    ]


def _chosen(route: Route, mine: jax.Array, got: jax.Array) -> jax.Array:
    """Own rows, and those that came, in the order of the ids."""
    came = got.at[jnp.minimum(route.sent, got.shape[0] - 1)].get(mode="promise_in_bounds")
    return jnp.where((route.sent < got.shape[0]).reshape(-1, *[1] * (mine.ndim - 1)), came, mine)
