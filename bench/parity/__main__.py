"""`python -m bench.parity`: parity of every model and data set with every peer, as a table of relative errors."""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.comparison.cases import DATASETS, MODELS, ROOT, Case, read_dataset, recipe
from bench.parity.agreement import worst
from bench.parity.ours import write_problem

PEERS_PYTHON = Path(os.environ.get("JHGNN_PEERS_PYTHON", ROOT / ".venv-peers" / "bin" / "python"))


def compare_with(
    framework: str,
    folder: Path,
    ours: Mapping[str, Mapping[str, np.ndarray]],
    only: Sequence[str] = (),
    precision: str = "float32",
    leave_out: Sequence[str] = (),
) -> dict[str, dict[str, tuple[float, str]]]:
    """Runs a peer on a written problem; the worst errors by variant, tensors named in `leave_out` aside.

    Raises:
        RuntimeError: the peer's process failed; the message ends with what it said.
    """
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "DGLBACKEND": "pytorch", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [str(PEERS_PYTHON), "-W", "ignore", "-m", "bench.parity.peer", str(folder), framework, precision, *only]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{framework}: {done.stderr.strip()[-2000:]}")
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            with np.load(folder / entry["file"], allow_pickle=False) as theirs:
                kept = {name: array for name, array in theirs.items() if name not in leave_out}
                reference = ours[entry["definition"]]
                found[entry["variant"]] = worst(
                    {name: reference[name] for name in reference if name not in leave_out}, kept
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--frameworks", nargs="*", default=["dgl", "pyg"])
    parser.add_argument("--variants", nargs="*", default=[], help="only these")
    parser.add_argument("--precision", choices=("float32", "float64"), default="float32", help="of the peer")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    rows = []
    for dataset in options.datasets:
        graph = read_dataset(dataset)
        for model in options.models:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                ours = write_problem(graph, recipe(Case(model, dataset)), folder)
                for framework in options.frameworks:
                    for variant, errors in compare_with(
                        framework, folder, ours, options.variants, options.precision
                    ).items():
                        row = {"model": model, "dataset": dataset, "framework": framework, "variant": variant}
                        rows.append(row | {kind: error for kind, (error, _) in errors.items()})
                        shown = ", ".join(f"{kind} {error:.1e} ({name})" for kind, (error, name) in errors.items())
                        print(f"{model} {dataset} {framework} [{variant}]: {shown}", flush=True)
    if options.json:
        temporary = options.json.with_name(f".{options.json.name}.tmp")
        temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        temporary.replace(options.json)


if __name__ == "__main__":
    main()
