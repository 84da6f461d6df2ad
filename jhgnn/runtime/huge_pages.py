"""Large allocations on huge pages, which Linux gives only to a process that asks for them when it starts.

XLA allocates a step's temporaries anew in every step. Above 32 MiB glibc maps them each time, and the kernel clears
them 4 KiB at a time: 37,000 page faults a step for R-GAT on DBLP, half of its time (docs/performance.md). On pages of
2 MiB they are a few dozen. glibc reads the setting from the environment before the first line of Python, so a command
that wants it starts itself once more, as the same process.
"""

import contextlib
import os
import sys
from pathlib import Path

TUNABLES = "GLIBC_TUNABLES"
SETTING = "glibc.malloc.hugetlb"  # 1: madvise(MADV_HUGEPAGE) on what malloc maps; glibc 2.35
SWITCH = "JHGNN_HUGE_PAGES"
_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def wanted_environment(mode_file: Path = _MODE) -> dict[str, str]:
    """The environment variables that put large allocations on huge pages; empty where there is nothing to gain.

    Nothing is to gain without Linux's transparent huge pages on request (`[madvise]`) or glibc 2.35, where
    `GLIBC_TUNABLES` has the setting already, and with `JHGNN_HUGE_PAGES=0`.
    """
    tunables = os.environ.get(TUNABLES, "")
    if os.environ.get(SWITCH) == "0" or SETTING in tunables or _glibc_version() < (2, 35):
        return {}
    try:
        if "[madvise]" not in mode_file.read_text(encoding="ascii"):
            return {}
    except OSError:
        return {}
    return {TUNABLES: ":".join(filter(None, (tunables, f"{SETTING}=1")))}


def restart_on_huge_pages() -> None:
    """Starts this command again, in this process, where that puts its large allocations on huge pages.

    To be called before anything heavy is imported. The second start finds the variables set and goes on.
    """
    missing = wanted_environment()
    if missing:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # the command was started without it
                stream.flush()
        with contextlib.suppress(OSError):  # an interpreter that may not be started by this name: without huge pages
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | missing)


def _glibc_version() -> tuple[int, ...]:
    """(2, 36), or (0,) for another C library."""
    if not sys.platform.startswith("linux"):
        return (0,)
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(int(part) for part in version.split(".")) if name == "glibc" else (0,)
    except (OSError, ValueError):
        return (0,)
