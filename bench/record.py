"""Where the repository, the data and stored results lie, and what each of those says of its making; no jax here."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from jhgnn.runtime.files import finite, write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
DATA_ROOT = Path(os.environ.get("JHGNN_DATA_ROOT", ROOT.parent / "shared" / "data"))
"""The folder of the real data sets."""


_BESIDE_A_STEP = (
    *("explain.py", "explaining", "fitting.py", "inference", "partition.py", "predict.py", "run.py", "search.py"),
    *("searching", "serve.py", "train.py", "distributed", "planning/budget.py", "planning/time_model.py"),
    *("training/checkpoint*.py", "training/joined_tables.py", "training/loop.py", "training/owned_reader.py"),
    *("training/frontier_meeting.py", "training/raf*.py", "training/rel_meeting.py"),
    *("training/reporting.py", "training/resume.py", "training/run_folder.py", "training/summary.py"),
)
STEP_SOURCES = (
    *("jhgnn", "configs", "pyproject.toml", "CMakeLists.txt"),
    *(f":(exclude)jhgnn/{name}" for name in _BESIDE_A_STEP),
)
"""Git's names of the files that a step of one process may depend on: the package without its other commands."""


BESIDE_PROGRAMS = (
    *("jhgnn/native", "jhgnn/nn/recompute.py", "jhgnn/planning/work.py", "jhgnn/profiling"),
    *(f"jhgnn/runtime/{name}.py" for name in ("huge_pages", "jax_settings", "step_memory", "xla_flags")),
)
"""What figures of steps depend on beside traced programs: kernels, how programs compile, and how work is counted."""


def commit(root: Path = ROOT) -> str:
    """The short name of a working tree's commit; empty outside of a repository."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    return done.stdout.strip()


def changed_since(name: str, *paths: str) -> bool:
    """Whether files below some paths of the repository differ from a commit's, or nobody knows that commit."""
    done = subprocess.run(["git", "diff", "--quiet", name, "--", *paths], cwd=ROOT, capture_output=True)
    return done.returncode != 0


def store(path: Path, result: Any) -> None:
    """Writes a result as JSON, null where a number is not finite; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(finite(result), indent=1, allow_nan=False) + "\n")
