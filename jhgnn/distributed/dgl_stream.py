"""DGL's binary files, read without DGL: dictionaries of arrays (`save_tensors`) and graphs (`save_graphs`).

Both are plain little-endian records, each behind a magic number; arrays are mapped from the file, not copied. The
layout is that of DGL 0.5 to 2.x, as its `src/graph/serialize/` and `src/runtime/ndarray.cc` write it.
"""

import dataclasses
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from jhgnn.errors import InputError

_TENSORS, _ARRAY = 0xDD5A9FBE3FA2443F, 0xDD5E40F096B4A13F
_GRAPHS, _HETEROGRAPH, _UNIT_GRAPH = 0xDD2E4FF046B4A13F, 0xDD589FBE35224ABF, 0xDD2E60F0F6B4A127
_META_GRAPH, _CSR, _COO = 0xDD3C5FFE20046ABF, 0xDD6CD31205DFF127, 0xDD61FFD305DFF127
_HEADER_BYTES = 4096
_GRAPH_TYPE, _GRAPH_VERSION = 2, 2
_COO_BIT, _CSR_BIT, _CSC_BIT = 1, 2, 4
_DTYPES = {
    (0, 8): np.int8, (0, 16): np.int16, (0, 32): np.int32, (0, 64): np.int64,
    (1, 8): np.uint8, (1, 16): np.uint16, (1, 32): np.uint32, (1, 64): np.uint64,
    (2, 16): np.float16, (2, 32): np.float32, (2, 64): np.float64,
}  # fmt: skip
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False)
class StoredGraph:
    """A graph of one node type and one edge type, as DistDGL stores a part's.

    Attributes:
        num_nodes: local nodes.
        senders, receivers: integer `[num_edges]` local ids, by edge id.
        node_data, edge_data: name -> array `[num_nodes, ...]` or `[num_edges, ...]`.
    """

    num_nodes: int
    senders: np.ndarray
    receivers: np.ndarray
    node_data: Mapping[str, np.ndarray]
    edge_data: Mapping[str, np.ndarray]


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Maps the arrays of a file of `dgl.data.utils.save_tensors` by name.

    Raises:
        InputError: the file is missing, is another one, is damaged or cut short, or holds numbers of a kind that NumPy
            does not have (bfloat16).
    """
    stream = _Stream(path)
    stream.magic(_TENSORS, "a file of DGL's save_tensors")
    stream.number()  # how many: said again by the vector that follows
    return dict(stream.vector(stream.named_array))


def read_graph(path: Path) -> StoredGraph:
    """Maps the graph of a file of `dgl.save_graphs` that holds one, of one node type and one edge type.

    Raises:
        InputError: as `read_tensors`; the file is of a version before DGL 0.5, holds several graphs, or several types.
    """
    stream = _Stream(path)
    stream.magic(_GRAPHS, "a file of DGL's save_graphs")
    version, kind, count = stream.number(), stream.number(), stream.number()
    if (version, kind) != (_GRAPH_VERSION, _GRAPH_TYPE):
        raise InputError(
            f"{path} is of version {version} and graph type {kind}; need {_GRAPH_VERSION} and {_GRAPH_TYPE}, which DGL"
            " has written since 0.5"
        )
    if count != 1:
        raise InputError(f"{path} holds {count} graphs; a part's file holds one")
    stream.at = _HEADER_BYTES
    stream.at = stream.number()  # past the labels
    stream.magic(_HETEROGRAPH, "a heterograph")
    stream.meta_graph()
    relations = stream.vector(stream.unit_graph)
    num_nodes = stream.numbers()
    node_data = stream.vector(lambda: dict(stream.vector(stream.named_array)))
    edge_data = stream.vector(lambda: dict(stream.vector(stream.named_array)))
    if len(relations) != 1 or len(num_nodes) != 1:
        raise InputError(
            f"{path} has {len(num_nodes)} node types and {len(relations)} edge types; a part's graph has one of each"
        )
    senders, receivers = relations[0]
    for ends in (senders, receivers):
        if len(ends) and (int(ends.min()) < 0 or int(ends.max()) >= num_nodes[0]):
            raise InputError(f"{path}: an edge ends at node {int(ends.max())} of {int(num_nodes[0])}: it is damaged")
    return StoredGraph(int(num_nodes[0]), senders, receivers, node_data[0], edge_data[0])


class _Stream:
    """A cursor over a mapped file; whatever does not fit in it is an InputError that names the byte."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        try:
            self._data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        except FileNotFoundError:
            raise InputError(f"{path} is missing") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error

    def take(self, count: int) -> np.ndarray:
        """The next bytes, uint8 `[count]`."""
        if count < 0 or self.at + count > len(self._data):
            raise InputError(f"{self.path} is damaged or cut short at byte {self.at}: {count} more are needed")
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self) -> int:
        return int(struct.unpack("<Q", bytes(self.take(8)))[0])

    def magic(self, expected: int, what: str) -> None:
        where, found = self.at, self.number()
        if found != expected:
            raise InputError(f"{self.path} is not {what}: {found:016X} at byte {where}, need {expected:016X}")

    def vector(self, read: Callable[[], T]) -> list[T]:
        count = self.number()
        if count > len(self._data):
            raise InputError(f"{self.path} is damaged at byte {self.at - 8}: {count} entries cannot follow")
        return [read() for _ in range(count)]

    def numbers(self) -> np.ndarray:
        """A vector of int64."""
        return self.take(8 * self.number()).view("<i8")

    def text(self) -> str:
        return bytes(self.take(self.number())).decode("utf-8", errors="replace")

    def named_array(self) -> tuple[str, np.ndarray]:
        return self.text(), self.array()

    def array(self) -> np.ndarray:
        self.magic(_ARRAY, "a DGL array")
        self.number()  # reserved
        self.take(8)  # the device, always the CPU
        num_dimensions, code, bits, lanes = struct.unpack("<iBBH", bytes(self.take(8)))
        if (code, bits) not in _DTYPES or lanes != 1 or not 0 <= num_dimensions <= 32:
            raise InputError(
                f"{self.path} has an array of type {code}, {bits} bits and {lanes} lanes at byte {self.at - 4}; whole"
                " and floating-point numbers of 8 to 64 bits can be read"
            )
        shape = tuple(int(extent) for extent in self.take(8 * num_dimensions).view("<i8"))
        size = self.number()
        dtype = np.dtype(_DTYPES[code, bits])
        if min(shape, default=0) < 0 or size != dtype.itemsize * int(np.prod(shape, dtype=object)):
            raise InputError(f"{self.path} is damaged at byte {self.at - 8}: {size} bytes for an array {shape}")
        return self.take(size).view(dtype).reshape(shape)

    def csr(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns of a CSR matrix, and the number of each entry (empty: they stand in order)."""
        self.magic(_CSR, "a CSR matrix")
        self.take(16)  # columns and rows, which indptr and the callers know
        indptr, columns, ids = self.array(), self.array(), self.array()
        self.take(1)  # whether columns ascend
        degrees = np.diff(indptr)
        if not len(indptr) or int(indptr[0]) != 0 or (degrees < 0).any() or int(indptr[-1]) != len(columns):
            raise InputError(f"{self.path} is damaged before byte {self.at}: a CSR matrix does not rise to its entries")
        return np.repeat(np.arange(len(degrees), dtype=np.int64), degrees), columns, ids

    def coo(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.magic(_COO, "a COO matrix")
        self.take(16)
        rows, columns, ids = self.array(), self.array(), self.array()
        self.take(2)
        return rows, columns, ids

    def meta_graph(self) -> None:
        self.magic(_META_GRAPH, "a meta-graph")
        self.csr()

    def unit_graph(self) -> tuple[np.ndarray, np.ndarray]:
        """Senders and receivers by edge id."""
        self.magic(_UNIT_GRAPH, "the edges of a relation")
        saved, _ = self.number(), self.number()
        # Before 0.7 a format by its number: 1 COO, 2 CSR, 3 CSC; since then a set of bits beside bit 32.
        formats = saved & 0xFFFFFFFF if saved >> 32 else {1: _COO_BIT, 2: _CSR_BIT, 3: _CSC_BIT}.get(saved, 0)
        found = None
        for bit, read in ((_COO_BIT, self.coo), (_CSR_BIT, self.csr), (_CSC_BIT, self.csr)):
            if not formats & bit:
                continue
            self.meta_graph()
            rows, columns, ids = read()
            senders, receivers = (columns, rows) if bit == _CSC_BIT else (rows, columns)
            found = found or (self._by_id(senders, ids), self._by_id(receivers, ids))
        if found is None:
            raise InputError(f"{self.path} keeps edges in the formats {saved:#x}; need COO, CSR or CSC")
        return found

    def _by_id(self, ends: np.ndarray, ids: np.ndarray) -> np.ndarray:
        if not len(ids):
            return ends
        if len(ids) != len(ends) or int(ids.min()) != 0 or int(ids.max()) != len(ends) - 1:
            raise InputError(f"{self.path} is damaged before byte {self.at}: {len(ids)} ids of {len(ends)} edges")
        ordered = np.empty_like(ends)
        ordered[ids] = ends
        return ordered
