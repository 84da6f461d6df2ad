"""The sdist and the wheel: what is in them, and what an install without compilers and without CUDA lacks and says."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WHEEL_BYTES = 6 * 2**20
BUILD_TOOL = "scikit-build-core>=0.10"
ARCHITECTURE = "80"
"""One, as nvcc takes a minute for each."""
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
        done = self.install("wheel", "-w", str(folder), str(self.sdist))
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (self.wheel,) = folder.glob("*.whl")

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return Distributions(tmp_path_factory.mktemp("distributions"))


def without_compilers(folder: Path) -> str:
    """A PATH with CMake and Ninja, and neither a C++ compiler nor nvcc."""
    folder.mkdir()
    for name in ("cmake", "ninja", "make"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return str(folder)


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
