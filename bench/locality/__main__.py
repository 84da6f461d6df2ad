"""Locality of gathers without hardware counters: docs/locality.md.

`python -m bench.locality model`: reuse distances of the gathers of every relation and metapath of Table 3, forward and
backward, and the hit rates that follow for the caches of this processor and the second level of A100 and H100; the same
in other orders of vertices and of semantic graphs; large relations by sampling. About four minutes, 4 GB.
`python -m bench.locality measure`: times of the CPU kernels on one processor beside the modelled figures: slowdowns of
Table 3's graphs and of others in rank, and what other orders gain. Each group is stored when it is done:
`slowdowns` takes nine minutes, the others three.
`python -m bench.locality page`: the page, from the stored results.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.record import DATA_ROOT, RESULTS, commit, store
from jhgnn.errors import InputError

MODELLED, MEASURED = RESULTS / "locality-modelled.json", RESULTS / "locality-measured.json"
GROUPS = ("slowdowns", "vertex orders", "graph orders")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m bench.locality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, told in (("model", "hit rates from reuse distances"), ("measure", "times of the CPU kernels")):
        one = commands.add_parser(name, help=told)
        one.add_argument(
            "--data", choices=("auto", "real", "synthetic"), default="auto", help="auto: real if it is here"
        )
        one.add_argument("--large-scale", type=float, default=1.0, help="of the large graph, synthetic; 0: without it")
        one.add_argument("--output", type=Path, default=MODELLED if name == "model" else MEASURED, metavar="FILE")
        if name == "measure":
            one.add_argument("--groups", nargs="*", choices=GROUPS, default=list(GROUPS), help="the others stay")
            one.add_argument("--budget-s", type=float, default=1.5, help="a row ends after this if it never is quiet")
    commands.add_parser("page", help="docs/locality.md and its plot from the stored results")
    return top


def main() -> int:
    """The exit code: 2 for wrong input."""
    options = parser().parse_args()
    try:
        if options.command == "page":
            from bench.locality.page import write

            write(_read(MODELLED), _read(MEASURED))
            return 0
        return _run(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    data_root = _data_root(options.data)
    if not 0 <= options.large_scale <= 1:
        raise InputError(f"--large-scale {options.large_scale} is out of range; need a number from 0 to 1")
    start = time.perf_counter()
    record: dict[str, Any] = {
        "study": f"locality {options.command}",
        "commit": commit(),
        "data": "real" if data_root else "synthetic",
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "machine": _machine(),
    }

    def keep(rows: list[dict[str, Any]]) -> None:
        store(options.output, record | {"seconds": round(time.perf_counter() - start), "rows": rows})

    if options.command == "model":
        keep([_told(row) for row in _model(data_root, options)])
    else:
        _measure(data_root, options, record["commit"], keep)
    print(f"written to {options.output}")
    return 0


def _told(row: dict[str, Any]) -> dict[str, Any]:
    print(_line(row), flush=True)
    return row


def _model(data_root: Path | None, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from bench.locality.model import model

    yield from model(data_root, options.large_scale)


def _measure(
    data_root: Path | None, options: argparse.Namespace, made: str, keep: Callable[[list[dict[str, Any]]], None]
) -> None:
    """Measures the groups that the options name, and keeps each when it is done beside the others' stored rows."""
    from bench.locality import measure

    measure.pin()
    groups = {
        "slowdowns": lambda: measure.slowdown_rows(data_root, options.budget_s),
        "vertex orders": lambda: measure.vertex_order_rows(data_root, options.budget_s, options.large_scale),
        "graph orders": lambda: measure.graph_order_rows(data_root, options.budget_s),
    }
    for group in (each for each in GROUPS if each in options.groups):
        rows = [_told(row) for row in groups[group]()]
        stamp = {"commit": made, "load": round(os.getloadavg()[0], 2)}
        stored = _read(options.output)["rows"] if options.output.exists() else []
        keep(measure.replaced(stored, [row | stamp for row in rows]))


def _data_root(which: str) -> Path | None:
    if which == "synthetic" or (which == "auto" and not DATA_ROOT.is_dir()):
        return None
    if not DATA_ROOT.is_dir():
        raise InputError(f"--data real: no folder {DATA_ROOT}; set JHGNN_DATA_ROOT, or take --data synthetic")
    return DATA_ROOT


def _read(path: Path) -> Any:
    if not path.exists():
        raise InputError(f"{path} is not there; `python -m bench.locality model` and `measure` write the results")
    return json.loads(path.read_text(encoding="utf-8"))


def _machine() -> dict[str, Any]:
    from bench.locality.caches import cpu_caches

    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "caches": {cache.name: cache.bytes for cache in cpu_caches()},
    }


def _line(row: dict[str, Any]) -> str:
    short = {key: value for key, value in row.items() if not isinstance(value, list) and key != "kind"}
    return "  ".join(f"{key} {value}" for key, value in short.items())


if __name__ == "__main__":
    sys.exit(main())
