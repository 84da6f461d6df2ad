"""Boolean (or counting) products of two sparse matrices in bounded memory: by SciPy, or by bit sets where dense.

Matrices are `scipy.sparse.csr_array` with bool data (counting: int64), receivers as rows. Every product runs in row
blocks, so that its temporaries stay small and a result that outgrows its limit is noticed before it is stored.
"""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
from scipy import sparse

# Costs for the choice between the two ways, in seconds. Measured with `python -m bench.semantic_graph_build` on 2 cores
# of an AMD EPYC (Zen 5); only their ratios matter.
_SPARSE_FLOP_S = 3e-9  # SciPy passes over every multiplication twice: to size the result, then to fill it
_SPARSE_EDGE_S = 4e-9  # its rows come out unsorted: each direction costs a counting sort
_BITSET_WORD_S = 0.35e-9  # gathering and OR-ing 64 columns
_BITSET_CELL_S = 0.35e-9  # packing a cell, or unpacking and testing it
_BITSET_EDGE_S = 1.5e-9

_BLOCK_FLOPS = 2**25  # multiplications in a sparse row block, an upper bound on what it stores
_SMALL_FLOPS = 2**20  # at most 5 MiB stored
_BLOCK_BYTES = 2**22  # of unpacked or gathered bits: stays in the caches
_LONG_ROW = 48  # a row with more neighbours is OR-ed alone, the others one neighbour of every row at a time

PEAK_BYTES_PER_EDGE = 12
"""Memory at the worst moment of a boolean product: two copies of int32 indices and bool data, or both directions."""

PEAK_BYTES_PER_COUNTED_EDGE = 28
"""The same where int64 instance counts travel along."""


class ProductTooLargeError(Exception):
    """A product outgrew `max_edges`; `num_edges` is how far it had come and `share` of its rows."""

    def __init__(self, num_edges: int, share: float) -> None:
        super().__init__(f"{num_edges} edges in {share:.0%} of the rows")
        self.num_edges = num_edges
        self.share = share


@dataclasses.dataclass(frozen=True)
class ProductCost:
    """What a product costs: multiplications, expected edges, and which way is quicker."""

    flops: float
    num_edges: float
    bitset: bool
    seconds: float


def pattern(indptr: np.ndarray, indices: np.ndarray, num_columns: int) -> sparse.csr_array:
    """A bool matrix over these arrays, without copying the indices; `indptr` `[num_rows + 1]` fits int32."""
    return sparse.csr_array(
        (np.ones(len(indices), bool), indices, np.asarray(indptr, np.int32)), shape=(len(indptr) - 1, num_columns)
    )


def transpose(matrix: sparse.csr_array) -> sparse.csr_array:
    """The transpose, rows sorted (a counting sort); multiplicities stay."""
    columns = matrix.tocsc()
    flipped = sparse.csr_array((columns.data, columns.indices, columns.indptr), shape=matrix.shape[::-1])
    flipped.has_sorted_indices = True
    return flipped


def row_sums(matrix: sparse.csr_array, values: np.ndarray) -> np.ndarray:
    """Sum of `values` `[num_columns]` over the stored columns of each row, float64 `[num_rows]`."""
    running = np.zeros(len(matrix.indices) + 1)
    np.cumsum(values[matrix.indices], out=running[1:])
    return running[matrix.indptr[1:]] - running[matrix.indptr[:-1]]


