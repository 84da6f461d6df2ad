"""The same model, weights and data in jhgnn, DGL and PyG: `python -m bench.compare`.

Creates the peers' environment where there is none, times every case in interleaved rounds of one process a framework,
writes `bench/results/compare-MACHINE.json` after every case, and draws `docs/comparison.md` from it. Interrupted, the
same command resumes. `--check` instead compares the stored result with the run before.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.comparison.cases import MINIBATCH_CASES, MOLECULE_CASES, PRESETS, TIMED, Case, is_real
from bench.comparison.environment import create_peers, machine, missing, slug
from bench.comparison.measure import (
    COLD_LIMIT_S,
    COLUMNS,
    PEERS,
    Bench,
    Clock,
    chosen_columns,
    default_variant,
    side_by_side,
)
from bench.comparison.protocol import WorkerError
from bench.comparison.report import check_page, draw_plot, write_tables
from bench.comparison.results import FileError, Results, slower
from bench.record import ROOT, commit
from bench.resumable import end
from jhgnn.runtime.memory_limit import available_memory_bytes

QUICK_BUDGET_S, BUDGET_S = 7.6 * 60, 38.5 * 60
"""From the command to the last measurement, installation included: 8 and 40 minutes with the tables."""

ACCURACY_SHARE, MINIBATCH_SHARE = 0.2, 0.3
"""Of the budget, kept for accuracy and for mini-batches where figures of them are still missing."""


def say(text: str) -> None:
    print(text, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="default variants, short rounds, full-batch epochs alone")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="a quick run with the peers' processes as their users start them, without our memory settings; kept beside"
        " the result file, and drawn as a table of its own",
    )
    parser.add_argument("--fresh", action="store_true", help="do not resume an unfinished run")
    parser.add_argument("--cases", nargs="*", help="only these, such as han-acm")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the accuracy figures")
    parser.add_argument("--accuracy-only", action="store_true", help="only fill accuracy, with no time budget")
    parser.add_argument("--machine", help="name in the result's file; by default the processor's")
    parser.add_argument("--output", type=Path, help="result file; by default bench/results/compare-MACHINE.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "comparison.md", help="whose tables are drawn")
    parser.add_argument("--budget", type=float, help="seconds after which no further measurement starts")
    parser.add_argument("--started", type=float, help="when the budget began, in seconds since 1970; by default now")
    parser.add_argument("--check", action="store_true", help="flag what became slower than in the run before; exit 1")
    parser.add_argument("--against", type=Path, help="with --check: compare with this result file instead")
    parser.add_argument("--tables", action="store_true", help="only draw docs/comparison.md from the stored result")
    options = parser.parse_args()
    options.quick |= options.plain
    return options


def main() -> int:
    options = parse()
    described = machine()
    path = options.output or ROOT / "bench" / "results" / f"compare-{options.machine or slug(described)}.json"
    check_page(options.page)
    whole, plain = Results(path), Results(path.with_name(f"{path.stem}-plain.json"))
    results = plain if options.plain else whole
    if options.check:
        return check(results, options.against)
    if not options.tables:
        known = TIMED if options.quick else (*TIMED, *MINIBATCH_CASES)
        unknown = set(options.cases or ()) - {case.name for case in known}
        if unknown:
            names = ", ".join(case.name for case in known)
            print(f"error: --cases {' '.join(sorted(unknown))}: unknown; need some of {names}", file=sys.stderr)
            return 2
        wanted = [case for case in known if not options.cases or case.name in options.cases]
        measure(results, wanted, options, described)
    draw(whole, plain, options.page)
    return 0


def check(results: Results, against: Path | None) -> int:
    """Exit code 1 where a cell became slower, 2 where there is nothing to compare."""
    before = Results(against).data.get("cells") if against else results.data.get("previous")
    if not results.data.get("cells") or not before:
        print(f"error: {against or results.path}: no earlier run to compare with", file=sys.stderr)
        return 2
    found = slower(results.data["cells"], before)
    say("\n".join(found) if found else "no cell became slower by more than noise")
    return 1 if found else 0


def measure(results: Results, wanted: list[Case], options: argparse.Namespace, described: dict[str, Any]) -> None:
    """Fills the result file."""
    budget_s = options.budget or (QUICK_BUDGET_S if options.quick else BUDGET_S)
    installed_s = max(0.0, time.time() - options.started) if options.started else 0.0
    clock = Clock(1e6 if options.accuracy_only else budget_s - installed_s)
    problems = create_peers()
    absent = {peer: missing(peer) for peer in PEERS}
    for peer, why in absent.items():
        if why:
            absent[peer] = "; ".join([why, *problems])
            say(f"{peer} is left out: {absent[peer]}")
    threads = described["cores"]
    header = {
        "machine": described,
        "settings": {
            "quick": options.quick,
            "cases": [case.name for case in wanted],
            "threads": threads,
            "synthetic": sorted(
                {case.dataset for case in wanted if not is_real(case.dataset)} & set(PRESETS) - {"mag"}
            ),
        }
        | ({"plain": True} if options.plain else {}),
        "commit": commit(),
        "missing": absent,
    }
    folder = ROOT / "build" / "compare"
    folder.mkdir(parents=True, exist_ok=True)
    full_batch = [case for case in wanted if case not in MINIBATCH_CASES]
    sampled = [case for case in wanted if case in MINIBATCH_CASES]
    with_accuracy = [case for case in full_batch if case not in MOLECULE_CASES]
    if not options.accuracy_only:
        if results.begin(header, fresh=options.fresh):
            say(f"resumed: {len(results.data['cells'])} of {len(wanted)} cases are done")
        kept = 0.0 if options.quick or accuracy_done(results, with_accuracy, absent, options.seeds) else ACCURACY_SHARE
        # Default variants of every case first, so that a slow machine still gets every row; then mini-batches, whose
        # share goes to the rest where it is left; then every variant of each peer, and cold starts.
        measure_cases(full_batch, results, folder, clock, threads, absent, quick=True, plain=options.plain)
        left = [case for case in sampled if case.name not in results.data["cells"]]
        timing = Clock(min(clock.left_s, budget_s * MINIBATCH_SHARE) if full_batch else budget_s)
        measure_cases(left, results, folder, timing, threads, absent, quick=options.quick)
        if not options.quick:
            timing = Clock(max(1.0, clock.left_s - kept * budget_s))
            measure_cases(full_batch, results, folder, timing, threads, absent, quick=False)
    if not options.quick:
        fill_accuracy(results, with_accuracy, absent, options.seeds, folder, clock, threads)
    if not options.accuracy_only:
        cells = results.data["cells"]
        unfinished = results.provisional or any(lacks_cold(*each) for case in cells.values() for each in case.items())
        results.data["complete"] = all(case.name in cells for case in wanted) and (options.quick or not unfinished)
    results.save()


def measure_cases(
    cases: list[Case],
    results: Results,
    folder: Path,
    timing: Clock,
    threads: int,
    absent: dict[str, str],
    *,
    quick: bool,
    plain: bool = False,
) -> None:
    """Measures and stores, case by case, what is not stored yet and can be measured in time.

    What a quick pass stored is provisional: a whole one measures it again, and keeps it where time runs out.
    """
    for case in cases:
        if case.name in results.data["cells"] and (quick or case.name not in results.provisional):
            continue
        if not is_real(case.dataset) and case.dataset not in PRESETS:
            say(f"{case.name}: its files are not here, and no synthetic graph stands in; set JHGNN_DATA_ROOT")
            continue
        if timing.left_s < 20:
            what = "default variants alone" if case.name in results.provisional else "not measured"
            say(f"{case.name}: {what}, the time budget is spent; run the same command again")
            continue
        bench = Bench(case, folder, timing, threads, plain=plain, quick=results.data["settings"]["quick"])
        if case in MINIBATCH_CASES:
            cells = measure_minibatches(bench, absent)
        else:
            cells = measure_case(bench, absent, results.data["cells"].get(case.name, {}), quick=quick)
        if cut_off(cells, absent, timing.left_s):
            say(f"{case.name}: cut off by the time budget, not kept; run the same command again")
            continue
        results.store(case.name, cells, provisional=quick and case not in MINIBATCH_CASES)
    if not quick:
        for case in cases:
            if any(lacks_cold(*each) for each in results.data["cells"].get(case.name, {}).items()):
                fill_cold(results, Bench(case, folder, timing, threads))


def fill_cold(results: Results, bench: Bench) -> None:
    """Cold starts of one full-batch case, after every case has its epochs: they are the first to go without time."""
    for name, cell in results.data["cells"][bench.case.name].items():
        if not lacks_cold(name, cell):
            continue
        if bench.clock.left_s < COLD_LIMIT_S:
            return
        try:
            cell |= bench.cold(name, cell["variant"], cell)
        except WorkerError as error:
            cell["cold_not_run"] = str(error)
        results.save()


def lacks_cold(name: str, cell: Mapping[str, Any]) -> bool:
    """Whether a column's cold start is still to be measured."""
    timed = "epoch_ms" in cell and name in COLUMNS
    return timed and not cell.keys() & {"cold_s", "cold_not_run"}


