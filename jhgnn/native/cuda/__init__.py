"""The compiled kernels of NVIDIA's GPUs: finding the library, registering its handlers with XLA, and laying out work.

`native/cuda/` is built by `pip install` where nvcc is found (CMakeLists.txt). The library links nothing of CUDA's and
loads anywhere; where the package was installed without it, everything else works.
"""

import ctypes
import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import jax

LIBRARY_VARIABLE = "JHGNN_CUDA_LIBRARY"
HANDLERS: Mapping[str, Literal["TB", "DM"]] = {
    "cuda_row_sum": "TB",
    "cuda_attention_forward": "TB",
    "cuda_attention_backward": "TB",
    "cuda_gather_rows": "TB",
    "cuda_write_rows": "TB",
}
"""The kernels, `jhgnn_NAME` to XLA, and their types in a profile, as `jhgnn.native.HANDLERS` has those of the CPU."""

HOW_TO_GET_IT = (
    "the native GPU kernels are not built: install CUDA's compiler, nvcc, and run `pip install --force-reinstall .` "
    "(`pip install -e .` in a checkout), or use implementation 'auto'"
)

MOST_TILES: Mapping[str, int] = {"attention": 8_192, "row_sum": 16_384}
"""By kernel: about as many groups of eight lanes as an H200 holds; of 8,192, 16,384 and 32,768 the quickest there, with
7 million edges (docs/gpu.md)."""
LEAST_TILE = 16
"""Entries; fewer do not pay for finding the row that a tile begins in."""
CARRY_BYTES = 16 * 2**20
"""Of the sums of rows that go on in another tile, at most."""

_log = logging.getLogger("jhgnn.native")


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The library, its handlers registered; None where the package was installed without it, which is logged once."""
    named = os.environ.get(LIBRARY_VARIABLE)
    found = [Path(named)] if named else sorted(Path(__file__).parent.glob("libjhgnn_cuda.*"))
    if not found:
        _log.info("%s", HOW_TO_GET_IT)
        return None
    return load(found[0], "CUDA")


def load(path: Path, platform: str) -> ctypes.CDLL:
    """Registers the handlers of a library for a platform of XLA's."""
    library = ctypes.CDLL(str(path))
    stages = {"initialize": jax.ffi.pycapsule(library.jhgnn_cuda_initialize)}
    for name in HANDLERS:
        handler = stages | {"execute": jax.ffi.pycapsule(getattr(library, f"jhgnn_{name}"))}
        jax.ffi.register_ffi_target(f"jhgnn_{name}", handler, platform=platform)
    return library


def available() -> bool:
    """Whether the kernels are built, so that programs for a GPU can be compiled with them."""
    return _library() is not None


class Layout(NamedTuple):
    """How the columns of an entry lie over lanes, as `layout_of` of `handlers.cc` has it.

    `vector` neighbouring columns a lane, `group` lanes an entry, `blocks` such groups side by side.
    """

    vector: int
    group: int
    blocks: int


def layout_of(columns: int, together: int) -> Layout:
    """The layout of so many columns, of which `together` neighbouring ones share what is read for them."""
    vector = 8 if together % 8 == 0 else 4 if together % 4 == 0 else 1
    words = max(1, -(-columns // vector))
    group = 1
    while group < min(32, words):
        group *= 2
    return Layout(vector, group, -(-words // group))


def tiles_of(kernel: str, num_entries: int, layout: Layout, state: int) -> tuple[int, int]:
    """(entries of a tile, floats of all carries), where a lane carries `state` floats of a row that is cut.

    Behind the carries is one number a tile, of the row that is cut at its end.
    """
    of_tile = 2 * layout.blocks * state * layout.group + 1
    most = max(1, min(MOST_TILES[kernel], CARRY_BYTES // (4 * of_tile)))
    entries = max(LEAST_TILE, -(-num_entries // most))
    count = -(-num_entries // entries)
    return entries, count * of_tile if count > 1 else 0
