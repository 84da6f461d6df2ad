"""Which nodes or links train, validate and test: by a column, by shares, drawn or along time, or by moments."""

from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.data.tables.column import Chunk
from jhgnn.data.tables.growing import Growing
from jhgnn.data.tables.split_words import split_codes
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS


class SplitReader:
    """Takes the rows of the table that holds the split column."""

    def __init__(self, column: str) -> None:
        self.columns: Sequence[str] = (column,)
        self._nodes, self._codes = Growing(np.int64), Growing(np.int8)

    def add(self, chunk: Chunk, nodes: np.ndarray) -> None:
        """Takes rows, which belong to these nodes `[num_rows]`; raises InputError as `split_codes`."""
        self._nodes.add(nodes)
        self._codes.add(split_codes(chunk.columns[self.columns[0]], self.columns[0], chunk.place))

    def finish(self, num_nodes: int, node_type: str, shown: str) -> dict[str, np.ndarray]:
        """Split -> ids; those without nodes are left out.

        Raises:
            InputError: a node is in two.
        """
        nodes, codes = self._nodes.finish(), self._codes.finish()
        nodes, codes = nodes[codes >= 0], codes[codes >= 0]
        of_node = np.full(num_nodes, -1, np.int8)
        of_node[nodes] = codes
        twice = np.flatnonzero(of_node[nodes] != codes)
        if len(twice):
            one, other = SPLITS[codes[twice[0]]], SPLITS[of_node[nodes[twice[0]]]]
            raise InputError(f"{shown} puts one {node_type} into {one!r} and {other!r}; choose one")
        return _of_codes(of_node)


def drawn(pool: np.ndarray, shares: Mapping[str, float], seed: int, where: str) -> dict[str, np.ndarray]:
    """Splits of a pool of ids by shares of it, at random; what shares leave over is in none.

    Raises:
        InputError: the pool is too small for every split to have one.
    """
    return _cut(np.random.default_rng(seed).permutation(pool), shares, where)


def along_time(
    pool: np.ndarray, times: np.ndarray, shares: Mapping[str, float], where: str
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Splits of a pool by shares of it from the earliest to the latest, and the first moment of each split.

    What has one time is in one split, the later: a split never holds anything that is as late as the next one's first.

    Raises:
        InputError: the pool is too small, or a split is left without any because of equal times.
    """
    order = pool[np.argsort(times, kind="stable")]
    ascending = np.sort(times)
    parts = _cut(order, shares, where)
    starts = np.cumsum([0, *(len(part) for part in parts.values())])[:-1]
    moments = [int(ascending[start]) for start in starts]
    ends = [*np.searchsorted(ascending, moments[1:]).tolist(), sum(map(len, parts.values()))]
    begins = [0, *ends[:-1]]
    splits = {name: np.sort(order[begin:end]) for name, begin, end in zip(parts, begins, ends, strict=True)}
    for name, ids in splits.items():
        if not len(ids):
            raise InputError(
                f"{where}: too many have one time, so that none is left for {name!r}; give moments instead"
            )
    return splits, dict(zip(parts, moments, strict=True))


def by_moments(times: np.ndarray, val: int | None, test: int) -> np.ndarray:
    """Position in `SPLITS` of what happens at these times, int8: `test` from its moment on, `val` from its own."""
    codes = np.full(len(times), SPLITS.index("train"), np.int8)
    if val is not None:
        codes[times >= val] = SPLITS.index("val")
    codes[times >= test] = SPLITS.index("test")
    return codes


def members(pool: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
    """Split -> ids of the pool that have its code; those without are left out."""
    found = {split: pool[codes == number] for number, split in enumerate(SPLITS)}
    return {split: ids for split, ids in found.items() if len(ids)}


def _of_codes(codes: np.ndarray) -> dict[str, np.ndarray]:
    return members(np.arange(len(codes), dtype=np.int32), codes)


def _cut(pool: np.ndarray, shares: Mapping[str, float], where: str) -> dict[str, np.ndarray]:
    ends = np.rint(np.cumsum(list(shares.values())) * len(pool)).astype(int).tolist()
    parts = {name: pool[begin:end] for name, begin, end in zip(shares, [0, *ends[:-1]], ends, strict=True)}
    for name, part in parts.items():
        if not len(part):
            raise InputError(f"{where}: {len(pool)} labelled nodes or links are too few: none is left for {name!r}")
    return parts
