"""docs/recompute.md: the answers that the stored results give; every figure in it is theirs."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.gpu.devices import GPUS
from bench.recompute_study import answers
from bench.recompute_study.budgets import SLACK, Row, measured, median_s
from bench.recompute_study.cases import HAN_SCALE, MAG_SCALE, all_cases
from bench.recompute_study.figures import figures
from bench.recompute_study.fit import Result, cpu_rows, searched
from bench.recompute_study.formatting import GIB, NAMES, mib, ms, noise_of, table
from bench.recompute_study.gpus import FORMULA, STUDIED
from bench.recompute_study.plots import FUSED, NODES, PARETO
from bench.recompute_study.rounds import NOISE, noise
from bench.recompute_study.variants import MICRO_BATCHES
from jhgnn.runtime.files import write_text

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT, FIGURES = "recompute.md", "recompute_figures.md"
GUIDE = Path(__file__).parent / "guide.md"
"""What the page says before its figures."""

NOTHING = "Nothing of this was measured yet."


def write_documents(results: Sequence[Result], folder: Path) -> None:
    """Writes the page (the guide, the answers and the search), and that of all figures."""
    write_text(folder / DOCUMENT, document(results))
    write_text(folder / FIGURES, figures(results))


def document(results: Sequence[Result]) -> str:
    """The page's text."""
    sections = {
        "What is measured": _measured(results),
        "What recomputing costs": _costs(results),
        "When a fused kernel makes it pointless": _fused(results),
        "How many nodes more fit": _nodes(results),
        "Which policy to take": _which(results),
        "DGL and PyG with their own recomputation": _peers(results),
        "Does the budget search find the fastest?": _search(results),
        "Compiled for GPUs": _gpus(results),
    }
    lines = [GUIDE.read_text(encoding="utf-8").rstrip()]
    for title, body in sections.items():
        lines += ["", f"## {title}", "", *body]
    return "\n".join(lines) + "\n"


def _measured(results: Sequence[Result]) -> Iterator[str]:
    parts = {part: [each for each in results if part in each["parts"]] for part in ("cpu", "peaks", "peers", *STUDIED)}
    machines = sorted({each["parts"]["cpu"]["machine"] for each in parts["cpu"]})
    of_peers = sorted({each["parts"]["peers"]["machine"] for each in parts["peers"]} - set(machines))
    yield (
        "Every figure is of a whole training step. Memory is the step's *temporaries* by XLA's buffer assignment, and"
        " the growth of a fresh process's high-water mark over its steps. Times are medians of steps taken in turns,"
        f" all variants of an implementation in one process, until the medians are known to {NOISE:.0%} or time is up;"
        " *noise* is half of the median's 95 % interval, as a share of it. All rows of the graph are computed"
        ' (`training.rows = "all"`), whatever share of it trains. `mag` is the synthetic graph of ogbn-mag\'s kind at'
        f" {MAG_SCALE:g} of its size; `mag_whole` trains it as one batch, with HAN at {HAN_SCALE:g} of the size, where"
        " one metapath has 18 million edges."
    )
    if machines:
        others = f"; some of DGL's and PyG's are of {', and of '.join(of_peers)}" if of_peers else ""
        yield f"\nTimes are of {', and of '.join(machines)}{others}."
    yield (
        "\nStored are, of "
        f"{len(all_cases())} cases: "
        + ", ".join(f"`{part}` of {len(found)}" for part, found in parts.items())
        + ". `python -m bench.recompute --check` names what is missing or older than the code, and"
        " `python -m bench.recompute --all` measures that."
    )


