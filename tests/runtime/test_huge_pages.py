"""Commands ask for huge pages once, and only where there is something to gain."""

import subprocess
import sys
from pathlib import Path

import pytest

from jhgnn.runtime import huge_pages

SCRIPT = """
import os, sys
from jhgnn.runtime import huge_pages
huge_pages._MODE = huge_pages.Path(sys.argv[1])
huge_pages.wanted_environment.__defaults__ = (huge_pages._MODE,)
huge_pages._glibc_version = lambda: (2, 36)
huge_pages.restart_on_huge_pages()
print(os.getpid(), os.environ.get("GLIBC_TUNABLES", ""), *sys.argv[2:])
"""


@pytest.fixture
def madvise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that gives huge pages on request, and a C library that can ask."""
    monkeypatch.delenv(huge_pages.TUNABLES, raising=False)
    monkeypatch.delenv(huge_pages.SWITCH, raising=False)
    monkeypatch.setattr(huge_pages, "_glibc_version", lambda: (2, 36))
    mode = tmp_path / "enabled"
    mode.write_text("always [madvise] never\n")
    return mode


def test_asks_by_the_environment(madvise: Path) -> None:
    assert huge_pages.wanted_environment(madvise) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def test_keeps_other_tunables(madvise: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")
    wanted = huge_pages.wanted_environment(madvise)
    assert wanted == {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"}


@pytest.mark.parametrize("mode", ["[always] madvise never", "always madvise [never]"])
def test_leaves_other_kernels_alone(madvise: Path, mode: str) -> None:
    madvise.write_text(mode)
    assert huge_pages.wanted_environment(madvise) == {}


def test_leaves_a_kernel_without_them_alone(madvise: Path) -> None:
    assert huge_pages.wanted_environment(madvise.with_name("absent")) == {}


@pytest.mark.parametrize(
    ("variable", "value"), [("JHGNN_HUGE_PAGES", "0"), ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")]
)
def test_the_user_decides(madvise: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert huge_pages.wanted_environment(madvise) == {}


@pytest.mark.parametrize("version", [(2, 34), (0,)])
def test_older_and_other_c_libraries(madvise: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]) -> None:
    monkeypatch.setattr(huge_pages, "_glibc_version", lambda: version)
    assert huge_pages.wanted_environment(madvise) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="os.execve keeps the process on Linux")
def test_restarts_once_as_the_same_process(madvise: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(madvise), "--flag", "a b"], stdout=subprocess.PIPE, text=True
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == f"{process.pid} glibc.malloc.hugetlb=1 --flag a b\n"
