"""The C interface of the host sampler (`native/sampling_api.cc`), called through ctypes, which releases the GIL."""

import ctypes
import functools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.plan import SamplingPlan

LIBRARY_VARIABLE = "JHGNN_SAMPLING_LIBRARY"
_INT32, _INT64 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int64)


class _Draw(ctypes.Structure):
    """`JhgnnDraw` of `native/sampling_api.cc`."""

    _fields_ = (
        ("source", ctypes.c_int32),
        ("target", ctypes.c_int32),
        ("key", ctypes.c_uint32),
        ("num_walks", ctypes.c_int32),
        ("num_steps", ctypes.c_int32),
        ("indptrs", ctypes.POINTER(_INT64)),
        ("indices", ctypes.POINTER(_INT32)),
        ("fan_outs", _INT32),
        ("widths", _INT32),
    )


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled sampler, from the package or from the file that `JHGNN_SAMPLING_LIBRARY` names.

    Raises:
        RuntimeError: it is not built.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    folder = Path(__file__).parents[1] / "native"
    found = [Path(named)] if named else sorted(folder.glob("libjhgnn_sampling.*"))
    if not found or not found[0].is_file():
        raise RuntimeError(f"the native sampler is not in {named or folder}; build it with `pip install -e .`")
    lib = ctypes.CDLL(str(found[0]))
    lib.jhgnn_sampler_error.restype = ctypes.c_char_p
    lib.jhgnn_sampler_create.restype = ctypes.c_void_p
    lib.jhgnn_sampler_create.argtypes = [_INT64, ctypes.c_int32, ctypes.POINTER(_Draw), *[ctypes.c_int32] * 3]
    lib.jhgnn_sampler_destroy.argtypes = [ctypes.c_void_p]
    lib.jhgnn_sampler_destroy.restype = None
    pointers = ctypes.POINTER(_INT32)
    lib.jhgnn_sampler_sample.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, pointers, _INT64, _INT64]
    lib.jhgnn_sampler_emit.argtypes = [ctypes.c_void_p, _INT64, pointers, pointers, pointers, pointers]
    offsets: list[Any] = [*[ctypes.c_uint32] * 4, _INT32, _INT32, ctypes.c_int64, ctypes.c_int32, _INT32]
    lib.jhgnn_sampler_offsets.argtypes = offsets
    lib.jhgnn_sampler_offsets.restype = None
    lib.jhgnn_gather_rows.argtypes = [ctypes.c_void_p, ctypes.c_int64, _INT32, ctypes.c_int64, ctypes.c_void_p]
    lib.jhgnn_gather_rows.restype = None
    lib.jhgnn_expect_rows.argtypes = [ctypes.c_void_p, ctypes.c_int64, _INT32, ctypes.c_int64, ctypes.c_int32]
    lib.jhgnn_expect_rows.restype = ctypes.c_int64
    return lib


class NativeSampler:
    """One C++ sampler and its buffers: one batch at a time. Read-only memory of the graph is shared, not copied."""

    def __init__(self, graph: HeteroGraph, plan: SamplingPlan, threads: int) -> None:
        self._library = library()
        self._handle: int | None = None
        self._shape = (plan.num_hops + 1, len(plan.node_types))
        index = {name: i for i, name in enumerate(plan.node_types)}
        self._kept: list[object] = [graph]  # what C++ holds pointers to
        draws = (_Draw * max(1, len(plan.draws)))()
        for own, draw in zip(draws, plan.draws, strict=False):
            indptrs = [np.ascontiguousarray(graph.edges[relation].indptr, np.int64) for relation in draw.steps]
            indices = [np.ascontiguousarray(graph.edges[relation].senders, np.int32) for relation in draw.steps]
            fan_outs, widths = np.asarray(draw.fan_outs, np.int32), np.asarray(draw.widths, np.int32)
            self._kept += [indptrs, indices, fan_outs, widths]
            own.source, own.target, own.key = index[draw.source], index[draw.target], draw.key
            own.num_walks, own.num_steps = draw.num_walks, len(draw.steps)
            own.indptrs = (_INT64 * len(indptrs))(*(int64_pointer(array) for array in indptrs))
            own.indices = (_INT32 * len(indices))(*(int32_pointer(array) for array in indices))
            own.fan_outs, own.widths = int32_pointer(fan_outs), int32_pointer(widths)
        num_nodes = np.array([plan.num_nodes[name] for name in plan.node_types], np.int64)
        self._handle = self._library.jhgnn_sampler_create(
            int64_pointer(num_nodes), len(num_nodes), draws, len(plan.draws), plan.num_hops, threads
        )
        if not self._handle:
            raise MemoryError(f"the native sampler could not start: {self._error()}")

    def sample(self, seed: int, step: int, seeds: Sequence[np.ndarray]) -> np.ndarray:
        """Draws from int32 seeds of each type; returns the slots that each hop adds, int64 `[num_hops + 1, types]`."""
        sizes, added = np.array([len(ids) for ids in seeds], np.int64), np.empty(self._shape, np.int64)
        failed = self._library.jhgnn_sampler_sample(
            self._handle, seed, step, int32_pointers(seeds), int64_pointer(sizes), int64_pointer(added)
        )
        if failed:
            raise MemoryError(f"the native sampler failed: {self._error()}")
        return added

    def emit(
        self,
        capacities: np.ndarray,
        nodes: Sequence[np.ndarray | None],
        senders: Sequence[np.ndarray | None],
        num_neighbors: Sequence[np.ndarray | None],
        visits: Sequence[np.ndarray | None],
    ) -> None:
        """Writes the batch drawn last into int32 arrays of these capacities `[num_hops + 1, types]`, which must fit."""
        failed = self._library.jhgnn_sampler_emit(
            self._handle,
            int64_pointer(capacities),
            *(int32_pointers(arrays) for arrays in (nodes, senders, num_neighbors, visits)),
        )
        if failed:
            raise MemoryError(f"the native sampler failed: {self._error()}")

    def close(self) -> None:
        """Ends its threads and frees its buffers; may be called again."""
        if self._handle:
            self._library.jhgnn_sampler_destroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.close()

    def _error(self) -> str:
        return self._library.jhgnn_sampler_error().decode()


