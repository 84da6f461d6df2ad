"""Measured steps of processes that train together on this machine, over loopback; for `bench.distributed`."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.record import ROOT
from jhgnn import partition

HEADER = ["graph", "processes", "strategy", "step, ms", "over one process"]
STEPS = 40


def steps_of(
    graphs: Sequence[str], scale: float, counts: Sequence[int], strategies: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Seconds of a step of one process, and of each number of them with each strategy, on METIS parts.

    Args:
        graphs: synthetic presets, with R-GCN's recipe, 25 and 20 neighbours.
        scale: of mag.
        counts: of processes.
        strategies: what is told -> `distributed.strategy`; one that is called merged takes half the time steps.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for preset in graphs:
            common = _recipe(preset, scale if preset == "mag" else 1.0)
            yield {"graph": preset, "processes": 1, "strategy": "-", "step_s": _step_s(folder / preset, [common])}
            for count in counts:
                parts = folder / f"{preset}-{count}"
                if partition.main([*common, f"--parts={count}", "--method=metis", f"--out={parts}"]):
                    raise RuntimeError(f"{preset} could not be cut into {count} parts")
                for named, strategy in strategies.items():
                    own = [*common, f"--distributed.parts={parts}", f"--distributed.strategy={strategy}"]
                    own += [f"--distributed.num_processes={count}", f"--distributed.coordinator={free_address()}"]
                    if named.endswith("merged"):
                        own.append(f"--distributed.time_steps={count // 2}")
                    each = [[*own, f"--distributed.process_id={number}"] for number in range(count)]
                    step_s = _step_s(folder / f"{preset}-{count}-{named}", each)
                    yield {"graph": preset, "processes": count, "strategy": named, "step_s": step_s}


def table(timed: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The cells of each run."""
    alone = {row["graph"]: row["step_s"] for row in timed if row["processes"] == 1}
    return [
        [
            *(row["graph"], str(row["processes"]), row["strategy"], f"{1e3 * row['step_s']:,.1f}"),
            f"{row['step_s'] / alone[row['graph']]:.2f}",
        ]
        for row in timed
    ]


def _recipe(preset: str, scale: float) -> list[str]:
    found = ["--config", str(ROOT / "configs" / f"rgcn_{preset}.toml"), "--data.format=synthetic", "--data.path="]
    found += [f"--data.preset={preset}", f"--data.scale={scale}", "--model.layers=2", "--sampling.fan_out=25,20"]
    found += [f"--sampling.batch_size={1024 if preset == 'mag' else 128}", "--sampling.evaluation=layerwise"]
    found += ["--distributed.devices=1", "--run.tensorboard=false", "--training.rows=auto", "--training.patience=0"]
    return [*found, "--training.epochs=10", f"--sampling.max_steps={STEPS}"]


def _step_s(run: Path, each: Sequence[Sequence[str]]) -> float:
    """Median seconds of the steps of processes that train together."""
    command = [sys.executable, "-m", "jhgnn.train", f"--run.dir={run}"]
    environment = dict(os.environ) | {"JAX_PLATFORMS": "cpu"}
    running = [subprocess.Popen([*command, *own], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) for own in each]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError(f"{run.name}: processes ended with {codes}")
    step_ms = float(json.loads((run / "summary.json").read_text(encoding="utf-8"))["step_ms"])
    print(f"{run.name}: {step_ms:.1f} ms a step", file=sys.stderr, flush=True)
    return step_ms / 1e3


def free_address() -> str:
    """Of this machine, for process 0 of several."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