def _costs(results: Sequence[Result]) -> Iterator[str]:
    rows, kinds = [], ("na", "dots", "stage", "full")
    full: dict[str, list[tuple[float, float]]] = {}
    for case, implementation, none, others in answers.costs(results, cpu_rows):
        cells = [_against(others.get(remat), none) for remat in kinds]
        rows.append([case, implementation, mib(none["temp_bytes"]), ms(none), *cells])
        ratio = answers.time_ratio(others["full"], none) if "full" in others else None
        if ratio is not None:
            full.setdefault(_kind(implementation), []).append(
                (ratio, others["full"]["temp_bytes"] / none["temp_bytes"])
            )
    if not rows:
        yield NOTHING
        return
    yield (
        "The paper finds that the backward pass waits for memory (findings 4, 7 and 9) and advises to recompute"
        " (guideline 7.1.2): where arithmetic is not what a step waits for, doing some of it twice is cheap."
    )
    for stored, pairs in full.items():
        ratios = [ratio for ratio, _ in pairs]
        yield (
            f"\nWith {stored}, `full` takes {answers.geometric_mean(ratios):.2f} times the step's time (geometric mean"
            f" of {len(pairs)}; {min(ratios):.2f} to {max(ratios):.2f}) for"
            f" {answers.geometric_mean([memory for _, memory in pairs]):.2f} of the memory."
        )
    cut = [
        f"`{case}` {row['temp_bytes'] / whole['temp_bytes']:.2f} and {ratio:.2f}"
        for case, whole, row in answers.micro_batches(results)
        if (ratio := answers.time_ratio(row, whole)) is not None
    ]
    if cut:
        yield (
            f"\nA mini-batch in {MICRO_BATCHES[-1]} micro-batches, by temporaries and time over those of the uncut one"
            f" (fused kernel, `none`): {', '.join(cut)}. Parts have neighbours in common, whose rows each of them reads"
            " and projects again, and gradients of embeddings' rows are kept of all parts until the update: HAN here"
            " has no such rows."
        )
    yield f"\n![Memory against time, a panel a case](images/{PARETO})\n"
    yield (
        "Each cell: memory, and time, over those of `none`; *same* where the policy compiles to the same program."
        " A ratio of times in brackets lies within its noise of 1.\n"
    )
    yield from table(["case", "implementation", "none, MiB", "ms", *(f"`{kind}`" for kind in kinds)], rows)


def _kind(implementation: str) -> str:
    return "a message an edge stored" if implementation in answers.STORING else "the fused kernel"


def _against(row: Row | None, none: Row) -> str:
    if row is None:
        return "same"
    memory, ratio = f"{row['temp_bytes'] / none['temp_bytes']:.2f}", answers.time_ratio(row, none)
    if ratio is None:
        return f"{memory}, not run"
    within = abs(ratio - 1.0) <= answers.ratio_noise(row, none)
    return f"{memory}, ({ratio:.2f})" if within else f"{memory}, {ratio:.2f}"


def _fused(results: Sequence[Result]) -> Iterator[str]:
    rows: list[list[str]] = []
    verdicts = dict.fromkeys(("yes", "faster, not leaner", "no"), 0)
    for case, native, stored, leanest in answers.fused(results):
        verdict = _verdict(native, leanest)
        if verdict in verdicts:
            verdicts[verdict] += 1
        rows.append(
            [
                *(case, mib(native["temp_bytes"]), ms(native)),
                *(mib(stored["temp_bytes"]), ms(stored)),
                *(f"`{leanest['remat']}`", mib(leanest["temp_bytes"]), ms(leanest)),
                verdict,
            ]
        )
    if not rows:
        yield NOTHING
        return
    yield (
        "A fused kernel computes a message when it adds it up, in both directions, and keeps no array of the edges'"
        " size: it recomputes by itself. It makes recomputing on top of stored messages pointless where it needs no"
        f" more memory than they do under their leanest policy, and takes no longer: {verdicts['yes']} of"
        f" {sum(verdicts.values())} cases. In {verdicts['faster, not leaner']} more it is faster, and what needs less"
        " memory is stored messages recomputed by that policy; the first table has the fused kernel with the same one."
        + (f" In {slower} more, stored messages are as fast or faster." if (slower := verdicts["no"]) else "")
    )
    yield f"\n![Temporaries, fused and stored](images/{FUSED})\n"
    header = ["case", "fused, MiB", "ms", "stored, MiB", "ms", "its leanest policy", "MiB", "ms", "pointless"]
    yield from table(header, rows)