def native_offsets(
    seed: int, step: int, hop: int, relation: int, vertices: np.ndarray, degrees: np.ndarray, fan_out: int
) -> np.ndarray:
    """The C++ copy of `draw.neighbor_offsets` for int32 `[n]` vertices and degrees; int32 `[n, fan_out]`."""
    vertices, degrees = np.ascontiguousarray(vertices, np.int32), np.ascontiguousarray(degrees, np.int32)
    offsets = np.empty((len(vertices), fan_out), np.int32)
    pointers = int32_pointer(vertices), int32_pointer(degrees)
    library().jhgnn_sampler_offsets(
        seed, step, hop, relation, *pointers, len(vertices), fan_out, int32_pointer(offsets)
    )
    return offsets


def gather_rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Rows `ids` (int32 `[n]`) of a C-contiguous `[num_nodes, ...]` table, zeros for padding ids; without the GIL."""
    if not table.flags.c_contiguous or ids.dtype != np.int32 or not ids.flags.c_contiguous:
        raise ValueError("gather_rows needs a C-contiguous table and contiguous int32 ids")
    out = np.empty((len(ids), *table.shape[1:]), table.dtype)
    row_bytes = table.itemsize * math.prod(table.shape[1:])
    library().jhgnn_gather_rows(table.ctypes.data, row_bytes, int32_pointer(ids), len(ids), out.ctypes.data)
    return out


def expect_rows(table: np.ndarray, ids: np.ndarray, *, ask_always: bool = False) -> int:
    """Has the system read the pages of a mapped file that rows `ids` lie on, all at once and without waiting for them.

    Args:
        table: C-contiguous `[num_nodes, ...]`, of a file mapped into memory.
        ids: int32 `[n]`; -1 is no row.
        ask_always: not only where pages of some of the rows are not in memory, for files of which that is not told.

    Returns:
        The number of reads asked for, neighbouring pages being one; 0 where the rows are in memory.
    """
    if not table.flags.c_contiguous or ids.dtype != np.int32 or not ids.flags.c_contiguous:
        raise ValueError("expect_rows needs a C-contiguous table and contiguous int32 ids")
    row_bytes = table.itemsize * math.prod(table.shape[1:])
    asked = library().jhgnn_expect_rows(table.ctypes.data, row_bytes, int32_pointer(ids), len(ids), int(ask_always))
    if asked < 0:
        raise MemoryError(library().jhgnn_sampler_error().decode())
    return int(asked)


def int32_pointer(array: np.ndarray) -> "ctypes._Pointer[ctypes.c_int32]":
    return array.ctypes.data_as(_INT32)


def int64_pointer(array: np.ndarray) -> "ctypes._Pointer[ctypes.c_int64]":
    return array.ctypes.data_as(_INT64)


def int32_pointers(arrays: Sequence[np.ndarray | None]) -> "ctypes.Array[ctypes._Pointer[ctypes.c_int32]]":
    pointers = (_INT32 * max(1, len(arrays)))()  # null
    for index, array in enumerate(arrays):
        if array is not None:
            pointers[index] = int32_pointer(array)
    return pointers
