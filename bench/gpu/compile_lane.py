"""Compiles the programs of every recipe for GPUs that are not here, and says what they are made of."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.comparison.environment import machine
from bench.gpu.cases import Case, all_cases
from bench.gpu.devices import GPUS
from bench.gpu.environment import ROOT, create_gpu, gpu_python, missing, variables
from bench.gpu.limits import broken
from bench.gpu.page import write_page
from bench.record import changed_since, commit

OUTPUT = ROOT / "bench" / "results" / "gpu-compile.json"
DEVICES = (1, 8)
SOURCES = (
    "jhgnn",
    "configs",
    *(f"bench/gpu/{name}.py" for name in ("cases", "devices", "facts", "programs", "target")),
)
"""That programs and what is told of them are made from."""

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipes", nargs="*", metavar="NAME", help="only cases whose name contains one of these")
    parser.add_argument("--gpus", nargs="*", choices=list(GPUS), default=list(GPUS), help="kinds of device")
    parser.add_argument("--devices", nargs="*", type=int, default=list(DEVICES), help="numbers of devices")
    parser.add_argument("--hlo", type=Path, metavar="FOLDER", help="save the compiled programs there")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="JSON of the results")
    parser.add_argument("--resume", action="store_true", help="compile what the JSON has not, or of other sources")
    parser.add_argument(
        "--verify", action="store_true", help="before --resume: rows of other sources whose programs are the same stay"
    )
    parser.add_argument("--report-only", action="store_true", help="write the page from the JSON")


def run(options: argparse.Namespace) -> int:
    """The exit code: 1 where a limit is broken, 3 where nothing can be compiled here."""
    if options.report_only:
        write_page(json.loads(options.output.read_text(encoding="utf-8")))
        return 0
    for part in options.recipes or ():
        if not any(part in case.name for case in all_cases()):
            names = ", ".join(case.name for case in all_cases())
            print(f"error: --recipes {part}: no case has it in its name; there are {names}", file=sys.stderr)
            return 2
    problem = create_gpu() or missing()
    if problem:
        print(f"skipped: {problem}", file=sys.stderr)
        return 3
    results, cases = _started(options), all_cases()
    if options.verify:
        _verify(results, cases)
        _write(results, options.output)
    old = {name for name in {row["commit"] for row in results["rows"]} if changed_since(name, *SOURCES)}
    # A case that cannot be compiled is one for every kind of device.
    done = {(row["case"], row.get("gpu", gpu)) for row in results["rows"] for gpu in GPUS if row["commit"] not in old}
    for case in cases:
        named = not options.recipes or any(part in case.name for part in options.recipes)
        gpus = [gpu for gpu in options.gpus if (case.name, gpu) not in done]
        if not named or not gpus:
            continue
        made = []
        for row in compiled(case, gpus, options.devices, options.hlo):
            made.append(row | {"commit": results["commit"]})
            print(_line(row), flush=True)
        replaced = {row.get("gpu") for row in made}
        results["rows"] = [row for row in results["rows"] if row["case"] != case.name or row.get("gpu") not in replaced]
        results["rows"] = _in_order([*results["rows"], *made], cases)
        _write(results, options.output)
    new = [row for row in results["rows"] if row["commit"] not in old]
    wrong = [problem for row in new for problem in broken(row, new)]
    print(*wrong, sep="\n", file=sys.stderr)
    if options.output == OUTPUT:
        write_page(results)
    return 1 if wrong else 0


KERNELS = ("jhgnn/native", "jhgnn/profiling", "bench/gpu/devices.py", "bench/gpu/facts.py", "bench/gpu/target.py")
"""What rows depend on beside the traced programs."""


def _verify(results: Mapping[str, Any], cases: Sequence[Case]) -> None:
    """Traces the programs of rows that are older than the code; rows of programs that are the same become current."""
    for case in cases:
        own = [row for row in results["rows"] if row["case"] == case.name and "traced" in row]
        old = [row for row in own if changed_since(row["commit"], *SOURCES)]
        if not old or any(changed_since(row["commit"], *KERNELS) for row in old):
            continue
        gpus = [gpu for gpu in GPUS if any(row["gpu"] == gpu for row in own)]
        devices = sorted({row["devices"] for row in own})
        now = {_program(row): row.get("traced") for row in compiled(case, gpus, devices, trace=True)}
        same = [row for row in old if now.get(_program(row)) == row["traced"]]
        for row in same:
            row["commit"] = results["commit"]
        print(f"{case.name}: {len(same)} of {len(old)} rows are of the same programs", flush=True)


def _program(row: Row) -> tuple[Any, ...]:
    return row.get("gpu"), row.get("devices"), row.get("program")


def compiled(
    case: Case, gpus: Sequence[str], devices: Sequence[int], hlo: Path | None = None, *, trace: bool = False
) -> Iterator[Row]:
    """One row for each program of a case, as the worker tells them, or one that says why there is none.

    `trace`: programs are traced and not compiled, and rows have no figures.
    """
    if hlo is not None:
        hlo.mkdir(parents=True, exist_ok=True)
    counts = [count for count in devices if count == 1 or case.sampled]
    request = {
        "name": case.name.replace(" ", "-"),
        "recipe": case.toml(),
        "gpus": list(gpus),
        "devices": counts,
        "hlo": str(hlo) if hlo else "",
        "trace": trace,
    }
    shared = {"case": case.name, "recipe": case.recipe, "variant": case.variant}
    command = [str(gpu_python()), "-m", "bench.gpu.worker", json.dumps(request)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=ROOT, env=variables(), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            yield shared | json.loads(line)
        if process.wait():
            errors.seek(0)
            raise RuntimeError(f"{case.name}: the worker ended with {process.returncode}: {errors.read()[-3000:]}")


def _in_order(rows: Sequence[Row], cases: Sequence[Case]) -> list[Row]:
    """Rows in the order of cases and kinds of device; those of cases that there are no more are left out."""
    names, gpus = [case.name for case in cases], [*GPUS, "cpu", None]
    kept = [row for row in rows if row["case"] in names]
    return sorted(kept, key=lambda row: (names.index(row["case"]), gpus.index(row.get("gpu"))))


def _started(options: argparse.Namespace) -> dict[str, Any]:
    """The results without rows, or with those of the JSON, each with the commit that it is of."""
    rows: list[Row] = []
    if options.resume and options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
        rows = [{"commit": found["commit"]} | row for row in found["rows"]]
    probe = "import jax, jaxlib; print(jax.__version__)"
    version = subprocess.run([str(gpu_python()), "-c", probe], env=variables(), capture_output=True, text=True)
    return {
        "study": "gpu-compile",
        "label": "compiled without a device: nothing was run, and nothing here is a time on a GPU",
        "commit": commit(),
        "machine": machine(),
        "versions": {"jax": version.stdout.strip()},
        "rows": rows,
    }


def _write(results: Mapping[str, Any], path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def _line(row: Row) -> str:
    if "skipped" in row:
        return f"{row['case']}: skipped: {row['skipped']}"
    where = f"{row['devices']} x {row['gpu']}"
    if row["gpu"] == "cpu":
        return f"{row['case']} {row['program']} on {where}: {len(row['collectives'])} collectives"
    return (
        f"{row['case']} {row['program']} for {where}: {row['temp_bytes'] / 2**20:.1f} MiB, {row['kernels']} kernels,"
        f" {len(row['float_scatters'])} float scatters, {len(row['collectives'])} collectives,"
        f" compiled in {row['compile_s']:.0f} s"
    )
