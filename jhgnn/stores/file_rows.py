"""Rows of files mapped into memory, as batches read them: few of many, anywhere in the file.

A row that is not in memory is read when its page is touched: one page after the other, and as the system takes files to
be read from front to back, with many pages behind each that nobody asked for. So such files are mapped once more as
ones that are read at random, and a gather asks for all its pages before it copies the first row.
"""

import functools
import mmap
import os
from typing import Any

import jax
import numpy as np

from jhgnn.sampling.native import expect_rows, gather_rows


def mapping_of(table: np.ndarray) -> np.memmap | None:
    """The mapped file that an array's rows are in; None where they are in memory."""
    base: Any = table
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and isinstance(base.base, mmap.mmap):
            return base
        base = base.base
    return None


def is_mapped(table: np.ndarray) -> bool:
    """Whether an array's rows are those of a file mapped into memory, and not in memory already."""
    return mapping_of(table) is not None


def read_at_random(table: Any) -> Any:
    """The same rows, by a mapping of their own that the system reads page by page.

    Args:
        table: dense or sparse rows; those that are in memory already are given back as they are, and so are those of a
            file that is no longer there by its name, and all where the system takes no advice on mapped files.
    """

    def mapped_again(rows: np.ndarray) -> np.ndarray:
        mapping = mapping_of(rows) if isinstance(rows, np.ndarray) else None
        if (
            mapping is None
            or mapping.filename is None
            or not rows.size
            or not rows.flags.c_contiguous
            or not hasattr(mmap, "MADV_RANDOM")
            or not _still_names(str(mapping.filename), rows)
        ):
            return rows
        offset = mapping.offset + rows.ctypes.data - mapping.ctypes.data
        file: Any = mapping.filename
        own: Any = np.memmap(file, rows.dtype, "r", offset=offset, shape=rows.shape)
        own._mmap.madvise(mmap.MADV_RANDOM)
        return own

    return jax.tree.map(mapped_again, table)


def rows_of(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Rows `ids` (int32 `[n]`) of a C-contiguous `[num_nodes, ...]` table, zeros where an id is -1; without the GIL."""
    mapping = mapping_of(table)
    if mapping is not None:
        # A file without a name is this process's own.
        told = mapping.filename is None or _residency_is_told(str(mapping.filename))
        expect_rows(table, ids, ask_always=not told)
    return gather_rows(table, ids)


def _still_names(file: str, rows: np.ndarray) -> bool:
    """Whether a path leads to the very file that rows are mapped from, and not to one that took its place."""
    address = rows.ctypes.data
    try:
        inode = os.stat(file).st_ino
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as regions:
            for region in regions:
                bounds, _, _, _, own, *_ = region.split()
                begin, end = (int(each, 16) for each in bounds.split("-"))
                if begin <= address < end:
                    return int(own) == inode
    except OSError:
        pass
    return False


@functools.cache
def _residency_is_told(file: str) -> bool:
    """Whether the system tells this process which pages of a file are in memory: it does so who may write to it."""
    return os.access(file, os.W_OK)
