"""Commands whose file operations fail where a test says, by a library that is loaded before all others."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.commands import ROOT

SOURCE = Path(__file__).with_name("shim.cc")


def buildable() -> bool:
    """Whether the library can be made here."""
    return sys.platform.startswith("linux") and shutil.which("g++") is not None


def build(folder: Path) -> Path:
    """Compiles the library."""
    library = folder / "shim.so"
    command = ["g++", "-O1", "-fPIC", "-shared", "-Wall", "-std=c++17", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


def start(library: Path, faults: dict[str, str], module: str, *arguments: object) -> subprocess.Popen:
    """`python -m MODULE ARGUMENTS` with these faults, named as in the library's source."""
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "LD_PRELOAD": str(library), **faults}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def calls(log: Path) -> list[tuple[int, str, str]]:
    """(number, operation, path) of each call that the library logged."""
    rows = (line.split("\t") for line in log.read_text().splitlines())
    return [(int(row[0]), row[1], row[2]) for row in rows]
