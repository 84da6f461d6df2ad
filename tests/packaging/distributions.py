"""The sdist and the wheel that tests of this folder install, built once a session."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT

BUILD_TOOL = "scikit-build-core>=0.10"
ARCHITECTURE = "80"
"""One, as nvcc takes a minute for each."""


class Distributions:
    """What was built: `sdist`, `wheel`, and the tool that built them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tools = folder, folder / "tools"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        got = subprocess.run(
            [*pip, "install", "-q", "--target", self.tools, BUILD_TOOL], capture_output=True, text=True
        )
        if got.returncode:
            pytest.skip(f"{BUILD_TOOL} cannot be had: {got.stderr[-300:]}")
        tree = folder / "tree"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in tracked.stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        code = f"import scikit_build_core.build as b; print(b.build_sdist({str(folder)!r}))"
        made = subprocess.run(
            [sys.executable, "-c", code], cwd=tree, env=self.environment(), capture_output=True, text=True
        )
        assert made.returncode == 0, made.stderr[-2000:]
        self.sdist = folder / made.stdout.split()[-1]
        self.wheel = self._wheel(folder)

    def wheel_without_compilers(self, folder: Path) -> Path:
        """Another one, without our libraries."""
        return self._wheel(folder, without_compilers(folder / "bin"))

    def _wheel(self, folder: Path, path: str | None = None) -> Path:
        done = self.install("wheel", "-w", str(folder), str(self.sdist), path=path)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (wheel,) = folder.glob("*.whl")
        return wheel

    def environment(self, path: str | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "XLA_FLAGS")}
        kept |= {"PYTHONPATH": str(self.tools), "PATH": path or os.environ["PATH"]}
        return kept | {"CMAKE_ARGS": f"-DJHGNN_CUDA_ARCHITECTURES={ARCHITECTURE}"}

    def install(self, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        """pip, which builds with the tools and the jaxlib that are here."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-v"]
        return subprocess.run(
            [*command, arguments[0], "--no-deps", "--no-build-isolation", *arguments[1:]],
            env=self.environment(path),
            capture_output=True,
            text=True,
            timeout=900,
        )


def without_compilers(folder: Path) -> str:
    """A PATH with CMake and Ninja, and neither a C++ compiler nor nvcc."""
    folder.mkdir()
    for name in ("cmake", "ninja", "make"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return str(folder)