def _verdict(native: Row, leanest: Row) -> str:
    """Whether the fused kernel alone does what recomputing on top of stored messages would be for."""
    ratio = answers.time_ratio(leanest, native)
    if ratio is None:
        return "not run"
    if ratio < 1.0:
        return "no"
    return "yes" if native["temp_bytes"] <= leanest["temp_bytes"] else "faster, not leaner"


def _nodes(results: Sequence[Result]) -> Iterator[str]:
    cells: dict[tuple[str, str], dict[str, list[str]]] = {}
    for result in results:
        for place in ("cpu", *STUDIED):
            found, seconds = answers.on_cpu(result) if place == "cpu" else answers.on_gpu(result, place)
            compiled = answers.plain(found)
            for name in (*answers.STORING, "native"):
                if (name, 1, "none") not in compiled:
                    continue
                more = answers.more_nodes(found, name, seconds)
                own = [f"{times:.2f} (`{row['remat']}`)" if times > 1.005 else "1" for times, row in more.values()]
                if place != "cpu":
                    whole = answers.storing(compiled) != "fanout"
                    fits = answers.nodes_that_fit(result, compiled[name, 1, "none"], place) if whole else None
                    own = [f"{fits / 1e6:,.1f}" if fits else "-", ", ".join(own)]
                cells.setdefault((result["case"], name), {})[place] = own
    if not cells:
        yield NOTHING
        return
    yield (
        "How many times the nodes fit the same memory if a step may take 1.1, 1.3 or 2 times as long, and by which"
        " policy. What a step needs (graph, features, state and temporaries) is taken to grow with the nodes."
        " For mini-batches the store of features does not shrink with the batch, so it is what sets the limit."
    )
    yield f"\n![Times the nodes that fit](images/{NODES})\n\nMeasured on this CPU:\n"
    here = [[*key, *each["cpu"]] for key, each in cells.items() if "cpu" in each]
    yield from table(["case", "implementation", *(f"at {factor:g}x" for factor in answers.FACTORS)], here)
    there = [
        [*key, *(cell for gpu in STUDIED for cell in each.get(gpu, ["not compiled", "-"]))]
        for key, each in cells.items()
        if any(gpu in each for gpu in STUDIED)
    ]
    if there:
        factors = ", ".join(f"{factor:g}" for factor in answers.FACTORS)
        yield (
            "\nWith compiled memory and *predicted* times of GPUs. *Millions* are the nodes of a graph of the same kind"
            f" that fit the GPU's memory with `none`; beside them, how many times as many at {factors} times the"
            " step's time:\n"
        )
        names = [f"{NAMES[gpu]}, {GPUS[gpu].memory_bytes // GIB} GiB" for gpu in STUDIED]
        header = ["case", "implementation", *(cell for name in names for cell in (f"{name}: millions", "times"))]
        yield from table(header, there)


