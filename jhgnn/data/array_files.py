"""`.npy` and `.npz` files without pickle: anything that would have to run code to be read is refused."""

import io
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError

NPY_DAMAGE = (ValueError, EOFError, OSError, MemoryError, OverflowError, SyntaxError, TypeError, tokenize.TokenError)
"""What NumPy raises for damaged `.npy` files: its header is a Python literal."""
_NPY, _ZIP = b"\x93NUMPY", b"PK"


def read_npy(stream: BinaryIO, where: str) -> np.ndarray:
    """Reads one `.npy` array.

    Raises:
        InputError: it is a pickle, holds Python objects, is truncated, or is no `.npy` at all.
    """
    data = stream if isinstance(stream, io.BytesIO) else io.BytesIO(stream.read())
    magic = data.getvalue()[:6]
    if magic != _NPY:
        if magic[:1] == b"\x80":
            raise InputError(f"{where} is a pickle, which can run any code; save plain arrays with numpy.save instead")
        raise InputError(f"{where} is not a .npy file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # headers written by Python 2 are read all the same
            return np.lib.format.read_array(data, allow_pickle=False)
    except NPY_DAMAGE as error:
        if "Object arrays" in str(error):
            raise InputError(f"{where} holds Python objects (a pickle); save plain numbers or strings") from error
        raise InputError(f"{where} is damaged or truncated ({error})") from error


def read_npz(stream: BinaryIO, where: str) -> dict[str, np.ndarray]:
    """Reads all arrays of a `.npz` by key.

    Raises:
        InputError: as `read_npy`, for each key, or the archive is damaged.
    """
    data = io.BytesIO(stream.read())
    head = data.getvalue()[:2]
    if head != _ZIP:
        kind = "a pickle, which can run any code" if head[:1] == b"\x80" else "not a .npz file"
        raise InputError(f"{where} is {kind}; save plain arrays with numpy.savez instead")
    try:
        with zipfile.ZipFile(data) as archive:
            return {
                name.removesuffix(".npy"): read_npy(io.BytesIO(archive.read(name)), f"{where}:{name}")
                for name in archive.namelist()
            }
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, MemoryError) as error:
        raise InputError(f"{where} is damaged or truncated ({error}); get the file again") from error


def csr_from_arrays(arrays: Mapping[str, np.ndarray], where: str) -> sparse.csr_array:
    """A sparse matrix from the arrays that `scipy.sparse.save_npz` writes (csr, csc, coo); absent `data`: ones.

    Raises:
        InputError: an array is missing, the format is another one, or indices are out of range.
    """
    layout = np.asarray(arrays.get("format", b"csr")).item()
    layout = layout.decode() if isinstance(layout, bytes) else str(layout)
    needed = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}.get(layout)
    if needed is None:
        raise InputError(f"{where} holds a sparse matrix of format {layout!r}; need csr, csc or coo")
    for key in (*needed, "shape"):
        if key not in arrays:
            raise InputError(f"{where} has no array {key!r}; found: {', '.join(sorted(arrays)) or 'nothing'}")
    first, second = arrays[needed[0]], arrays[needed[1]]
    values = arrays["data"] if "data" in arrays else np.ones(len(first), np.float32)
    try:
        shape = tuple(int(extent) for extent in arrays["shape"])
        if any(array.dtype.kind not in "iu" for array in (first, second)) or values.dtype.kind not in "fiub":
            raise ValueError("indices must be integers and data numbers")
        if layout == "coo":
            return sparse.csr_array(sparse.coo_array((values, (first, second)), shape=shape))
        cls = sparse.csr_array if layout == "csr" else sparse.csc_array
        # int32 as scipy itself chooses: the ACM file stores its indices in 16 bits.
        index = np.int32 if max(*shape, len(first)) < 2**31 else np.int64
        matrix = cls((values, first.astype(index), second.astype(index)), shape=shape)
        matrix.check_format(full_check=True)
        return sparse.csr_array(matrix)
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(f"{where} is not a valid sparse matrix: {error}") from error