def product_cost(
    num_rows: int, num_inner: int, num_columns: int, left_edges: float, flops: float, num_edges: float, max_bytes: float
) -> ProductCost:
    """Chooses the way of one product from expected sizes; bit sets must fit a quarter of `max_bytes`."""
    sparse_s = flops * _SPARSE_FLOP_S + num_edges * _SPARSE_EDGE_S
    words = -(-num_columns // 64)
    bitset_s = (
        left_edges * words * _BITSET_WORD_S
        + (num_rows + num_inner) * num_columns * _BITSET_CELL_S
        + num_edges * _BITSET_EDGE_S
    )
    bitset = bitset_s < sparse_s and (num_rows + num_inner) * words * 8 <= max_bytes / 4
    return ProductCost(flops, num_edges, bitset, bitset_s if bitset else sparse_s)


def row_flops(left: sparse.csr_array, right: sparse.csr_array) -> np.ndarray:
    """Multiplications that each row of the product takes, float64 `[num_rows]`."""
    return row_sums(left, np.diff(right.indptr).astype(np.float64))


def cost_of(
    left: sparse.csr_array, right: sparse.csr_array, flops_per_row: np.ndarray, max_bytes: float
) -> ProductCost:
    """`product_cost` of two matrices at hand: exact multiplications, edges as if columns were drawn at random."""
    return product_cost(
        left.shape[0],
        left.shape[1],
        right.shape[1],
        left.nnz,
        float(flops_per_row.sum()),
        float(expected_distinct(flops_per_row, right.shape[1]).sum()),
        max_bytes,
    )


def expected_distinct(draws: np.ndarray, num_columns: int) -> np.ndarray:
    """Distinct columns among `draws` uniform ones, per row: `n (1 - exp(-draws / n))`."""
    return num_columns * -np.expm1(-draws / num_columns) if num_columns else np.zeros_like(draws)


def multiply(
    left: sparse.csr_array, right: sparse.csr_array, *, max_edges: float, max_bytes: float
) -> sparse.csr_array:
    """`left @ right`, by the quicker way; bool data by OR, int64 data by sum. Rows are unsorted unless flagged.

    Raises:
        ProductTooLargeError: there are over `max_edges` edges.
    """
    if _surely_sparse(left, right):
        product = left @ right
        if product.nnz > max_edges:
            raise ProductTooLargeError(product.nnz, 1.0)
        return product
    flops = row_flops(left, right)
    if left.dtype == bool and cost_of(left, right, flops, max_bytes).bitset:
        return _multiply_bitset(left, right, max_edges)
    blocks = _sparse_row_blocks(left, right, flops, max_bytes)
    return stack(blocks, max_edges, left.shape[0], right.shape[1], left.dtype)


def _surely_sparse(left: sparse.csr_array, right: sparse.csr_array) -> bool:
    """A small sparse product, told by its longest row alone: weighing it would take a tenth of the product's time."""
    most_flops = left.nnz * int(np.diff(right.indptr).max(initial=0))
    cells = (left.shape[0] + left.shape[1]) * right.shape[1]
    return most_flops <= _SMALL_FLOPS and most_flops * (_SPARSE_FLOP_S + _SPARSE_EDGE_S) <= cells * _BITSET_CELL_S


def count_product(left: sparse.csr_array, right: sparse.csr_array, max_bytes: float) -> int:
    """Edges of the boolean product, which is never held as a whole."""
    flops = row_flops(left, right)
    if not cost_of(left, right, flops, max_bytes).bitset:
        return sum(block.nnz for block in _sparse_row_blocks(left, right, flops, max_bytes))
    packed = _pack(right)
    return sum(int(np.bitwise_count(_or_rows(left, packed, rows)).sum()) for rows in _word_blocks(left, packed))


def _sparse_row_blocks(
    left: sparse.csr_array, right: sparse.csr_array, flops_per_row: np.ndarray, max_bytes: float
) -> Iterator[sparse.csr_array]:
    """`left @ right`, a block of rows at a time, by SciPy."""
    bounds = row_block_bounds(np.cumsum(flops_per_row), min(_BLOCK_FLOPS, max(2**12, max_bytes / 64)))
    if len(bounds) == 2:
        yield left @ right
        return
    for start, stop in itertools.pairwise(bounds):
        yield left[int(start) : int(stop)] @ right


def row_block_bounds(running: np.ndarray, most: float) -> np.ndarray:
    """Borders of row blocks of about `most` each (a single row may be more), from running sums `[num_rows]`."""
    num_rows = len(running)
    if num_rows == 0 or running[-1] <= most:
        return np.array([0, num_rows])
    steps = np.arange(most, running[-1], most)
    return np.unique(np.concatenate([[0], np.searchsorted(running, steps, side="right"), [num_rows]]))


def stack(
    blocks: Iterator[sparse.csr_array], max_edges: float, num_rows: int, num_columns: int, dtype: np.dtype
) -> sparse.csr_array:
    """Row blocks as one matrix.

    Raises:
        ProductTooLargeError: there are over `max_edges` edges.
    """
    done: list[sparse.csr_array] = []
    num_edges = rows_done = 0
    for block in blocks:
        num_edges += block.nnz
        rows_done += block.shape[0]
        if num_edges > max_edges:
            raise ProductTooLargeError(num_edges, rows_done / num_rows)
        done.append(block)
    if not done:
        return sparse.csr_array((num_rows, num_columns), dtype=dtype)
    return done[0] if len(done) == 1 else sparse.csr_array(sparse.vstack(done, format="csr"))


def _multiply_bitset(left: sparse.csr_array, right: sparse.csr_array, max_edges: float) -> sparse.csr_array:
    packed = _pack(right)
    num_rows, num_columns = left.shape[0], right.shape[1]
    bits = np.empty((num_rows, packed.shape[1]), np.uint64)
    for rows in _word_blocks(left, packed):
        bits[rows] = _or_rows(left, packed, rows)
    counts = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    indptr = np.zeros(num_rows + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    if indptr[-1] > max_edges:
        raise ProductTooLargeError(int(indptr[-1]), 1.0)
    indices = np.empty(indptr[-1], np.int32)
    block = min(max(1, _BLOCK_BYTES // max(1, num_columns)), max(1, num_rows))
    # np.nonzero of a block of rows, flattened, is 7 times quicker than of two dimensions; a block's cells fit int32
    # unless one row alone is longer, and then its offset is zero.
    offsets = np.arange(block, dtype=np.int32) * np.int32(num_columns)
    for start in range(0, num_rows, block):
        cells = np.unpackbits(bits[start : start + block].view(np.uint8), axis=1, count=num_columns, bitorder="little")
        flat = np.flatnonzero(cells.view(bool))
        in_block = counts[start : start + block]
        where = slice(indptr[start], indptr[start] + len(flat))
        np.subtract(flat.astype(np.int32), np.repeat(offsets[: len(in_block)], in_block), out=indices[where])
    product = pattern(indptr, indices, num_columns)
    product.has_sorted_indices = True
    return product


def _pack(matrix: sparse.csr_array) -> np.ndarray:
    """Rows as bit sets, uint64 `[num_rows, ceil(num_columns / 64)]`."""
    num_rows, num_columns = matrix.shape
    words = -(-num_columns // 64)
    packed = np.empty((num_rows, words), np.uint64)
    block = max(1, _BLOCK_BYTES // max(1, words * 64))
    for start in range(0, num_rows, block):
        indptr = matrix.indptr[start : start + block + 1]
        cells = np.zeros((len(indptr) - 1, words * 64), np.uint8)
        cells[np.repeat(np.arange(len(cells)), np.diff(indptr)), matrix.indices[indptr[0] : indptr[-1]]] = 1
        packed[start : start + block] = np.packbits(cells, axis=1, bitorder="little").view(np.uint64)
    return packed


def _word_blocks(left: sparse.csr_array, packed: np.ndarray) -> Iterator[slice]:
    block = max(1, _BLOCK_BYTES // max(1, 8 * packed.shape[1]))
    for start in range(0, left.shape[0], block):
        yield slice(start, min(start + block, left.shape[0]))


def _or_rows(left: sparse.csr_array, packed: np.ndarray, rows: slice) -> np.ndarray:
    """OR of the packed rows that each of these rows of `left` names, uint64 `[rows, words]`."""
    starts = left.indptr[rows.start : rows.stop]
    degrees = np.diff(left.indptr[rows.start : rows.stop + 1])
    # The k-th neighbour of every row with more than k of them at once: 30 times fewer calls than a row at a time, and
    # 3 times quicker than bitwise_or.reduceat. A few very long rows would make many short calls: they go alone.
    order = np.argsort(-degrees, kind="stable")
    sorted_degrees, sorted_starts = degrees[order], starts[order]
    num_long = int(np.searchsorted(-sorted_degrees, -_LONG_ROW, side="left"))
    result = np.zeros((len(order), packed.shape[1]), np.uint64)
    chunk = max(1, _BLOCK_BYTES // max(1, 8 * packed.shape[1]))
    for row in range(num_long):
        neighbors = left.indices[sorted_starts[row] : sorted_starts[row] + sorted_degrees[row]]
        for start in range(0, len(neighbors), chunk):
            result[row] |= np.bitwise_or.reduce(packed[neighbors[start : start + chunk]], axis=0)
    for k in range(int(sorted_degrees[num_long:].max(initial=0))):
        stop = int(np.searchsorted(-sorted_degrees, -k, side="left"))  # rows with more than k neighbours
        result[num_long:stop] |= packed[left.indices[sorted_starts[num_long:stop] + k]]
    unsorted = np.empty_like(result)
    unsorted[order] = result
    return unsorted
