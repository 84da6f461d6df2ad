"""The programs of recipes in this working tree, and in one of another commit."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.record import ROOT

TRACED = Path(__file__).with_name("traced.py")


def programs_at(name: str, recipes: Sequence[str]) -> list[str]:
    """As `programs`, in a working tree of the commit `name`; its kernels are those that are built here."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(root), name], cwd=ROOT, check=True)
        try:
            for built in (ROOT / "jhgnn").rglob("*.so"):
                shutil.copy(built, root / built.relative_to(ROOT))
            return programs(root, recipes)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(root)], cwd=ROOT, check=True)


def programs(root: Path, recipes: Sequence[str]) -> list[str]:
    """What `bench.paper_study.traced` says of recipes with the package of a working tree, in their order.

    Raises:
        RuntimeError: they could not be traced.
    """
    command = [sys.executable, "-P", str(TRACED), str(root)]
    done = subprocess.run(command, cwd=root, input=json.dumps(recipes), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{root}: {done.stderr[-3000:]}")
    return done.stdout.splitlines()
