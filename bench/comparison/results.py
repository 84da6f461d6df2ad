"""The stored results of a machine: written cell by cell, resumed, and compared with the run before."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LEAST_NOISE = 0.10
"""A slower median is never flagged below this share, whatever the spread within the runs."""


class FileError(ValueError):
    """A file of the comparison cannot be used; the message says which, why, and what would be right."""


class Results:
    """One JSON file. `cells[CASE][FRAMEWORK]` holds figures; `previous` the cells of the last complete run.

    Raises:
        FileError: the file is there and is no result.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, Any] = {}
        if path.exists():
            self.data = _read(path)

    def begin(self, header: dict[str, Any], *, fresh: bool) -> bool:
        """Starts a run, or resumes one that did not end; whether it resumes.

        A run resumes when its settings are those of the unfinished one. Accuracy does not depend on the machine's
        load, so figures of earlier runs stay until they are measured again.
        """
        resumes = not fresh and not self.data.get("complete", True) and self.data.get("settings") == header["settings"]
        if resumes:
            commits = self.data.setdefault("resumed_at", [])
            if header["commit"] not in (self.data["commit"], *commits):
                commits.append(header["commit"])
        else:
            previous = self.data.get("cells") if self.data.get("complete") else self.data.get("previous")
            kept = {key: self.data[key] for key in ("accuracy", "parity") if key in self.data}
            self.data = header | {"cells": {}, "complete": False} | kept
            if previous:
                self.data["previous"] = previous
        self.save()
        return resumes

    @property
    def provisional(self) -> list[str]:
        """Cases of which the peers' default variants alone were timed."""
        return list(self.data.get("provisional", []))

    def store(self, case: str, cells: dict[str, Any], *, provisional: bool = False) -> None:
        """Keeps the figures of one case."""
        self.data["cells"][case] = cells
        others = [name for name in self.provisional if name != case]
        self.data["provisional"] = [*others, case] if provisional else others
        self.save()

    def save(self) -> None:
        """Replaces the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.path)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise FileError(f"{path}: not a stored comparison ({error}); move it away to start anew") from error
    if not isinstance(data, dict) or not isinstance(data.get("cells", {}), dict):
        raise FileError(f"{path}: not a stored comparison (need an object with cells by case); move it away")
    return data


def spread(values: Sequence[float]) -> float:
    """Half the range between quartiles, over the median; 0 below two values."""
    if len(values) < 2:
        return 0.0
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return (quarters[2] - quarters[0]) / 2 / max(quarters[1], 1e-12)


def slower(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """A line for every cell of jhgnn whose median epoch, or mini-batch, grew by more than noise.

    Noise is three times the spreads of both runs together, at least `LEAST_NOISE`.
    """
    found = []
    for case, frameworks in now.items():
        for framework, cell in frameworks.items():
            if not framework.startswith("jhgnn"):
                continue
            before_by_kind = _timings(before.get(case, {}).get(framework, {}))
            for kind, (now_ms, spread_now) in _timings(cell).items():
                if kind not in before_by_kind:
                    continue
                before_ms, spread_before = before_by_kind[kind]
                noise = max(LEAST_NOISE, 3 * (spread_now**2 + spread_before**2) ** 0.5)
                growth = now_ms / before_ms - 1
                if growth > noise:
                    found.append(
                        f"{case} {framework}: {now_ms:.2f} ms {kind}, {before_ms:.2f} before"
                        f" (+{growth:.0%}, noise {noise:.0%})"
                    )
    return found


def _timings(cell: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """What is timed -> (median in ms, spread)."""
    found = {"an epoch": (cell["epoch_ms"], cell["spread"])} if "epoch_ms" in cell else {}
    for mode, entry in cell.get("modes", {}).items():
        if "batch_ms" in entry:
            found[f"a batch {mode}"] = (entry["batch_ms"], entry["spread"])
    return found