def measure_minibatches(bench: Bench, absent: dict[str, str]) -> dict[str, Any]:
    """All columns of one mini-batch case, one framework after the other."""
    cells: dict[str, Any] = {}
    for name in ("jhgnn", *PEERS):
        if absent.get(name):
            cells[name] = {"missing": absent[name]}
            continue
        try:
            cells[name] = bench.minibatches(name)
        except WorkerError as error:
            cells[name] = {"missing": str(error)}
    shown = [
        f"{name} {cell['modes'][cell['variant']]['targets_per_s']:,.0f} targets/s"
        if "modes" in cell
        else f"{name}: {cell['missing']}"
        for name, cell in cells.items()
    ]
    say(f"{bench.case.name}: {', '.join(shown)}")
    return cells


def measure_case(bench: Bench, absent: dict[str, str], known: Mapping[str, Any], *, quick: bool) -> dict[str, Any]:
    """All columns of one case; `known` are those of the pass over default variants."""
    case, tried = bench.case, {}
    if not quick:
        for peer in PEERS:
            if not absent[peer]:
                try:
                    tried[peer] = bench.probe(peer)
                except WorkerError as error:
                    tried[peer] = {"all": {"failed": str(error)}}
    columns = chosen_columns(case, tried, absent)
    if quick:
        columns = {name: column for name, column in columns.items() if name in COLUMNS}
    cells: dict[str, Any] = {}
    for group in side_by_side(columns, known, available_memory_bytes()):
        cells |= bench.interleave(group, rounds=3 if quick else 5)
    for name, (framework, _) in columns.items():
        if framework in tried:
            cells[name]["tried"] = tried[framework]
    for peer, why in absent.items():
        if why:
            cells[peer] = {"missing": why}
    shown = [
        f"{name} {cell['epoch_ms']:.1f} ms" if "epoch_ms" in cell else f"{name}: {cell['missing']}"
        for name, cell in cells.items()
    ]
    say(f"{case.name}: {', '.join(shown)}")
    return cells


