"""`python -m tests.faults.long_run`: as many steps as a recipe makes in 12 hours, on a tiny graph.

Twelve hours of steps are counted by the milliseconds that the named recipe's step takes in docs/performance.md and
docs/minibatches.md. Checkpoints come every two seconds, some hundreds of times as often as between as many real steps.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jhgnn
from jhgnn.runtime.files import write_json
from tests.faults.growth import Look, grown, leaks, look
from tests.models.heterographs import academic

HOURS = 12
LOOKS = 240
SMALL: dict[str, Any] = {"hidden": 8, "layers": 1, "patience": 0, "checkpoint_every_s": 2.0, "tensorboard": True}


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to train.

    Attributes:
        settings: of `jhgnn.fit`.
        step_ms: of the recipe `like`, which says how many steps are 12 hours' worth.
        steps_per_epoch: on the tiny graph.
    """

    settings: dict[str, Any]
    step_ms: float
    like: str
    steps_per_epoch: int


CASES = {
    "whole": Case({"model": "rgcn"}, 14.1, "R-GCN on ACM over the whole graph", 1),
    "attention": Case({"model": "rgat", "heads": 2}, 59.1, "R-GAT on DBLP over the whole graph", 1),
    "minibatches": Case(
        {"model": "rgat", "heads": 2, "sampling": {"batch_size": 10, "fan_out": "3", "side": "host"}},
        48.0,
        "HAN on ogbn-mag in mini-batches of 1,024",
        2,
    ),
}


def steps_of(case: Case, hours: float) -> int:
    """How many steps its recipe makes in that time."""
    return int(hours * 3600e3 / case.step_ms)


def run(case: Case, hours: float, seen: Callable[[list[Look], float], None]) -> None:
    """Trains, and looks evenly: `seen` gets all looks so far, and the seconds that they took."""
    epochs = max(LOOKS, steps_of(case, hours) // case.steps_per_epoch)
    every = epochs // LOOKS
    looks: list[Look] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"

        def callback(result: jhgnn.EpochResult) -> None:
            if result.epoch % every == 0:
                looks.append(look(result.epoch * case.steps_per_epoch, folder))
                seen(looks, time.perf_counter() - began)

        often = {"evaluate_every": max(1, every // 10)}
        settings = SMALL | often | case.settings
        jhgnn.fit(academic(), **settings, epochs=epochs, callbacks=[callback], folder=folder, progress=False)


def summary(name: str, looks: list[Look], took_s: float) -> dict[str, Any]:
    """What a run of some steps shows."""
    case, steady = CASES[name], looks[len(looks) // 3 :]

    def bounds(field: str) -> list[int]:
        values = [getattr(each, field) for each in steady]
        return [min(values), max(values)]

    return {
        "case": name,
        "like": case.like,
        "hours_worth": round(looks[-1].step * case.step_ms / 3600e3, 2),
        "steps": looks[-1].step,
        "took_s": round(took_s),
        "resident_mib": round(steady[-1].resident_bytes / 2**20, 1),
        "resident_grown_mib": round(grown(looks, "resident_bytes") / 2**20, 2),
        "handles": bounds("handles"),
        "threads": bounds("threads"),
        "disk_bytes": bounds("disk_bytes"),
        "metrics_bytes": looks[-1].lines_bytes,
        "leaks": leaks(looks),
    }


def main() -> int:
    """Runs a case; 1 where something does not stay flat."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("case", choices=tuple(CASES))
    parser.add_argument("--hours", type=float, default=HOURS, help="whose steps are made (default: 12)")
    parser.add_argument("--out", type=Path, help="JSON of all looks, written after each")
    options = parser.parse_args()
    last: dict[str, Any] = {}

    def seen(looks: list[Look], took_s: float) -> None:
        if len(looks) < 9:  # of which no thirds can be compared
            return
        last.update(summary(options.case, looks, took_s))
        if options.out:
            write_json(options.out, last | {"looks": [dataclasses.asdict(each) for each in looks]})

    run(CASES[options.case], options.hours, seen)
    print(json.dumps(last, indent=2))
    return 1 if last["leaks"] else 0


if __name__ == "__main__":
    sys.exit(main())
