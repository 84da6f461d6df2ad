"""The kernels that a run needs: beside the sources where the package is installed so, else built for the run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.record import ROOT

NATIVE = ROOT / "jhgnn" / "native"
CUDA_VARIABLE, SAMPLING_VARIABLE = "JHGNN_CUDA_LIBRARY", "JHGNN_SAMPLING_LIBRARY"
"""What `jhgnn.native.cuda` and `jhgnn.sampling.native` read."""
LIMIT_S = 300.0


def libraries(folder: Path, rehearsal: bool) -> tuple[dict[str, str], list[str]]:
    """Environment variables that name the libraries, and in words what could not be built.

    In a rehearsal the kernels of the GPU are built for the CPU, over what stands for a warp.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    installed = {SAMPLING_VARIABLE: _one(NATIVE, "libjhgnn_sampling.*")}
    if rehearsal:
        path, problem = _on_host()
        if path is not None:
            found[CUDA_VARIABLE] = str(path)
        problems += [problem] * bool(problem)
    else:
        installed[CUDA_VARIABLE] = _one(NATIVE / "cuda", "libjhgnn_cuda.*")
    found |= {name: str(path) for name, path in installed.items() if path is not None}
    wanted = [name for name, path in installed.items() if path is None]
    if wanted:
        made, problem = built(folder / "build", cuda=CUDA_VARIABLE in wanted)
        found |= {name: path for name, path in made.items() if name in wanted}
        problems += [problem] * bool(problem)
    return found, problems


def built(folder: Path, *, cuda: bool) -> tuple[dict[str, str], str]:
    """Configures and builds with CMake, for the device that is here; what was made, and what went wrong."""
    if shutil.which("cmake") is None:
        return {}, "cmake is not on PATH"
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), f"-DPython_EXECUTABLE={sys.executable}"]
    configure += [f"-DJHGNN_CUDA={'AUTO' if cuda else 'OFF'}", f"-DJHGNN_CUDA_ARCHITECTURES={architectures()}"]
    problems = [_run(configure)]
    if not problems[0]:
        threads = str(len(os.sched_getaffinity(0)))
        for target in ("jhgnn_sampling", *(["jhgnn_cuda"] if cuda else [])):
            problems.append(_run(["cmake", "--build", str(folder), "--parallel", threads, "--target", target]))
    made = {SAMPLING_VARIABLE: _one(folder, "libjhgnn_sampling.*"), CUDA_VARIABLE: _one(folder, "libjhgnn_cuda.*")}
    told = "; ".join(filter(None, problems))
    return {name: str(path) for name, path in made.items() if path is not None}, told


def architectures() -> str:
    """That of the device, as nvcc counts; those that the package is built for where nobody tells."""
    try:
        command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        told = []
    return ";".join(sorted({each.replace(".", "") for each in told if each.replace(".", "").isdigit()})) or "80;90;100"


def environment(libraries: Mapping[str, str], folder: Path, rehearsal: bool) -> dict[str, str]:
    """Of the processes of a run: memory is taken as it is needed, so that several fit, and programs are kept."""
    found = dict(os.environ) | dict(libraries)
    found |= {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    return found | ({"JAX_PLATFORMS": "cpu"} if rehearsal else {})


def _on_host() -> tuple[Path | None, str]:
    from tests.native.host_kernels import build, compiler

    if compiler() is None:
        return None, "no C++ compiler: `native` is left out"
    try:
        return build(), ""
    except subprocess.CalledProcessError as error:
        return None, f"the kernels' sources do not compile for the CPU: exit code {error.returncode}"


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"{' '.join(command[:2])}: not done in {LIMIT_S:.0f} s"
    if not done.returncode:
        return ""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line.lower()] or ["no message"]
    return f"{' '.join(command[:2])}: {lines[0].strip()[:300]}"


def _one(folder: Path, pattern: str) -> Path | None:
    return next(iter(sorted(folder.glob(pattern))), None)
