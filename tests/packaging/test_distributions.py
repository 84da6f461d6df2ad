"""The sdist and the wheel: what is in them, and what an install without compilers and without CUDA lacks and says."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.packaging.distributions import Distributions, without_compilers

MOST_WHEEL_BYTES = 6 * 2**20
WHAT_IT_SAYS = """
import sys
sys.path.insert(0, sys.argv[1])
# Without the finder of an editable install.
sys.meta_path[:] = [each for each in sys.meta_path if "ScikitBuild" not in type(each).__name__]
import jax
jax.config.update("jax_platforms", "cpu")
import jhgnn
from jhgnn import native
from jhgnn.native import cuda
from jhgnn.ops.registry import OPS
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.sampling.native import library
print(jhgnn.__file__)
print(native.available(), cuda.available())
print(OPS["neighbor_attention"].choose(SemanticGraph, platform="cuda")[0])
print(OPS["neighbor_attention"].find("native", SemanticGraph, "cuda").obstacle())
print(OPS["neighbor_attention"].find("native", SemanticGraph, "cpu").obstacle())
try:
    library()
    print("sampler")
except RuntimeError as error:
    print(error)
print(open("/proc/self/maps").read().count("libcuda"))
"""

pytestmark = pytest.mark.slow


def say(site: Path, path: str) -> list[str]:
    """What the package that is installed at `site` says of itself, found before the one of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JHGNN_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", WHAT_IT_SAYS, str(site)],
        cwd=site,
        env=kept | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert Path(lines[0]).is_relative_to(site)
    return lines[1:]


def test_the_sdist_has_the_sources_of_every_kernel(built: Distributions) -> None:
    with tarfile.open(built.sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    sources = {str(path.relative_to(ROOT)) for end in ("cc", "h", "cu") for path in (ROOT / "jhgnn").rglob(f"*.{end}")}
    assert {"CMakeLists.txt", "pyproject.toml", "LICENSE", *sources} <= names
    assert not [name for name in names if name.endswith(".so")]


def test_the_wheel_is_small_and_has_libraries_and_no_sources(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as file:
        names = file.namelist()
    libraries = {Path(name).name.split(".")[0] for name in names if name.endswith((".so", ".dylib"))}
    cuda = {"libjhgnn_cuda"} if shutil.which("nvcc") else set()
    assert libraries == {"libjhgnn_kernels", "libjhgnn_sampling"} | cuda
    assert not [name for name in names if name.endswith((".cc", ".h", ".cu"))]
    assert built.wheel.stat().st_size < MOST_WHEEL_BYTES


def test_the_wheel_works_without_cuda_and_without_compilers(built: Distributions, tmp_path: Path) -> None:
    path, site = without_compilers(tmp_path / "bin"), tmp_path / "site"
    done = built.install("install", "--target", str(site), str(built.wheel), path=path)
    assert done.returncode == 0, done.stderr[-2000:]
    available, chosen, of_gpu, of_cpu, sampler, mapped = say(site, path)
    has_cuda = shutil.which("nvcc") is not None
    assert available == f"True {has_cuda}"
    assert chosen == ("native" if has_cuda else "bucketed")
    assert (of_gpu == "") is has_cuda
    assert of_cpu == ""
    assert sampler == "sampler"
    assert mapped == "0"  # the driver is not looked for until a kernel runs


def test_the_sdist_installs_without_compilers_and_says_what_it_lacks(built: Distributions, tmp_path: Path) -> None:
    path, site = without_compilers(tmp_path / "bin"), tmp_path / "site"
    done = built.install("install", "--target", str(site), str(built.sdist), path=path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "jhgnn was installed without its native kernels and sampler: no working C++17 compiler" in (
        done.stdout + done.stderr
    )
    available, chosen, of_gpu, of_cpu, sampler, _ = say(site, path)
    assert available == "False False"
    assert chosen == "bucketed"
    assert "the native GPU kernels are not built: install CUDA's compiler, nvcc" in of_gpu
    assert "the native CPU kernels are not built: install a C++17 compiler" in of_cpu
    assert "the native sampler is not in" in sampler
