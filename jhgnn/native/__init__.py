"""The compiled CPU kernels: finding the library, registering its handlers with XLA, and saying when there is none.

`native/*.cc` is built by `pip install` (CMakeLists.txt). Where no compiler was found the package works without it.
"""

import ctypes
import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import jax

LIBRARY_VARIABLE = "JHGNN_KERNELS_LIBRARY"
HANDLERS: Mapping[str, Literal["TB", "DM", "DR"]] = {
    "attention_forward": "TB",
    "attention_backward": "TB",
    "row_attention_forward": "TB",
    "row_attention_backward": "TB",
    "row_sum": "TB",
    "row_sums": "TB",
    "edge_dot": "TB",
    "row_max": "TB",
    "row_max_backward": "TB",
    "basis_rows": "TB",
    "basis_rows_backward": "TB",
    "outer_sum": "DM",
    "logit_columns": "DM",
    "logit_columns_backward": "DM",
    "column_parts": "DR",
}
"""The kernels, `jhgnn_NAME` to XLA, and the type that a profile gives each (`jhgnn.profiling.kernels`)."""
HOW_TO_GET_IT = (
    "the native CPU kernels are not built: install a C++17 compiler and run `pip install --force-reinstall .` "
    "(`pip install -e .` in a checkout), or use implementation 'auto'"
)

_log = logging.getLogger("jhgnn.native")


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The library, its handlers registered; None where the package was installed without it, which is logged once."""
    named = os.environ.get(LIBRARY_VARIABLE)
    found = [Path(named)] if named else sorted(Path(__file__).parent.glob("libjhgnn_kernels.*"))
    if not found:
        _log.info("%s", HOW_TO_GET_IT)
        return None
    library = ctypes.CDLL(str(found[0]))
    library.jhgnn_instruction_set.restype = ctypes.c_char_p
    for handler in HANDLERS:
        capsule = jax.ffi.pycapsule(getattr(library, f"jhgnn_{handler}"))
        jax.ffi.register_ffi_target(f"jhgnn_{handler}", capsule, platform="cpu")
    return library


def available() -> bool:
    """Whether the native kernels can be used in this process."""
    return _library() is not None


def library() -> ctypes.CDLL:
    """The library, its handlers registered with XLA.

    Raises:
        RuntimeError: the package was installed without it; the message says how to get it.
    """
    loaded = _library()
    if loaded is None:
        raise RuntimeError(HOW_TO_GET_IT)
    return loaded


def instruction_set() -> str:
    """Which copy of the kernels runs here: `avx512`, `avx2` or `baseline` (`JHGNN_INSTRUCTION_SET` names another)."""
    return str(library().jhgnn_instruction_set().decode())
