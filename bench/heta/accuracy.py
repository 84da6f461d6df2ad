"""Test scores of training on one device, over `data`, and with relations first, from the same seeds."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.record import DATA_ROOT, ROOT

CASES = {
    "rgcn_acm": "acm_gtn",
    "rgat_acm": "acm_gtn",
    "han_acm": "acm_gtn",
    "rgcn_imdb": "magnn_imdb",
}
"""Recipe -> folder of its data. Their targets have two relations or metapaths, or more."""
WAYS = {
    "one device": ("--distributed.devices", "1"),
    "2 over data": ("--distributed.devices", "2"),
    "2 relations first": ("--distributed.strategy", "raf", "--distributed.relation_shards", "2"),
}
SETTINGS = {
    "sampling.batch_size": 100,
    "sampling.fan_out": 10,
    "training.epochs": 20,
    "training.patience": 0,
    "run.tensorboard": "false",
}


def compare(seeds: int) -> dict[str, Any]:
    """Trains each case in each way by the command that a user runs, on two devices of the CPU."""
    entries = []
    for name, data in CASES.items():
        scores = {}
        for way, options in WAYS.items():
            with tempfile.TemporaryDirectory(prefix="jhgnn-heta-") as folder:
                own: dict[str, Any] = {"config": ROOT / "configs" / f"{name}.toml", "seeds": seeds, "run.dir": folder}
                own |= SETTINGS
                if (DATA_ROOT / data).is_dir():
                    own["data.path"] = DATA_ROOT / data
                values = [str(part) for key, value in own.items() for part in (f"--{key}", value)]
                environment = dict(os.environ) | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
                subprocess.run(
                    [sys.executable, "-m", "jhgnn.train", *values, *options],
                    check=True,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                )
                summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
                scores[way] = summary["test_micro_f1"]
        entries.append({"case": name, "real_data": (DATA_ROOT / data).is_dir(), "test_micro_f1": scores})
    return {"seeds": seeds, "entries": entries}


HEADINGS = ["recipe", *WAYS]


def table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Means over seeds, in percent."""
    rows = []
    for entry in result["entries"]:
        name = entry["case"] if entry["real_data"] else f"{entry['case']} (synthetic)"
        rows.append([name, *(f"{100 * entry['test_micro_f1'][way]:.2f}" for way in WAYS)])
    return HEADINGS, rows
