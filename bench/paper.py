"""The characterization paper's experiments, as far as this machine allows, as a page: `python -m bench.paper`.

Profiles 86 runs, in about an hour on two cores of an Intel Xeon. With a message an edge HAN on DBLP needs 16 GiB of
temporaries alone; `--aggregation fused` leaves those runs out, and takes ten minutes.
What is stored is profiled again only where the package has changed since; cut, the same command goes on where it was.
`--check` says which stored figures are older than the code that they measure, and ends with 1 if any is. `--verify`
traces those runs, today and as they were: where their programs, and what else they depend on, are the same, they become
current, in minutes.
"""

import argparse
import functools
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bench.paper_study.figures import draw_all
from bench.paper_study.findings import Finding, all_findings
from bench.paper_study.guidelines import guidelines
from bench.paper_study.modelled import LOCALITY, SEVERAL
from bench.paper_study.profiled import NOISE, SOURCES, TRACED_STEPS, take
from bench.paper_study.runs import AGGREGATIONS, Run, planned
from bench.paper_study.working_trees import programs, programs_at
from bench.recipes import is_recipe
from bench.record import BESIDE_PROGRAMS, ROOT, STEP_SOURCES, changed_since, commit, store
from bench.record import RESULTS as STORED
from bench.resumable import end
from jhgnn.config.command_line import OneLineParser
from jhgnn.config.recipe import to_toml
from jhgnn.errors import InputError
from jhgnn.runtime.files import write_text

RESULTS = STORED / "paper.json"
CONTENTION = STORED / "contention.json"
DOCUMENT = ROOT / "docs" / "findings.md"
IMAGES = ROOT / "docs" / "images"

BESIDE_RUNS = (
    *("bench/paper_study/profiled.py", "jhgnn/sampling", "jhgnn/data", "jhgnn/graph", "jhgnn/training/sampled*.py"),
    *("jhgnn/training/programs.py", "jhgnn/training/whole_graph_programs.py", "pyproject.toml", "CMakeLists.txt"),
)
"""What profiles depend on beside programs: how they are taken, how batches are prepared, and how steps are called."""

_OF_WHOLE_GRAPHS = ("call_arguments", "packed_graphs", "whole_graph", "whole_graph_programs")
_OF_BATCHES = (*STEP_SOURCES, *(f":(exclude)jhgnn/training/{name}.py" for name in _OF_WHOLE_GRAPHS))
_OF_GRAPHS = ("jhgnn/data", "jhgnn/graph")
OTHERS = {
    CONTENTION: ("bench.contention", ("bench/contention.py", *_OF_GRAPHS, "jhgnn/native", "jhgnn/sampling")),
    LOCALITY: ("bench.locality model", ("bench/locality/model.py", *_OF_GRAPHS)),
    SEVERAL: ("bench.several_gpus", ("bench/several_gpus.py", *_OF_BATCHES)),
}
"""Results of other commands that the page tells of: the command, and the files that it depends on."""

Row = Mapping[str, Any]


def key(row: Row) -> tuple[str, str, str]:
    """What a stored row is found by, as `Run.key`."""
    return row["group"], row["name"], row["aggregation"]


def measure(runs: Sequence[Run], stored: Sequence[Row]) -> Iterator[Row]:
    """Profiles the runs whose stored rows are not current; progress goes to stderr."""
    rows = {key(row): row for row in stored}
    for number, run in enumerate(runs, 1):
        if run.key in rows and is_current(rows[run.key], run):
            continue
        start = time.perf_counter()
        row = take_in_own_process(run)
        told = f"{time.perf_counter() - start:.0f} s, noise {row['noise']:.0%}"
        print(f"{number}/{len(runs)} {' '.join(run.key)}: {told}", file=sys.stderr, flush=True)
        yield row


def take_in_own_process(run: Run) -> dict[str, Any]:
    """A run's profile, from a process of its own.

    Some hundred compiled programs in one process need more memory maps than Linux grants it (`vm.max_map_count`), and
    then LLVM ends it.

    Raises:
        InputError: the process ended before it had the profile.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(take, run).result()
        except BrokenProcessPool:
            told = f"the process of run {' '.join(run.key)!r} ended before its profile, as it does when memory runs out"
            raise InputError(f"bench.paper: {told}; what was profiled before is stored") from None


def is_current(row: Row, run: Run) -> bool:
    """Whether a row was measured with a run's recipe and the package as they are now."""
    return not row["changed"] and not _changed(row["commit"]) and is_recipe(row["recipe"], run.config)