def _which(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for result in results:
        found, seconds = answers.on_cpu(result)
        places = [("this CPU", found, seconds)] if found else []
        places += [
            (f"{NAMES[gpu]}, predicted", *answers.on_gpu(result, gpu)) for gpu in STUDIED[:1] if gpu in result["parts"]
        ]
        for place, rows_there, time_there in places:
            steps = [
                f"from {mib(row['needed_bytes'])} MiB {answers.way(row)} ({time_there(row) * 1e3:,.1f} ms)"
                for row in answers.recommended(rows_there, time_there)
            ]
            size = result.get("size")
            edges = f"{size['edges'] / 1e3:,.0f}" if size else "-"
            rows.append([result["case"], edges, place, "; ".join(steps)])
    if not rows:
        yield NOTHING
        return
    yield (
        "Each entry is the fastest of all implementations in float32, from the memory that it needs"
        " (`training.memory_budget`) up to that of the entry before. Take the first that fits: name its implementation"
        " in the recipe (`kernels`), and give a budget, within which the search chooses the policy."
        + _bfloat16(results)
        + "\n"
    )
    yield from table(["case", "thousand edges", "where", "what to take"], rows)


def _bfloat16(results: Sequence[Result]) -> str:
    """What bfloat16 changes where nothing is recomputed, with the fused kernel."""
    times, memory = [], []
    for result in results:
        rows = {row["dtype"]: row for row in cpu_rows(result) if _is_fused_none(row)}
        if len(rows) == 2:
            narrow, wide = rows["bfloat16"], rows["float32"]
            memory.append(narrow["temp_bytes"] / wide["temp_bytes"])
            times += [ratio] if (ratio := answers.time_ratio(narrow, wide)) else []
    if not times:
        return ""
    return (
        f" bfloat16 takes {answers.geometric_mean(times):.2f} times the step's time on this CPU and"
        f" {answers.geometric_mean(memory):.2f} of the temporaries (geometric means of {len(times)}, fused kernel,"
        " nothing recomputed)."
    )


def _is_fused_none(row: Row) -> bool:
    return (row["implementation"], row.get("remat"), row.get("micro_batches")) == ("native", "none", 1)


def _peers(results: Sequence[Result]) -> Iterator[str]:
    rows: list[list[str]] = []
    costs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    gains: list[tuple[float, float]] = []
    for case, peer, variant, none, units in answers.peer_costs(results):
        own = next((each for each in results if each["case"] == case), None)
        native = answers.plain(measured(cpu_rows(own)) if own else []).get(("native", 1, "none"))
        cells = []
        for unit in ("layer", "stage"):
            row = units.get(unit)
            if row is None:
                cells.append("-")
                continue
            memory, times = answers.growth_ratio(row, none), median_s(row) / median_s(none)
            costs.setdefault((peer, unit), []).append((memory, times))
            cells.append(f"{memory:.2f}, {times:.2f}")
        ours = ["-", "-"]
        if native and own and "steps_peak_bytes" in native and _on_one_machine(own):
            leanest = min((none, *units.values()), key=answers.growth_bytes)
            gains.append((answers.growth_ratio(native, leanest), median_s(native) / median_s(leanest)))
            ours = [mib(answers.growth_bytes(native)), ms(native)]
        noisiest = max((none, *units.values()), key=lambda row: noise(row["steps_s"]))
        here = [mib(answers.growth_bytes(none)), ms(none), noise_of(noisiest)]
        rows.append([case, NAMES[peer], variant.replace("|", "/"), *here, *cells, *ours])
    if not rows:
        yield NOTHING
        return
    yield (
        "`torch.utils.checkpoint` around each layer, or around each stage (a layer's aggregation, and what follows it)."
        " Memory is the growth of the process over its steps, and each cell has memory and time over those without"
        " recomputation. *noise* is the largest of a line's times, in bold where it stayed at or over"
        f" {NOISE:.0%}. The last two columns are jhgnn's fused kernel that recomputes nothing outside, float32, where"
        " it was measured on the same machine."
    )
    for (peer, unit), pairs in costs.items():
        memory, times = answers.mean_ratios(pairs)
        yield (
            f"\n{NAMES[peer]} that recomputes by {unit} takes {times:.2f} times its step's time for {memory:.2f} of its"
            f" memory (geometric means of {len(pairs)})."
        )
    if gains:
        memory, times = answers.mean_ratios(gains)
        yield (
            f"\njhgnn's fused kernel takes {memory:.2f} of the memory and {times:.2f} of the time of each line's"
            f" leanest way (geometric means of {len(gains)})."
        )
    header = ["case", "framework", "written with", "nothing recomputed, MiB", "ms", "noise", "by layer", "by stage"]
    yield ""
    yield from table([*header, "jhgnn, MiB", "ms"], rows)


def _on_one_machine(result: Result) -> bool:
    """Whether the peers were measured on the machine that jhgnn was."""
    return bool(result["parts"]["peers"]["machine"] == result["parts"]["cpu"]["machine"])


def _search(results: Sequence[Result]) -> Iterator[str]:
    found = searched(results)
    if not found:
        yield "Nothing can be said before a case is measured."
        return
    checks = [(case, row) for case, rows in found.items() for row in rows]
    within = [row for _, row in checks if row["regret"] <= SLACK]
    by_noise = [row for _, row in checks if SLACK < row["regret"] <= SLACK + row["noise"]]
    yield (
        "A search takes the program with the fewest float operations of those that fit. At each budget at which one"
        " more program fits, that is compared with the fastest; nothing was fitted to any case. Of"
        f" {len(checks)} choices, {len(within)} ({len(within) / len(checks):.1%}) are the fastest or within"
        f" {SLACK:.0%} of it, and {len(by_noise)} more within the noise beyond that. The others, and those:\n"
    )
    rows = [
        [
            *(case, row["implementation"], row["dtype"], mib(row["budget_bytes"]), row["chosen"], row["fastest"]),
            *(f"{row['regret']:+.0%}", f"{row['noise']:.0%}"),
        ]
        for case, row in checks
        if row["regret"] > SLACK
    ]
    header = ["case", "implementation", "dtype", "budget, MiB", "chosen", "fastest", "slower by", "noise"]
    yield from table(header, rows) if rows else ["None."]


def _gpus(results: Sequence[Result]) -> Iterator[str]:
    cells: dict[tuple[str, str], dict[str, list[str]]] = {}
    full: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for gpu in STUDIED:
        compiled_for = functools.partial(answers.gpu_rows, gpu=gpu)
        for case, implementation, none, others in answers.costs(results, compiled_for):
            own = [f"{mib(none['temp_bytes'])}, {none['predicted_s'] * 1e3:,.2f}"]
            for remat in ("stage", "full"):
                if (row := others.get(remat)) is None:
                    own.append("same")
                    continue
                memory, times = row["temp_bytes"] / none["temp_bytes"], row["predicted_s"] / none["predicted_s"]
                own.append(f"{memory:.2f}, {times:.2f}")
                if remat == "full":
                    full.setdefault((_kind(implementation), gpu), []).append((memory, times))
            cells.setdefault((case, implementation), {})[gpu] = own
    if not cells:
        yield NOTHING
        return
    yield (
        "Programs compiled for GPUs that are not here: temporaries are the compiled programs'; **times are predicted,"
        f" never measured**, by {FORMULA}, from the compiled programs' launches, operations and bytes and with the"
        " devices' figures of `bench/gpu/devices.py`. Of 15 updates that an H200 measured, 0.74 to 1.5 of the time is"
        " predicted ([gpu](gpu.md)). A program with float scatters takes longer than predicted where many edges meet in"
        " one vertex. `offload` cannot be compiled without a device."
    )
    for (stored, gpu), pairs in full.items():
        memory, times = answers.mean_ratios(pairs)
        yield (
            f"\nOn {NAMES[gpu]}, with {stored}, `full` takes {times:.2f} times the step's predicted time for"
            f" {memory:.2f} of the temporaries (geometric means of {len(pairs)})."
        )
    yield (
        "\n*none*: temporaries in MiB and predicted ms, in float32. `stage` and `full`: both over those of `none`."
        f" [All figures]({FIGURES}) has the other policies, implementations and bfloat16.\n"
    )
    header = [cell for gpu in STUDIED for cell in (f"{NAMES[gpu]}: none", "`stage`", "`full`")]
    rows = [
        [*key, *(cell for gpu in STUDIED for cell in each.get(gpu, ["not compiled", "-", "-"]))]
        for key, each in cells.items()
    ]
    yield from table(["case", "implementation", *header], rows)
