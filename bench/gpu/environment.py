"""The environment that compiles for GPUs: JAX with its CUDA plugin, beside the project's own environment."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
CUDA_FOLDER = Path("/usr/local/cuda")
"""Where XLA looks for ptxas and libdevice."""
COMPILER = "nvidia-cuda-nvcc==13.*"
"""Has both, for machines without a toolkit."""

VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # no driver and no library of CUDA is there, nor needed to compile
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
FLAGS = "--xla_gpu_autotune_level=0"
"""Autotuning runs kernels."""
OF_TESTS = (
    "--xla_backend_optimization_level=",
    "--xla_llvm_disable_expensive_passes=",
    "--xla_cpu_use_fusion_emitters=",
)
"""By which tests let XLA compile quickly, and which would count here as well."""

INSTALL_OPTIONS = ["--quiet", "--disable-pip-version-check", "--no-compile"]


def gpu_python() -> Path:
    """The interpreter of the environment, whether it exists or not."""
    return Path(os.environ.get("JHGNN_GPU_PYTHON", ROOT / ".venv-gpu" / "bin" / "python"))


def requirements() -> list[str]:
    """The project's dependencies, and the plugin of the JAX that runs here. CUDA's libraries are left out (3.4 GB)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    jax = version("jax")
    own = [f"jax=={jax}", f"jax-cuda13-plugin=={jax}", f"jax-cuda13-pjrt=={jax}"]
    compiler = [] if (CUDA_FOLDER / "bin" / "ptxas").exists() else [COMPILER]
    return [*own, *(line for line in project["dependencies"] if not line.startswith("jax>")), *compiler]


def create_gpu() -> str:
    """Creates `.venv-gpu` where there is none; what went wrong, or nothing."""
    python = gpu_python()
    if python.exists():
        return ""
    folder = python.parents[1]
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            *requirements(),
        ],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)  # half of an environment would be taken for one
            return f"{' '.join(command[1:4])}: {_last_line(done.stderr)}"
    return ""


def missing() -> str:
    """Why nothing can be compiled for a GPU here; empty where it can."""
    python = gpu_python()
    if not python.exists():
        return f"no environment {python.parents[1].name}: `python -m bench.gpu compile` makes it"
    probe = "import jax_plugins.xla_cuda13, bench.gpu.target as t; t.mesh('h100', 1)"
    done = run_python(["-c", probe])
    return f"{python.parents[1].name}: {_last_line(done.stderr)}" if done.returncode else ""


def run_python(arguments: list[str], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the environment's interpreter with the variables that compiling needs."""
    return subprocess.run(
        [str(gpu_python()), *arguments], cwd=ROOT, env=variables(), capture_output=True, text=True, timeout=timeout_s
    )


def variables() -> dict[str, str]:
    """The environment variables of a process that compiles."""
    others = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(OF_TESTS)]
    return dict(os.environ) | VARIABLES | {"XLA_FLAGS": " ".join([*others, FLAGS]), "PYTHONPATH": str(ROOT)}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"