@functools.cache
def _changed(name: str) -> bool:
    return changed_since(name, *SOURCES)


def verify(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows, of which those that are older than the code, but whose runs are the same, are now of today's commit.

    Raises:
        InputError: the package is not that of today's commit.
    """
    if changed_since("HEAD", *SOURCES):
        raise InputError("bench.paper: --verify names today's commit, but the package has changes; commit them first")
    runs, found = {run.key: run for run in planned()}, [dict(row) for row in rows]
    old = [
        row
        for row in found
        if key(row) in runs
        and not is_current(row, runs[key(row)])
        and not row["changed"]
        and is_recipe(row["recipe"], runs[key(row)].config)
        and not changed_since(row["commit"], *BESIDE_PROGRAMS, *BESIDE_RUNS)
    ]
    for then in sorted({row["commit"] for row in old}):
        own = [row for row in old if row["commit"] == then]
        recipes = [to_toml(runs[key(row)].config) for row in own]
        same = 0
        for row, before, now in zip(own, programs_at(then, recipes), programs(ROOT, recipes), strict=True):
            if before == now:
                row["commit"] = commit()
                same += 1
        print(f"of {then}: {same} of {len(own)} runs are the same", file=sys.stderr, flush=True)
    return found


def outdated(rows: Sequence[Row]) -> list[str]:
    """A line for each stored figure that is older than the code that it measures, or is missing."""
    stored = {key(row): row for row in rows}
    lines = []
    for run in planned():
        row = stored.get(run.key)
        if row is None:
            lines.append(f"{' '.join(run.key)}: not measured")
        elif not is_current(row, run):
            lines.append(f"{' '.join(run.key)}: of {row['commit']}{', changed' if row['changed'] else ''}")
    for path, (command, sources) in OTHERS.items():
        if not path.exists():
            lines.append(f"{path.name}: not there; `python -m {command}` writes it")
        else:
            made = json.loads(path.read_text(encoding="utf-8"))["commit"]
            if changed_since(made, *sources):
                lines.append(f"{path.name}: of {made}; `python -m {command}` writes it again")
    return lines


def contention_rows() -> list[dict[str, Any]]:
    """What `python -m bench.contention` measured with a process a share; empty before it has run."""
    if not CONTENTION.exists():
        return []
    found = []
    for row in json.loads(CONTENTION.read_text(encoding="utf-8"))["rows"]:
        each = row["processes"]
        found.append(
            {
                "group": "contention",
                "name": str(row["shares"]),
                "aggregation": "fused",
                "sample_s": each["ms"] / 1e3,
                "edges": each["edges_per_share"],
                "switches": each["voluntary_switches"] + each["involuntary_switches"],
                "one_process_s": row["one_process"]["ms"] / 1e3,
            }
        )
    return found


CAPTIONS = {
    "paper_fig3_time.png": "Time by stage (Fig. 3)",
    "paper_fig4_kernels.png": "Time by kernel type (Fig. 4)",
    "paper_fig5_roofline.png": "Roofline with measured ceilings, HAN on DBLP (Fig. 5)",
    "paper_fig6_traffic.png": "Memory traffic by stage (Fig. 6)",
    "paper_fig7_memory.png": "Memory over a step, HAN (Fig. 7a)",
    "paper_fig9_metapaths.png": "Metapath length and number, HAN on IMDB (Fig. 9)",
    "paper_fig10_minibatch.png": "Time of a mini-batch step, batches prepared in turn (Fig. 10a)",
    "paper_fig11_sampling.png": "Sampling time by metapath length and number, HAN (Fig. 11)",
    "paper_fig13_contention.png": "Processes that sample at the same time (Fig. 13, without the cache's hit rate)",
}


def document(results: Mapping[str, Any]) -> str:
    """The findings as a page."""
    rows = [*results["rows"], *contention_rows()]
    machines, versions = (sorted({row[name] for row in results["rows"]}) for name in ("machine", "jax"))
    commits = sorted({row["commit"] for row in results["rows"]})
    loads = [row["load"] for row in results["rows"]]
    loud = [row for row in results["rows"] if row["noise"] is not None and row["noise"] > NOISE]
    unknown = sum(row["noise"] is None for row in results["rows"])
    noise = (
        f"noise (the median of traced steps over the fastest) is above {NOISE:.0%} in {len(loud)} of"
        f" {len(results['rows'])} runs"
    )
    if loud:
        noise += f", at most {max(row['noise'] for row in loud):.0%}"
    if unknown:
        noise += f", and was not kept in {unknown}"
    lines = [
        "# Findings of the characterization paper, measured here",
        "",
        "Han et al., *Characterizing and Understanding HGNN Training on GPUs* (2024), ran DGL on an A100; this page"
        " runs jhgnn on the machine below. Verdicts are computed from the measured figures"
        " (`bench/paper_study/findings.py`), and `python -m bench.paper` writes the page again:"
        " `bench/results/paper.json` holds every figure. `python -m bench.paper --check` tells which of them are older"
        " than the code that they measure.",
        "",
        f"Machine: {', '.join(machines)}; JAX {', '.join(versions)}, float32,"
        f" synthetic graphs of Table 3's sizes, at {', '.join(commits)}; the fastest of {results['traced_steps']}"
        f" traced steps. The load was {min(loads):.1f} to {max(loads):.1f}; {noise}: read times as shares and ratios.",
        "",
        "Two columns tell of each finding: with a message for each edge and sums of those, as the paper's stack"
        " aggregates (`segment`; in mini-batches `fanout`), and with the fused kernels, which are the default here. A"
        " finding in which aggregation takes no part stands in both.",
        "",
        "| # | finding | paper | with a message an edge | with fused kernels | why it differs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_line(finding) for finding in all_findings(rows)]
    rows = [row for row in rows if row["aggregation"] == "fused"]
    pairs = [row for row in rows if row["group"] == "pairs"]
    lines += [
        "",
        "## How well the profiles add up",
        "",
        "| pair | attributed | in ops that cross a border | parts / measured step | step, ms |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in pairs:
        lines.append(
            f"| {row['name']} | {row['attributed']:.2%} | {row['crossing']:.1%} | {row['parts_over_measured']:.3f} |"
            f" {row['step_s'] * 1e3:.1f} |"
        )
    lines += tables(rows)
    lines += guidelines([*results["rows"]])[:-1]
    lines += ["", "## Figures"]
    for name, caption in CAPTIONS.items():
        if (IMAGES / name).exists():
            lines += ["", f"![{caption}](images/{name})", "", caption]
    lines += [
        "",
        "Not measurable here, so without a figure: Fig. 7b and Fig. 8 (stall reasons, L2 hits: counters of a GPU),"
        " Fig. 10b and c (sampling on a GPU), Fig. 12 (several GPUs), the hit rate in Fig. 13b (counters), Fig. 14"
        ' (PCIe and NVLink). Verdicts that begin with "modelled" come from reuse distances ([locality](locality.md))'
        " and from programs compiled for A100 (constants: `bench/several_gpus.py`); nothing was run on a GPU.",
        "",
    ]
    return "\n".join(lines)


def _line(finding: Finding) -> str:
    cells = {name: f"**{each.verdict}**: {each.ours}" for name, each in finding.judged.items()}
    both = [cells[name] for name in AGGREGATIONS] if "" not in cells else [cells[""], "the same"]
    return f"| {' | '.join([finding.number, finding.claim, finding.paper, *both, finding.why])} |"


def tables(rows: Sequence[Row]) -> list[str]:
    """Tables 4 and 5 as far as they can be measured; a dash stands for a counter of a GPU."""
    lines: list[str] = []
    dblp = next((row for row in rows if row["group"] == "pairs" and row["name"] == "han dblp"), None)
    if dblp is not None and dblp.get("kernels"):
        ceiling = dblp["ceilings"]["copy_bytes_per_s"]
        lines += [
            "",
            "## Main kernels, HAN on DBLP (Table 4)",
            "",
            "| stage | kernel | type | % of the stage | % of copy bandwidth | FLOP/byte | L2 hit rate | stalls |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for stage in ("FP", "NA", "SF"):
            for direction in ("forward", "backward"):
                found = [each for each in dblp["kernels"] if (each["stage"], each["direction"]) == (stage, direction)]
                whole = sum(each["seconds"] for each in found)
                for each in sorted(found, key=lambda each: -each["seconds"])[:3]:
                    if each["seconds"] < 0.05 * whole:
                        continue
                    reach = f"{each['bytes_per_s'] / ceiling:.1%}" if each["bytes_per_s"] is not None else "-"
                    intensity = f"{each['intensity']:.2f}" if each["intensity"] is not None else "-"
                    lines.append(
                        f"| {stage} {direction} | `{each['kernel']}` | {each['type']} | {each['seconds'] / whole:.1%} |"
                        f" {reach} | {intensity} | - | - |"
                    )
        lines += ["", "Bytes are the cost model's, so rows that stay in a cache can exceed the copy bandwidth."]
    sampled = [row for row in rows if row["group"] == "sampled"]
    if sampled:
        lines += [
            "",
            "## Sampling (Table 5)",
            "",
            "| pair | sampling, ms a batch | gathering, ms | placing, ms | step, ms | sampling / step | counters |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in sampled:
            parts = [1e3 * row["host"].get(name, 0.0) for name in ("SAMPLE", "GATHER", "LOAD")]
            wall = 1e3 * row["traced_s"]
            cells = " | ".join(f"{part:.2f}" for part in parts)
            lines.append(f"| {row['name']} | {cells} | {wall:.1f} | {parts[0] / wall:.1%} | - |")
        lines += [
            "",
            "Sampling is one native call on the host, not GPU kernels; MAG is a tenth of its size. Batches are prepared"
            " in turn here; training prepares them ahead, which hides what other cores can do meanwhile.",
        ]
    return lines


def parser() -> OneLineParser:
    """The command line; wrong arguments raise InputError."""
    parser = OneLineParser(prog="python -m bench.paper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs, to try the study out; stores nothing")
    parser.add_argument("--write", action="store_true", help="only write the page from what is stored")
    parser.add_argument("--check", action="store_true", help="only say which figures are older than the code")
    parser.add_argument("--verify", action="store_true", help="trace what is older than the code, to see if it changed")
    groups = list(dict.fromkeys(run.group for run in planned()))
    parser.add_argument("--groups", nargs="*", choices=groups, default=groups, help="experiments to take")
    parser.add_argument(
        "--aggregation", nargs="*", choices=AGGREGATIONS, default=list(AGGREGATIONS), help="of which kind"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; bad input is one line on stderr and exit code 2."""
    try:
        return study(parser().parse_args(arguments))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def study(options: argparse.Namespace) -> int:
    """Does what the options ask for; 1 where `--check` or `--verify` finds an old figure, else 0.

    Raises:
        InputError: a run cannot be taken with its recipe.
    """
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"rows": []}
    if options.verify:
        results |= {"rows": verify(results["rows"])}
        store(RESULTS, results)
        write_text(DOCUMENT, document(results))
    if options.check or options.verify:
        old = outdated(results["rows"])
        print("\n".join(old) or "no figure is older than the code that it measures")
        return 1 if old else 0
    runs = [
        run for run in planned(options.quick) if run.group in options.groups and run.aggregation in options.aggregation
    ]
    if options.quick:
        rows = list(measure(runs, ()))
        for finding in all_findings([*rows, *contention_rows()]):
            for aggregation, judged in finding.judged.items():
                print(f"{finding.number:>6} {aggregation:8} {judged.verdict:20} {judged.ours}")
        return 0
    if not options.write:
        order = [run.key for run in planned()]
        found = {key(row): row for row in results["rows"]}
        for row in measure(runs, results["rows"]):
            found[key(row)] = row
            kept = sorted(
                (each for name, each in found.items() if name in order), key=lambda row: order.index(key(row))
            )
            store(RESULTS, {"traced_steps": TRACED_STEPS, "rows": kept})
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    draw_all([*results["rows"], *contention_rows()], IMAGES)
    write_text(DOCUMENT, document(results))
    return 0


if __name__ == "__main__":
    end(main)
