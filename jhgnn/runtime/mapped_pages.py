"""Pages of mapped files: resident while a process reads them, and given back when it has taken what it needs."""

import mmap
from typing import Any

import numpy as np


def give_back(array: np.ndarray) -> None:
    """Pages of the file that an array maps no longer count as this process's; they are read again when it is.

    Nothing happens to arrays in memory, nor where the system has no `madvise`.
    """
    own: Any = array
    while own is not None:
        mapped = getattr(own, "_mmap", None)
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
            return
        own = getattr(own, "base", None)
