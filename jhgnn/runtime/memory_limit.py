"""How much memory can be taken, and how much a semantic graph build may take where the recipe does not say."""

import os
from pathlib import Path

GIB = 2**30


def available_memory_bytes() -> int:
    """Memory that can be taken without swapping: `MemAvailable` of /proc/meminfo, or less where a cgroup allows less.

    Where there is no /proc (other than Linux), half of the physical memory.
    """
    available = _mem_available()
    allowed = _cgroup_room()
    return available if allowed is None else min(available, allowed)


def default_memory_limit_bytes() -> int:
    """Half of `available_memory_bytes`.

    The limit is for the graphs themselves while they are built; sub-products (at most half of it), bit sets (a quarter)
    and sub-products kept for other metapaths (a quarter) come on top, and the other half is for them.
    """
    return available_memory_bytes() // 2


def _mem_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _cgroup_room() -> int | None:
    folder = Path("/sys/fs/cgroup")  # the container's own group, as cgroup v2 shows it inside
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = (folder / "memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))


def readable_bytes(count: float) -> str:
    """`1.5 GiB`, `20 MiB`, `12 KiB`."""
    for unit, size in (("TiB", 2**40), ("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"
