"""table_rows: rows of an embedding table or its moments by id, read for a batch and written back after their update."""

from collections.abc import Callable

import jax

from jhgnn.graph.row_ids import RowIds
from jhgnn.ops.implementation import Implementation, Op, not_by_itself, without_gpu_library
from jhgnn.ops.table_rows import native_cuda, xla

__all__ = ["READ", "WRITE", "read_rows", "write_rows"]


def _implementations(
    native: Callable[..., jax.Array], any_platform: Callable[..., jax.Array]
) -> tuple[Implementation, ...]:
    return (
        Implementation("native", RowIds, native, not_by_itself, platforms=("cuda",), obstacle=without_gpu_library),
        Implementation("xla", RowIds, any_platform, lambda ids, platform: f"XLA's own on {platform}"),
    )


READ = Op("read_rows", _implementations(native_cuda.read_rows, xla.read_rows))
WRITE = Op("write_rows", _implementations(native_cuda.write_rows, xla.write_rows))


def read_rows(table: jax.Array, ids: jax.Array, *, implementation: str) -> jax.Array:
    """The rows `ids` of a table, `[n, width]`.

    Args:
        table: `[num_rows, width]`, of any float dtype.
        ids: int32 `[n]`, below `num_rows`; -1 for none, whose row is anything finite that the table could hold.
        implementation: one of `READ`.

    Raises:
        ValueError: an implementation that there is not for the platform.
        RuntimeError: `native` where the package was installed without it.
    """
    subject = RowIds(ids)
    rows: jax.Array = READ.resolve(implementation, subject, table).function(table, ids)
    return rows


def write_rows(table: jax.Array, ids: jax.Array, rows: jax.Array, *, implementation: str) -> jax.Array:
    """The table with `rows`, `[n, width]`, in the place of its rows `ids`, in place where it is donated.

    Args:
        table: `[num_rows, width]`.
        ids: int32 `[n]`, each at most once; rows of -1 are left out.
        rows: of the table's dtype.
        implementation: one of `WRITE`.

    Raises:
        ValueError, RuntimeError: as `read_rows`.
    """
    written: jax.Array = WRITE.resolve(implementation, RowIds(ids), table).function(table, ids, rows)
    return written
