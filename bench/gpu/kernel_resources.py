"""What ptxas says of our kernels: registers and spills of a thread, shared memory of a block, for each architecture."""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.record import RESULTS, ROOT, commit, store

SOURCE = ROOT / "jhgnn" / "native" / "cuda" / "kernels.cu"
OUTPUT = RESULTS / "gpu-kernels.json"
ARCHITECTURES = ("80", "90", "100")
"""Those that the package holds machine code for."""
MOST_REGISTERS = {"80": 128, "90": 128, "100": 168}
"""A thread's, by architecture: with more, fewer than four blocks of 128 threads lie on a multiprocessor, which has
65,536, or fewer than three on the last."""
MOST_SPILLS_BYTES = {"80": 64, "90": 64, "100": 96}
"""Written and read again by a thread, once in all, by architecture."""
MOST_SHARED_BYTES = 48 * 1024
"""A block's, beyond which a launch would have to ask for it."""

_ENTRY = re.compile(r"Compiling entry function '(?:jhgnn_)?(\w+)' for 'sm_(\d+)a?'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--architectures", nargs="*", default=list(ARCHITECTURES), help="such as 90")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="JSON of the results")


def run(options: argparse.Namespace) -> int:
    """The exit code: 1 where a limit is broken, 3 where nvcc is not there."""
    if shutil.which("nvcc") is None:
        print("skipped: nvcc is not on PATH", file=sys.stderr)
        return 3
    rows = [row for architecture in options.architectures for row in compiled(architecture)]
    store(options.output, {"study": "gpu-kernels", "commit": commit(), "nvcc": _nvcc_version(), "rows": rows})
    for architecture in options.architectures:
        own = [row for row in rows if row["architecture"] == architecture]
        worst = max(own, key=lambda row: int(row["registers"]))
        print(f"sm_{architecture}: {len(own)} kernels, up to {worst['registers']} registers ({worst['kernel']})")
    wrong = list(broken(rows))
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def compiled(architecture: str) -> list[dict[str, Any]]:
    """A row a kernel: `kernel`, `architecture`, `registers`, `spill_bytes`, `stack_bytes`, `shared_bytes`.

    Raises:
        RuntimeError: nvcc does not compile the kernels.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["nvcc", "-std=c++17", "-O3", "-cubin", f"-arch=sm_{architecture}", "-Xptxas", "-v"]
        done = subprocess.run(
            [*command, str(SOURCE), "-o", str(Path(folder) / "kernels.cubin")], capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(f"nvcc for sm_{architecture}: {done.stderr[-1000:]}")
    return list(parsed(done.stdout + done.stderr))


def parsed(said: str) -> Iterator[dict[str, Any]]:
    """The rows of what `ptxas -v` said."""
    row: dict[str, Any] = {}
    for line in said.splitlines():
        if found := _ENTRY.search(line):
            row = {"kernel": found.group(1), "architecture": found.group(2)}
        elif row and (found := _SPILLS.search(line)):
            stack, stores, loads = map(int, found.groups())
            row |= {"stack_bytes": stack, "spill_bytes": stores + loads}
        elif row and (found := _USED.search(line)):
            shared = _SHARED.search(line)
            yield row | {"registers": int(found.group(1)), "shared_bytes": int(shared.group(1)) if shared else 0}
            row = {}


def broken(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """In words, the limits that kernels break."""
    for row in rows:
        architecture = row["architecture"]
        limits = {"registers": MOST_REGISTERS[architecture], "spill_bytes": MOST_SPILLS_BYTES[architecture]}
        limits |= {"shared_bytes": MOST_SHARED_BYTES}
        for name, most in limits.items():
            if row[name] > most:
                yield f"{row['kernel']} for sm_{row['architecture']}: {name} {row[name]}, over {most}"


def _nvcc_version() -> str:
    done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True)
    found = re.search(r"release ([\d.]+)", done.stdout)
    return found.group(1) if found else ""
