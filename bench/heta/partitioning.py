"""Time and memory of planning relations by shard, against cutting the graph: each method in a process of its own."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.record import ROOT
from jhgnn import partition
from jhgnn.config.recipe import load_recipe, override
from jhgnn.data.storage import save_graph
from jhgnn.training.problem import read_graph

SAVING, READING = "saving", "reading alone"
METHODS = ("meta", "metis", "metapath", "random")


def peak_bytes() -> int:
    """The high-water mark of this process's memory."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure(recipe: Path, scale: float, parts: int, rounds: int) -> dict[str, Any]:
    """Medians over rounds, in which the methods take turns: seconds and the high-water mark of memory.

    The graph is saved before, and every process maps it; what reading alone takes stands beside the methods.
    """
    found: dict[str, list[dict[str, float]]] = {method: [] for method in (READING, *METHODS)}
    with tempfile.TemporaryDirectory(prefix="jhgnn-heta-") as name:
        folder, out = Path(name) / "graph", Path(name) / "found.json"

        def child(method: str) -> None:
            values = [str(value) for value in (method, recipe, scale, parts, folder, out)]
            command = [sys.executable, "-m", "bench.heta.partitioning", *values]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)

        child(SAVING)
        for _ in range(rounds):
            for method in found:
                child(method)
                found[method].append(json.loads(out.read_text(encoding="utf-8")))
    entries = [
        {"method": method, **{key: statistics.median(each[key] for each in own) for key in own[0]}}
        for method, own in found.items()
    ]
    return {"parts": parts, "scale": scale, "rounds": rounds, "entries": entries}


HEADINGS = ["method", "seconds", "beyond reading", "MiB at most", "beyond reading"]


def table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    reading = result["entries"][0]
    rows = []
    for entry in result["entries"]:
        more_s = entry["seconds"] - reading["seconds"]
        more = (entry["peak_bytes"] - reading["peak_bytes"]) / 2**20
        known = entry is not reading
        rows.append(
            [
                entry["method"],
                f"{entry['seconds']:.1f}",
                f"{more_s:.1f}" if known else "",
                f"{entry['peak_bytes'] / 2**20:,.0f}",
                f"{more:,.0f}" if known else "",
            ]
        )
    return HEADINGS, rows


def child(method: str, recipe: str, scale: str, parts: str, folder: str, out: str) -> int:
    """One of the processes; writes what it found as JSON."""
    started = time.perf_counter()
    if method == SAVING:
        synthetic = {"data": {"format": "synthetic", "scale": float(scale)}}
        save_graph(read_graph(override(load_recipe(recipe), synthetic, where="--scale")), Path(folder))
        return 0
    # The saved graph has its reverse relations already.
    data = {"format": "jhgnn", "path": folder, "reverse_relations": "false"}
    options = [part for name, value in data.items() for part in (f"--data.{name}", value)]
    if method == READING:
        read_graph(override(load_recipe(recipe), {"data": data | {"reverse_relations": False}}, where=folder))
    else:
        command = ["--config", recipe, *options, "--parts", parts, "--method", method, "--plan"]
        if code := partition.main(command):
            return code
    found = {"seconds": time.perf_counter() - started, "peak_bytes": peak_bytes()}
    Path(out).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(child(*sys.argv[1:]))