def cut_off(cells: dict[str, Any], absent: dict[str, str], left_s: float) -> bool:
    """Whether the budget ended before every framework that runs here was timed; such a case is measured again."""
    return left_s <= 1.0 and any("missing" in cell for name, cell in cells.items() if not absent.get(name))


def columns_of(absent: dict[str, str]) -> list[str]:
    return ["jhgnn", *(peer for peer in PEERS if not absent[peer])]


def accuracy_done(results: Results, wanted: list[Case], absent: dict[str, str], seeds: int) -> bool:
    stored = results.data.get("accuracy", {})
    return all(
        str(seed) in stored.get(case.name, {}).get(framework, {})
        for case in wanted
        for framework in columns_of(absent)
        for seed in range(seeds)
    )


def fill_accuracy(
    results: Results,
    wanted: list[Case],
    absent: dict[str, str],
    seeds: int,
    folder: Path,
    clock: Clock,
    threads: int,
) -> None:
    """Trains what is still missing, quickest epochs first, one seed of everything before the next seed."""
    stored = results.data.setdefault("accuracy", {})
    cells = results.data.get("cells", {})

    def epoch_ms(case: Case, framework: str) -> float:
        return float(cells.get(case.name, {}).get(framework, {}).get("epoch_ms", 1e3))

    pairs = sorted(
        ((case, framework) for case in wanted for framework in columns_of(absent)), key=lambda pair: epoch_ms(*pair)
    )
    for seed in range(seeds):
        for case, framework in pairs:
            found = stored.setdefault(case.name, {}).setdefault(framework, {})
            if str(seed) in found:
                continue
            # At most 200 epochs, each with an evaluation of about a third of its cost.
            if clock.left_s < 20 + 0.3 * epoch_ms(case, framework):
                continue
            cell = cells.get(case.name, {}).get(framework, {})
            variant = cell.get("variant", default_variant(framework, case))
            try:
                found[str(seed)] = Bench(case, folder, clock, threads).accuracy(framework, variant, seed)
            except WorkerError as error:
                say(f"{case.name} {framework} seed {seed}: {error}")
                continue
            say(f"{case.name} {framework} seed {seed}: test micro-F1 {found[str(seed)]['test_micro_f1']:.4f}")
            results.save()


def draw(results: Results, plain: Results, page: Path) -> None:
    """Tables and plot of a whole or quick run, and the table of a plain one beside it."""
    measured = [each for each in (results, plain) if each.data.get("cells")]
    if not measured:
        say(f"nothing measured in {os.path.relpath(results.path, ROOT)} yet: no tables drawn")
        return
    if results in measured:
        draw_plot(results.data, page.parent / "images" / "comparison-epochs.png")
    source, plain_source = (os.path.relpath(each.path, ROOT) for each in (results, plain))
    write_tables(results.data, page, source, (plain.data, plain_source))
    drawn_from = " and ".join(os.path.relpath(each.path, ROOT) for each in measured)
    say(f"wrote {os.path.relpath(page, ROOT)} from {drawn_from}")


if __name__ == "__main__":
    try:
        end(main)
    except FileError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
