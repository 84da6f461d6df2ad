"""Numeric and sparse variables of a MATLAB 5 `.mat` file (what `save -v6` and `-v7` write).

`scipy.io.loadmat` ends the process with a segmentation fault on some damaged files (SciPy 1.17), so this reads the few
element types that graphs need and checks every length. Cells, structs, objects and text are left out.
Source: MAT-File Format, MathWorks, "Level 5 MAT-File Format".
"""

import math
import zlib

import numpy as np
from scipy import sparse

from jhgnn.data.array_files import csr_from_arrays
from jhgnn.errors import InputError

_STORED = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_SPARSE, _MATRIX, _COMPRESSED = 5, 14, 15
_COMPLEX = 0x0800
_HEADER_BYTES = 128


def read_matlab(data: bytes, where: str) -> dict[str, np.ndarray | sparse.csr_array]:
    """Variables by name: arrays of their stored shape, or CSR.

    Raises:
        InputError: not a MATLAB 5 file of little-endian numbers, damaged or truncated, or of complex numbers.
    """
    if data[:10] == b"MATLAB 7.3" or data[1:4] == b"HDF":
        raise InputError(f"{where} is of MATLAB 7.3 (HDF5); save it with `save(..., '-v7')`")
    if len(data) < _HEADER_BYTES or data[126:128] != b"IM":
        raise InputError(f"{where} is not a readable .mat file; need MATLAB 5 format, as `save(..., '-v7')` writes")
    variables: dict[str, np.ndarray | sparse.csr_array] = {}
    position = _HEADER_BYTES
    while position < len(data):
        kind, content, position = _element(data, position, where)
        if kind == _COMPRESSED:
            try:
                kind, content, _ = _element(zlib.decompress(content), 0, where)
            except zlib.error as error:
                raise _damaged(where, str(error)) from error
        if kind != _MATRIX:
            raise _damaged(where, f"element of type {kind}")
        name, matrix = _variable(content, where)
        if matrix is not None:
            variables[name] = matrix
    return variables


def _damaged(where: str, detail: str) -> InputError:
    return InputError(f"{where} is not a readable .mat file: damaged or truncated ({detail}); get the file again")


def _element(data: bytes, position: int, where: str) -> tuple[int, bytes, int]:
    """Type, content, and where the next element starts."""
    if position + 8 > len(data):
        raise _damaged(where, "no room for an element")
    kind, length = (int(word) for word in np.frombuffer(data, "<u4", 2, position))
    if kind >> 16:  # up to four bytes lie in the tag itself
        kind, length = kind & 0xFFFF, kind >> 16
        if length > 4:
            raise _damaged(where, f"short element of {length} bytes")
        return kind, data[position + 4 : position + 4 + length], position + 8
    start, end = position + 8, position + 8 + length
    if end > len(data):
        raise _damaged(where, f"element of {length} bytes ends behind the file")
    return kind, data[start:end], end if kind == _COMPRESSED else end + -length % 8


def _numbers(data: bytes, position: int, where: str) -> tuple[np.ndarray, int]:
    kind, content, position = _element(data, position, where)
    if kind not in _STORED or len(content) % np.dtype(_STORED[kind]).itemsize:
        raise _damaged(where, f"{len(content)} bytes of type {kind}")
    return np.frombuffer(content, _STORED[kind]), position


def _variable(data: bytes, where: str) -> tuple[str, np.ndarray | sparse.csr_array | None]:
    flags, position = _numbers(data, 0, where)
    dimensions, position = _numbers(data, position, where)
    _, raw_name, position = _element(data, position, where)
    name = raw_name.decode("latin-1")
    if len(flags) != 2 or len(dimensions) < 2 or dimensions.dtype.kind == "f" or dimensions.min() < 0:
        raise _damaged(where, f"variable {name!r} has no shape")
    shape = tuple(int(extent) for extent in dimensions)
    matlab_class = int(flags[0]) & 0xFF
    if matlab_class not in _CLASSES and matlab_class != _SPARSE:
        return name, None
    if int(flags[0]) & _COMPLEX:
        raise InputError(f"{where}: variable {name!r} holds complex numbers; need real ones")
    if matlab_class == _SPARSE:
        indices, position = _numbers(data, position, where)
        indptr, position = _numbers(data, position, where)
        values, _ = _numbers(data, position, where)
        if not indptr.size or indptr.dtype.kind == "f" or not 0 <= int(indptr[-1]) <= min(len(indices), len(values)):
            raise _damaged(where, f"sparse variable {name!r} has too few entries")
        used = int(indptr[-1])  # MATLAB may reserve more room than it uses
        parts = {"indices": indices[:used], "indptr": indptr, "data": values[:used], "shape": dimensions}
        return name, csr_from_arrays(parts | {"format": np.array("csc")}, f"{where}: variable {name!r}")
    values, _ = _numbers(data, position, where)
    if len(values) != math.prod(shape):
        raise _damaged(where, f"variable {name!r} has {len(values)} numbers for the shape {shape}")
    with np.errstate(invalid="ignore", over="ignore"):
        return name, values.astype(_CLASSES[matlab_class]).reshape(shape, order="F")
