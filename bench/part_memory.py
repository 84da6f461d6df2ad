"""The memory of one process that trains on a whole graph, and of each of several that train on its parts.

`python -m bench.part_memory`: R-GCN's recipe of ogbn-mag's size in mini-batches, a few steps and an evaluation of a
batch. The graph and its parts are written first, so that no process holds what only its generation needs: the one
process maps the saved graph into memory; each of the others reads its own part, and maps all edges, or keeps its own
(`--topology partitioned`). Nothing is compiled before. They meet over loopback. The kernel's account of each
(`smaps_rollup`) is read several times a second from its start to its end:

    Rss    resident pages, among them mapped files' that other processes share
    Pss    the same, with a page that n processes share counted as 1 / n of one
    Anonymous    pages of no file

What a process needs is its largest Rss. Stored with all three, and the share of the one process's that each needs.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.record import RESULTS, ROOT, commit, store
from jhgnn import partition
from jhgnn.config.recipe import load_recipe, override
from jhgnn.data.storage import save_graph
from jhgnn.training.problem import read_graph

RECIPE = ROOT / "configs" / "rgcn_mag.toml"
FIELDS = ("Rss", "Pss", "Anonymous")
MOST = 0.45
"""Of the one process's memory, which each of four should stay below."""


def memory_bytes(process: int) -> dict[str, int] | None:
    """What the kernel says of a process's pages, by name; None once it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = {name: int(value.split()[0]) * 1024 for name, value in (line.split(":", 1) for line in lines)}
    return {name: found[name] for name in FIELDS} if found else None


def watched(running: Sequence[subprocess.Popen[str]], every_s: float) -> list[dict[str, int]]:
    """The largest of each figure of each process, until all have ended.

    Raises:
        RuntimeError: one of them failed.
    """
    most = [dict.fromkeys(FIELDS, 0) for _ in running]
    while any(each.poll() is None for each in running):
        for own, each in zip(most, running, strict=True):
            for name, value in (memory_bytes(each.pid) or {}).items():
                own[name] = max(own[name], value)
        time.sleep(every_s)
    if failed := [str(each.returncode) for each in running if each.returncode]:
        raise RuntimeError(f"{len(failed)} of {len(running)} processes failed with {', '.join(failed)}")
    return most


def measure(
    folder: Path, scale: float, num_parts: int, method: str, steps: int, every_s: float, topology: str
) -> dict[str, Any]:
    """Writes the graph and its parts, trains with one process and with one a part; what each needed.

    Args:
        folder: for all files.
        scale: of the graph; 1 is ogbn-mag's size.
        num_parts: and processes.
        method: of `python -m jhgnn.partition`.
        steps: batches that are trained.
        every_s: seconds between two looks.
        topology: as `distributed.topology`.
    """
    graph, parts = folder / "graph", folder / f"parts-{num_parts}"
    if not graph.exists():
        config = override(load_recipe(RECIPE), {"data": {"scale": scale}}, where="bench.part_memory")
        save_graph(read_graph(config, progress=False).with_reverse_relations(), graph)
    data = ["--config", str(RECIPE), "--data.format=jhgnn", f"--data.path={graph}"]
    if not parts.exists():
        cut = [*data, f"--parts={num_parts}", f"--method={method}", f"--out={parts}"]
        if partition.main(cut):
            raise RuntimeError("the graph could not be cut")
    limits = [f"--sampling.max_steps={steps}", "--sampling.evaluation_nodes=1024", "--run.tensorboard=false"]
    train = [sys.executable, "-m", "jhgnn.train", *data, *limits, "--distributed.devices=1"]
    alone = watched([_start([*train, f"--run.dir={folder / 'run-1'}"], folder / "cache-1")], every_s)[0]
    together = [f"--distributed.parts={parts}", "--distributed.read=parts", "--distributed.strategy=owner"]
    together += [f"--distributed.topology={topology}"]
    together += [f"--distributed.coordinator={_free_address()}", f"--distributed.num_processes={num_parts}"]
    together += [f"--run.dir={folder / f'run-{num_parts}'}"]
    commands = [[*train, *together, f"--distributed.process_id={number}"] for number in range(num_parts)]
    each = watched([_start(command, folder / f"cache-{num_parts}") for command in commands], every_s)
    shares = [own["Rss"] / alone["Rss"] for own in each]
    return {
        "scale": scale,
        "method": method,
        "topology": topology,
        "steps": steps,
        "one_process": alone,
        "processes": each,
        "shares": [round(share, 4) for share in shares],
        "most_share": round(max(shares), 4),
    }


def shown(found: Mapping[str, Any]) -> str:
    """The figures in lines for a person."""

    def line(what: str, own: Mapping[str, int]) -> str:
        return f"{what:12}" + "".join(f"{name} {own[name] / 2**20:7,.0f} MiB   " for name in FIELDS)

    lines = [line("one process", found["one_process"])]
    for number, own in enumerate(found["processes"]):
        lines.append(line(f"part {number}", own) + f"{found['shares'][number]:.1%} of its Rss")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.part_memory", description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the graph; 1 is ogbn-mag's size")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--method", default="random", help="of python -m jhgnn.partition")
    parser.add_argument("--topology", choices=("replicated", "partitioned"), default="replicated")
    parser.add_argument("--steps", type=int, default=6, help="batches that are trained")
    parser.add_argument("--every-s", type=float, default=0.25, help="between two looks")
    parser.add_argument("--folder", type=Path, help="for the graph, its parts and the runs; what is there is used")
    parser.add_argument("--out", type=Path, default=RESULTS / "part-memory.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        limits = options.steps, options.every_s, options.topology
        found = measure(folder, options.scale, options.parts, options.method, *limits)
    store(options.out, {"commit": commit(), "machine": f"{os.cpu_count()} cores"} | found)
    print(shown(found))
    return 0 if found["most_share"] < MOST else 1


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _start(command: Sequence[str], cache: Path) -> subprocess.Popen[str]:
    environment = {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    return subprocess.Popen(command, cwd=ROOT, env=dict(os.environ) | environment, text=True)


if __name__ == "__main__":
    sys.exit(main())
