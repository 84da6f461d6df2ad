"""Pages of mapped files are given back, and what they hold is still there."""

from pathlib import Path

import numpy as np

from jhgnn.runtime.mapped_pages import give_back


def resident_kib(path: Path) -> int:
    """Of a file's pages in this process."""
    found, own = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
            own = line.endswith(str(path))
        elif own and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_pages_that_were_read_are_given_back(tmp_path):
    path = tmp_path / "numbers.npy"
    np.save(path, np.arange(1 << 20))
    mapped = np.load(path, mmap_mode="r")
    assert mapped.sum() == (1 << 20) * ((1 << 20) - 1) // 2
    assert resident_kib(path) > 4 * 1024
    give_back(np.asarray(mapped)[5:])
    assert resident_kib(path) == 0
    assert mapped[-1] == (1 << 20) - 1


def test_arrays_in_memory_stay_as_they_are():
    own = np.arange(5)
    give_back(own)
    np.testing.assert_array_equal(own, np.arange(5))
