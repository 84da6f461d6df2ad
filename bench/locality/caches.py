"""The caches that hit rates are told for: those of this machine's first processor, and GPUs' second level."""

from pathlib import Path
from typing import NamedTuple

from bench.gpu.devices import GPUS

_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")
GPU_LINE_BYTES = 128


class Cache(NamedTuple):
    """One level: its name, its size, the line that it keeps whole, and the lines of a set, 0 where nobody tells."""

    name: str
    bytes: int
    line_bytes: int
    ways: int


def cpu_caches(folder: Path = _SYSTEM) -> list[Cache]:
    """Data caches, the nearest first; empty where the system does not describe them."""
    found: dict[int, Cache] = {}
    for index in sorted(folder.glob("index*")):
        read = lambda name, own=index: (own / name).read_text(encoding="ascii").strip()  # noqa: E731
        if read("type") == "Instruction":
            continue
        size = read("size")
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}[size[-1]]
        level = int(read("level"))
        line, ways = int(read("coherency_line_size")), int(read("ways_of_associativity"))
        found[level] = Cache(f"L{level}", int(size[:-1]) * unit, line, ways)
    return [found[level] for level in sorted(found)]


def gpu_caches() -> list[Cache]:
    """The second level of A100 and H100."""
    return [Cache(f"{name} L2", GPUS[name].cache_bytes, GPU_LINE_BYTES, 0) for name in ("a100", "h100")]


def row_bytes(width_bytes: int, line_bytes: int) -> int:
    """Of a row in whole lines, as a row that begins at a line takes them."""
    return -(-width_bytes // line_bytes) * line_bytes
