"""`python -m bench.serving`: latency of single-node predictions on the synthetic graph of ogbn-mag's size.

Trains R-GCN as `configs/rgcn_mag.toml` has it, but for an epoch of 2,048 papers, since latency does not depend on what
was learnt; saves the graph, and asks `python -m jhgnn.serve`, which maps it into memory, for papers drawn at random.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import jhgnn
from jhgnn.data.synthetic import generate
from jhgnn.runtime.files import write_json

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Runs it and writes `bench/results/serving.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--warm", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jhgnn-serving-") as folder:
        place = Path(folder)
        graph = generate("mag", scale=options.scale).with_reverse_relations()
        train = {"train": graph.splits["train"][:2048], "val": graph.splits["val"][:1024]}
        data = jhgnn.save_graph(dataclasses.replace(graph, splits=train), place / "mag")
        papers = graph.num_nodes["paper"]
        del graph
        small: dict[str, Any] = {"epochs": 1, "evaluation": "sampled", "tensorboard": False, "reverse_relations": False}
        changes = {"format": "jhgnn", "path": str(data), "preset": ""}
        jhgnn.fit(ROOT / "configs" / "rgcn_mag.toml", folder=place / "run", data=changes, **small)
        keys = np.random.default_rng(1).integers(0, papers, options.queries)
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "jhgnn.serve", "--run", place / "run", "--warm", str(options.warm)],
            input="".join(f"{key}\n" for key in keys),
            capture_output=True,
            text=True,
            check=True,
        )
        total_s = time.perf_counter() - start
    print(done.stderr, end="")
    taken = np.array([json.loads(line)["ms"] for line in done.stdout.splitlines()])
    found = {f"p{each}_ms": float(np.percentile(taken, each)) for each in (50, 90, 99)}
    write_json(
        ROOT / "bench" / "results" / "serving.json",
        {"papers": papers, "queries": len(taken), "warm": options.warm, **found}
        | {"max_ms": float(taken.max()), "start_s": total_s - float(taken.sum()) / 1e3},
    )


if __name__ == "__main__":
    main()
