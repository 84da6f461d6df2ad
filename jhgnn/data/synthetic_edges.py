"""Planted bipartite edges: exact counts, power-law degrees on both sides, endpoints that prefer their own community.

A degree-corrected block model made in three steps: planned degrees of the left side, weighted draws of the right side
within the wanted community, and redraws until all edges are distinct. Bags of words are drawn alike: words are nodes.
"""

import dataclasses

import numpy as np

from jhgnn.data.synthetic_draws import Draws, apportion, zipf_weights

_COMMUNITY_ROUNDS = 8  # redraws of a repeated edge within its community before any right node will do
_MOST_ROUNDS = 2000


@dataclasses.dataclass(frozen=True)
class Degrees:
    """How the edges of a relation spread.

    Attributes:
        left_skew: Zipf exponent of the planned left degrees, a multiple of 1/8; 0: all alike.
        right_skew: Zipf exponent of the weights that right nodes are drawn with.
        least: the smallest left degree.
        covered: no right node stays without an edge, where there are enough edges.
    """

    left_skew: float = 0.0
    right_skew: float = 0.75
    least: int = 1
    covered: bool = True


def most_edges(num_left: int, num_right: int, undirected: bool) -> int:
    """Edges that surely fit: about half of the pairs, so that redraws find free ones soon."""
    return num_left * max(1, num_right // (8 if undirected else 2))


def planned_degrees(draws: Draws, count: int, total: int, skew: float, least: int, most: int) -> np.ndarray:
    """Zipf degrees of `count` nodes in random order, int64, that sum to `total`, none over `most`."""
    if total > count * most:
        raise ValueError(f"{total} edges do not fit {count} nodes of degree {most}")
    least = min(least, total // max(count, 1))
    degrees = least + apportion(total - least * count, zipf_weights(count, skew))
    excess = int(np.maximum(degrees - most, 0).sum())
    degrees = np.minimum(degrees, most)
    while excess:
        room = np.flatnonzero(degrees < most)[:excess]
        degrees[room] += 1
        excess -= len(room)
    return degrees[draws.permutation(count)]


def planted_edges(
    draws: Draws,
    left_groups: np.ndarray,
    right_groups: np.ndarray,
    num_edges: int,
    degrees: Degrees,
    fidelity: float,
    undirected: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws distinct edges, int64 `[num_edges]` left and right ids.

    Args:
        left_groups: community of each left node, `[num_left]`.
        right_groups: community of each right node, `[num_right]`, from the same range.
        num_edges: at most `most_edges`.
        fidelity: share of the edges that ask for their left node's community; the others ask for none.
        undirected: both sides are the same nodes; no self-loops, and a pair is joined once, in either direction.
    """
    num_left, num_right = len(left_groups), len(right_groups)
    plan = planned_degrees(
        draws, num_left, num_edges, degrees.left_skew, degrees.least, most=max(1, num_right // (4 if undirected else 2))
    )
    left = np.repeat(np.arange(num_left, dtype=np.int64), plan)
    wanted = np.where(draws.chance(fidelity, num_edges), left_groups[left], -1)
    communities = _Communities(draws, right_groups, degrees.right_skew)
    right = communities.draw(wanted)
    repeated = _repeated(left, right, num_right, undirected)
    for round_ in range(_MOST_ROUNDS):
        if not len(repeated):
            break
        again = (
            communities.draw(wanted[repeated]) if round_ < _COMMUNITY_ROUNDS else draws.below(num_right, len(repeated))
        )
        right[repeated] = again
        repeated = _repeated(left, right, num_right, undirected)
    else:
        raise RuntimeError(f"{num_edges} edges between {num_left} and {num_right} nodes: no distinct draw found")
    if degrees.covered:
        _cover(draws, right, right_groups)
    return left, right


class _Communities:
    """Weighted draws of right nodes from one community, or from all of them."""

    def __init__(self, draws: Draws, groups: np.ndarray, skew: float) -> None:
        self._draws = draws
        num_groups = int(groups.max(initial=0)) + 1
        shuffled = draws.permutation(len(groups))
        self._order = shuffled[np.argsort(groups[shuffled], kind="stable")]
        sizes = np.bincount(groups, minlength=num_groups)
        first = np.cumsum(sizes) - sizes
        # Hubs are dealt to the communities in turn: with few right nodes (20 venues) one would else hold them all.
        position = np.arange(len(groups)) - np.repeat(first, sizes)
        rank = np.argsort(np.argsort(position, kind="stable"), kind="stable")
        ends = np.concatenate([[0], np.cumsum(zipf_weights(len(groups), skew)[rank])])
        self._ends = ends[1:]
        # The last row, index -1, is the choice among all; an empty community is served by all as well.
        starts, stops = np.append(ends[first], 0), np.append(ends[first + sizes], ends[-1])
        empty = starts == stops
        self._starts, self._stops = np.where(empty, 0, starts), np.where(empty, ends[-1], stops)

    def draw(self, wanted: np.ndarray) -> np.ndarray:
        """A right node for each wanted community (-1: any), int64."""
        wanted = np.where(wanted < len(self._starts) - 1, wanted, -1)
        start = self._starts[wanted]
        points = start + self._draws.below(self._stops[wanted] - start, len(wanted))
        return self._order[np.searchsorted(self._ends, points, side="right")]


def _repeated(left: np.ndarray, right: np.ndarray, num_right: int, undirected: bool) -> np.ndarray:
    """Positions of edges that an earlier one repeats, and of self-loops where undirected."""
    keys = np.minimum(left, right) * num_right + np.maximum(left, right) if undirected else left * num_right + right
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    repeated = order[1:][ordered[1:] == ordered[:-1]]
    return np.union1d(repeated, np.flatnonzero(left == right)) if undirected else repeated


def _cover(draws: Draws, right: np.ndarray, groups: np.ndarray) -> None:
    """Moves edges, in place, from right nodes that have several to those without any, within a community if possible.

    A node without edges gets exactly one, so edges stay distinct.
    """
    bare = np.flatnonzero(np.bincount(right, minlength=len(groups)) == 0)
    if not len(bare):
        return
    spare_mask = np.ones(len(right), bool)
    spare_mask[np.unique(right, return_index=True)[1]] = False  # each keeps one edge
    spare = np.flatnonzero(spare_mask)
    spare = spare[draws.permutation(len(spare))]
    spare = spare[np.argsort(groups[right[spare]], kind="stable")]
    spare_groups = groups[right[spare]]
    bare = bare[np.argsort(groups[bare], kind="stable")]
    bare_groups = groups[bare]
    # The k-th bare node of a community takes that community's k-th spare edge.
    position = np.arange(len(bare)) - np.searchsorted(bare_groups, bare_groups)
    choice = np.searchsorted(spare_groups, bare_groups) + position
    served = choice < np.searchsorted(spare_groups, bare_groups, side="right")
    right[spare[choice[served]]] = bare[served]
    rest = np.delete(spare, choice[served])
    left_over = bare[~served][: len(rest)]
    right[rest[draws.permutation(len(rest))[: len(left_over)]]] = left_over
