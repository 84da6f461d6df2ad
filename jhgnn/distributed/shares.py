"""Which place trains which targets of a batch: cuts that every process computes alike from the batch's order.

Source: HopGNN (as LeapGNN, arXiv 2409.00657): the sub-batches M_{m,s} of model m's targets that live on server s.
"""

import dataclasses
from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np

from jhgnn.graph.sampled import PADDING

Strategy: TypeAlias = Literal["data", "owner", "leapgnn", "raf"]

QUANTILE = 0.9
"""Of the largest shares met in pre-sampling; a batch that needs more spills."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shares:
    """Cuts a batch into equally many parts of one size for every place.

    Attributes:
        strategy: `data` and `raf` cut the batch in its order; `owner` gives each target to its home; `leapgnn`
            likewise, each model's targets apart.
        num_places: of the mesh's axis `data`.
        num_parts: of each place's share, one after the other; with `leapgnn` the time steps of the ring.
        size: of a part, with its padding.
        places: int32 `[num_nodes]`, the home of each target; none for `data` and `raf`.
        unmerged: with `leapgnn`, the size of the part of a model's targets at a place, before parts are merged.
    """

    strategy: Strategy
    num_places: int
    num_parts: int
    size: int
    places: np.ndarray | None = None
    unmerged: int = 0

    def cut(self, ids: np.ndarray) -> np.ndarray:
        """Targets by place and part, int32 `[num_places, num_parts, size]`, padded.

        Every target of `ids`, int32 `[batch]`, stands in exactly one part. With `leapgnn` part t of place s is
        M_{m,s} for m = (s + t) mod N, as the models come by, and what is merged into it.
        """
        if self.places is None:
            return ids.reshape(self.num_places, self.num_parts, self.size)
        if self.strategy == "owner":
            return by_home(ids, self.places, self.num_places, self.size * self.num_parts).reshape(
                self.num_places, self.num_parts, self.size
            )
        out = np.full((self.num_places, self.num_places, self.unmerged), PADDING, np.int32)
        for model, own in enumerate(ids.reshape(self.num_places, -1)):
            homes = by_home(own, self.places, self.num_places, self.unmerged)
            for place in range(self.num_places):
                out[place, (model - place) % self.num_places] = homes[place]
        return out if self.num_parts == self.num_places else merged(out, self.num_parts, self.size)

    def spilled(self, ids: np.ndarray) -> int:
        """Targets of a batch that are trained away from home, for want of room there."""
        if self.places is None:
            return 0
        cut = self.cut(ids).reshape(self.num_places, -1)
        places = np.broadcast_to(np.arange(self.num_places)[:, None], cut.shape)[cut >= 0]
        return int((self.places[cut[cut >= 0]] != places).sum())


def by_home(ids: np.ndarray, places: np.ndarray, num_places: int, room: int) -> np.ndarray:
    """Targets by home, int32 `[num_places, room]`, padded, in the order of `ids`.

    Those that a full home cannot take go, in their order, to the places with most room left, the first of them at a
    tie.

    Raises:
        ValueError: there are more targets than room at all places.
    """
    out = np.full((num_places, room), PADDING, np.int32)
    known = ids[ids >= 0]
    if len(known) > num_places * room:
        raise ValueError(f"{len(known)} targets do not fit {num_places} shares of {room}")
    homes = places[known]
    taken = np.zeros(num_places, np.int64)
    spilled = []
    for place in range(num_places):
        own = known[homes == place]
        taken[place] = min(len(own), room)
        out[place, : taken[place]] = own[:room]
        spilled.append(np.flatnonzero(homes == place)[room:])
    for position in np.sort(np.concatenate(spilled)):
        place = int(np.argmin(taken))
        out[place, taken[place]] = known[position]
        taken[place] += 1
    return out


def merged(parts: np.ndarray, count: int, size: int) -> np.ndarray:
    """Targets of all parts in fewer time steps, int32 `[num_places, count, size]`, padded.

    Again and again the time step whose smallest part is smallest goes, the first of equals, and each place spreads its
    targets of it over its other parts, up to their mean size.

    Args:
        parts: int32 `[num_places, steps, n]`, padded.
        count: of time steps that stay, at least 1.
        size: of a part; `merged_size` always suffices.

    Source: LeapGNN's merging (arXiv 2409.00657).
    """
    lists = [[own[own >= 0].tolist() for own in place] for place in parts]
    for remaining in range(parts.shape[1], count, -1):
        smallest = [min(len(place[step]) for place in lists) for step in range(remaining)]
        removed = int(np.argmin(smallest))
        for place in lists:
            moved = place.pop(removed)
            mean = -(-(sum(map(len, place)) + len(moved)) // len(place))
            for own in place:
                room = max(0, mean - len(own))
                own += moved[:room]
                moved = moved[room:]
    out = np.full((len(lists), count, size), PADDING, np.int32)
    for number, place in enumerate(lists):
        for step, own in enumerate(place):
            out[number, step, : len(own)] = own
    return out


def merged_size(steps: int, count: int, size: int) -> int:
    """Of a part when so many parts of a size are merged into `count` time steps: a place's targets over these."""
    return -(-steps * size // count)


def plan_shares(
    strategy: Strategy,
    num_places: int,
    batch_size: int,
    batches: Iterable[np.ndarray],
    places: np.ndarray | None,
    num_parts: int = 1,
    time_steps: int = 0,
) -> Shares:
    """Shares whose size holds what most batches bring home: the 0.9 quantile of the largest, no less than an even cut.

    Args:
        strategy: see `Shares`.
        num_places: of the mesh's axis `data`.
        batch_size: of the global batch; `data`, `raf` and `leapgnn` divide it evenly over the places first.
        batches: some of the training's, int32 `[batch]` each, with padding.
        places: int32 `[num_nodes]`, the home of each target.
        num_parts: of each place's share with `data` and `raf`.
        time_steps: of `leapgnn`, at most `num_places`; 0: as many.
    """
    if strategy in ("data", "raf"):
        return Shares(strategy, num_places, num_parts, batch_size // (num_places * num_parts))
    assert places is not None
    models = num_places if strategy == "leapgnn" else 1
    largest = [
        np.bincount(places[own[own >= 0]], minlength=num_places).max()
        for ids in batches
        for own in ids.reshape(models, -1)
    ]
    even = -(-batch_size // (models * num_places))
    size = max(even, int(np.ceil(np.quantile(largest, QUANTILE))) if largest else 0)
    size = min(size, batch_size // models)
    if strategy != "leapgnn":
        return Shares(strategy, num_places, models, size, places)
    count = time_steps or num_places
    return Shares(strategy, num_places, count, merged_size(num_places, count, size), places, size)
