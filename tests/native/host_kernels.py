"""The sources of the GPU's kernels, built for the CPU over what stands for a warp (`native/cuda/host_warp.h`)."""

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jaxlib
import pytest

from jhgnn.native import cuda

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "jhgnn" / "native" / "cuda"
FAULTS = {"a missed tail": 1, "a wrong transpose": 2, "a race": 3}
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g")


def compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def build(*, fault: int = 0, options: tuple[str, ...] = ()) -> Path:
    """The library of these sources, built once; `fault` plants one."""
    found = compiler()
    if found is None:
        pytest.skip("needs a C++ compiler")
    include = Path(jaxlib.__file__).parent / "include"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-DJHGNN_HOST_WARP"]
    flags += [f"-DJHGNN_FAULT={fault}", f"-isystem{include}", *options]
    files = sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cc"), SOURCES.parent / "counter_hash.h"])
    digest = hashlib.sha256("\0".join([found, *flags, *(path.read_text() for path in files)]).encode()).hexdigest()[:16]
    library = ROOT / "build" / "cuda_on_host" / f"libjhgnn_cuda-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        temporary = library.with_suffix(f".{os.getpid()}.tmp")
        command = [found, *flags, *(str(SOURCES / name) for name in ("handlers.cc", "host_launch.cc"))]
        subprocess.run([*command, "-o", str(temporary)], check=True)
        temporary.replace(library)
    return library


@functools.cache
def _loaded(library: Path) -> object:
    return cuda.load(library, "cpu")


@pytest.fixture(scope="module")
def host_kernels() -> Iterator[None]:
    """What is traced for CUDA runs here, by the kernels' own sources."""
    named = os.environ.get(cuda.LIBRARY_VARIABLE)
    library = Path(named) if named else build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "_library", lambda: _loaded(library))
        yield
