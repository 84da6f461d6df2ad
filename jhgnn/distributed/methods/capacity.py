"""Choosing a part for each of many nodes by score, where parts have room for only so many."""

import numpy as np


def choose_with_room(scores: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Gives every row a column of high score, no column to more rows than it has room for.

    In rounds: each row without a column asks for its best one with room; where more ask than fit, those stay whose
    next best is worst. Ties go to lower columns and lower rows, so that the result is a function of its arguments.

    Args:
        scores: float32 `[n, parts]`.
        room: integer `[parts]`, at least `n` in all.

    Returns:
        int32 `[n]`.

    Raises:
        ValueError: there is too little room in all.
    """
    if int(room.sum()) < len(scores):
        raise ValueError(f"{len(scores)} rows ask for room; there is room for {int(room.sum())}")
    room = room.astype(np.int64)
    chosen = np.full(len(scores), -1, np.int32)
    waiting = np.arange(len(scores))
    while len(waiting):
        open_scores = np.where(room > 0, scores[waiting], -np.inf)
        best = np.argmax(open_scores, axis=1)
        rows = np.arange(len(waiting))
        best_score = open_scores[rows, best]
        open_scores[rows, best] = -np.inf
        second = open_scores.max(axis=1, initial=-np.inf)
        margin = np.where(np.isfinite(second), best_score - second, 0.0)
        # By part, then by falling margin; the sort is stable, so equal margins stay in the order of rows.
        order = np.lexsort((-margin, best))
        asked = np.bincount(best, minlength=len(room))
        rank = np.arange(len(waiting)) - np.repeat(np.cumsum(asked) - asked, asked)
        fits = rank < room[best[order]]
        winners = order[fits]
        chosen[waiting[winners]] = best[winners]
        room -= np.minimum(asked, room)
        waiting = np.sort(waiting[order[~fits]])
    return chosen


def fair_room(count: int, num_parts: int, tolerance: float) -> np.ndarray:
    """Room for `tolerance` times an equal share in each part, at least for the share rounded up; int64 `[parts]`."""
    return np.full(num_parts, max(-(-count // num_parts), int(tolerance * count / num_parts)), np.int64)
