"""Measures on the GPU that is here, within a budget of time, and keeps what it has after each row."""

import argparse
import dataclasses
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.comparison.environment import machine
from bench.gpu.measure.build import environment, libraries
from bench.gpu.measure.items import IN_REHEARSAL, ON_DEVICE, Item, groups
from bench.gpu.measure.packages import missing
from bench.gpu.measure.processes import Outcome, measure_together
from bench.gpu.measure.summary import summary
from bench.gpu.measure.worker import KEPT
from bench.record import RESULTS, ROOT, commit, store

BUDGET_S, REHEARSAL_BUDGET_S = 540.0, 1800.0
LEAST_S = 10.0
"""No group is started with less time left."""
REHEARSED = ROOT / "build" / "gpu-run-rehearsal.json"
MEASURED = "measured on the device that is named here"
NOT_MEASURED = "a rehearsal on a CPU with tiny sizes: no figure here is one of a GPU, and none may be told as one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rehearse", action="store_true", help="the same on the CPU with tiny sizes")
    parser.add_argument("--budget-s", type=float, metavar="S", help=f"seconds, the build included ({BUDGET_S:.0f})")
    parser.add_argument("--only", nargs="*", metavar="TEXT", help="only items whose name contains one of these")
    parser.add_argument("--skip", nargs="*", default=[], metavar="TEXT", help="leave out items whose name contains one")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep traces and tables of counters there")
    parser.add_argument("--commit", default="", metavar="NAME", help="of the sources, where they are in no repository")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON (bench/results/gpu-run-DEVICE.json)")


def run(options: argparse.Namespace) -> int:
    """The exit code: 1 where an item failed or an op does not conform, 3 where JAX sees no GPU, or is not there."""
    options.budget_s = options.budget_s or (REHEARSAL_BUDGET_S if options.rehearse else BUDGET_S)
    end = time.monotonic() + options.budget_s
    with tempfile.TemporaryDirectory(prefix="jhgnn-gpu-run-") as name:
        return _Record(options, Path(name), end).measure()


class _Record:
    """The results as they grow, and the file that holds them."""

    def __init__(self, options: argparse.Namespace, folder: Path, end: float) -> None:
        self.options, self.folder, self.end = options, folder, end
        self.sizes = IN_REHEARSAL if options.rehearse else ON_DEVICE
        self.path: Path | None = options.out or (REHEARSED if options.rehearse else None)
        self.no_device = False
        self.found: dict[str, Any] = {
            "study": "gpu-run",
            "rehearsal": options.rehearse,
            "label": NOT_MEASURED if options.rehearse else MEASURED,
            "commit": options.commit or commit(),
            "machine": machine(),
            "budget_s": options.budget_s,
            "device": None,
            "missing": missing(options.rehearse),
            "not_built": [],
            "items": {item.name: {"status": "not started", "rows": []} for item in self._items()},
        }

    def measure(self) -> int:
        """All items in their order, while time is left."""
        for line in self.found["missing"]:
            print(line, file=sys.stderr, flush=True)
        with ThreadPoolExecutor(1) as pool:
            building = pool.submit(libraries, self.folder, self.options.rehearse)
            for group in groups(self.sizes):
                wanted = [item for item in group if self._is_wanted(item)]
                if wanted and not self._group(wanted, building):
                    break
        self._store()
        if self.no_device or self.found["device"] is None:
            return 3
        print(f"written to {self.path}", flush=True)
        failed = [name for name, item in self.found["items"].items() if item["status"] == "failed"]
        return 1 if failed or self.found["summary"]["conformance"]["failed"] else 0

    def _items(self) -> list[Item]:
        return [item for group in groups(self.sizes) for item in group if self._is_wanted(item)]

    def _is_wanted(self, item: Item) -> bool:
        if any(part in item.name for part in self.options.skip):
            return False
        # The first item tells the device, and the rate that others are compared with.
        return not self.options.only or item.name == "copy" or any(part in item.name for part in self.options.only)

    def _group(self, items: list[Item], building: "Future[tuple[dict[str, str], list[str]]]") -> bool:
        """Measures a group; whether to go on."""
        libraries: Mapping[str, str] = {}
        if any(item.built for item in items):
            libraries, self.found["not_built"] = building.result()
        left_s = self.end - time.monotonic()
        if left_s < LEAST_S:
            return False
        names = ", ".join(item.name for item in items)
        print(f"{names}: {left_s:.0f} s left", flush=True)
        patient = [dataclasses.replace(item, limit_s=self.sizes.patience * item.limit_s) for item in items]
        outcomes = measure_together(
            patient,
            self.folder,
            environment(libraries, self.folder, self.options.rehearse),
            left_s,
            rehearsal=self.options.rehearse,
            take=self._take,
        )
        for name, outcome in outcomes.items():
            self._end(name, outcome)
        self._store()
        if self.options.keep is not None and (self.folder / KEPT).is_dir():
            shutil.copytree(self.folder / KEPT, self.options.keep, dirs_exist_ok=True)
        return self.found["device"] is not None and not self.no_device

    def _take(self, item: Item, row: dict[str, Any]) -> None:
        if row.get("kind") == "device":
            self.found["device"] = row
            self.no_device = row["platform"] == "cpu" and not self.options.rehearse
            if self.path is None and not self.no_device:
                slug = "-".join(re.findall(r"[a-z0-9]+", row["device"].lower()))
                self.path = RESULTS / f"gpu-run-{slug}.json"
        if self.options.rehearse:
            row["rehearsal"] = True
        self.found["items"][item.name]["rows"].append(row)
        print(f"  {'rehearsal: ' * self.options.rehearse}{_line(row)}", flush=True)
        self._store()

    def _end(self, name: str, outcome: Outcome) -> None:
        self.found["items"][name] |= {
            "status": outcome.status,
            "why": outcome.why,
            "seconds": round(outcome.seconds, 1),
        }
        if outcome.status != "done":
            print(f"{name}: {outcome.status}: {outcome.why}", file=sys.stderr, flush=True)

    def _store(self) -> None:
        rows = [row for item in self.found["items"].values() for row in item["rows"]]
        self.found["summary"] = summary(rows)
        if self.path is not None:
            store(self.path, self.found)


def _line(row: Mapping[str, Any]) -> str:
    """A row for a person."""
    names = ("kind", "device", "case", "model", "op", "pass", "graph", "what", "fan_out", "sampling", "kernels")
    said = [str(row[name]) for name in (*names, "implementation", "variant", "dtype") if row.get(name) is not None]
    ms = row.get("ms", (row.get("in_a_row") or {}).get("ms"))
    if ms is not None:
        said.append(f"{ms:.3f} ms")
    if row.get("share_of_copy"):
        said.append(f"{row['share_of_copy']:.0%} of a copy's rate")
    for name in ("ok", "error_over_allowed", "error", "skipped", "failed"):
        if name in row:
            said.append(f"{name} {row[name]}")
    return " ".join(said)
