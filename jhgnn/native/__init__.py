"""The compiled CPU kernels: finding the library, registering its handlers with XLA, and saying when there is none.

`native/*.cc` is built by `pip install` (CMakeLists.txt). Where no compiler was found the package works without it.
"""

import ctypes
import functools
import logging
import os
from pathlib import Path

import jax

LIBRARY_VARIABLE = "JHGNN_KERNELS_LIBRARY"
HANDLERS = (
    "attention_forward",
    "attention_backward",
    "row_sum",
    "row_sums",
    "edge_dot",
    "row_max",
    "row_max_backward",
    "outer_sum",
    "logit_columns",
    "logit_columns_backward",
)
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


def require_float32(op: str, *arrays: jax.Array) -> None:
    """Raises ValueError unless all are float32 or bfloat16, and RuntimeError where the kernels are not built."""
    library()
    for array in arrays:
        if array.dtype not in (jax.numpy.float32, jax.numpy.bfloat16):
            raise ValueError(
                f"{op}: 'native' computes in float32 and got {array.dtype}; cast, or use implementation 'segment'"
            )
