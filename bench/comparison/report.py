"""Tables and plot of a stored result, for docs/comparison.md."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.comparison.cases import CASES, MINIBATCH_CASES, MODELS, MOLECULE_CASES
from bench.comparison.goals import Cells, better_peer, goals
from bench.comparison.lines import user_lines
from bench.comparison.measure import PEERS
from bench.comparison.results import FileError
from bench.pages import write_between
from bench.record import RESULTS

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
COLUMNS = {"jhgnn": "jhgnn", "dgl": "DGL", "pyg": "PyG"}
Cell = Mapping[str, Any]


def check_page(page: Path) -> None:
    """Refuses a page into which no tables can be drawn.

    Raises:
        FileError: it is not there, or lacks the markers in their order.
    """
    need = f"need a page with the lines {BEGIN} and {END}, such as docs/comparison.md"
    if not page.is_file():
        raise FileError(f"--page {page}: not there; {need}")
    if END not in page.read_text(encoding="utf-8").partition(BEGIN)[2]:
        raise FileError(f"--page {page}: lacks the tables' markers; {need}")


def write_tables(
    data: Mapping[str, Any], page: Path, source: str, plain: tuple[Mapping[str, Any], str] = ({}, "")
) -> None:
    """Replaces what stands between the page's markers; the rest is written by hand.

    `plain`: a plain run and its file; one of the two runs may have no cells, not both.
    """
    body = "\n\n".join(section for section in sections(data, source, *plain) if section)
    write_between(page, BEGIN, END, f"\n{body}\n")


def sections(data: Mapping[str, Any], source: str, plain: Mapping[str, Any], plain_source: str) -> list[str]:
    """Markdown of every table; of the plain one alone where nothing else was measured."""
    if not data.get("cells"):
        return [plain_section(plain, plain_source)]
    cells, minibatches = (
        {case.name: data["cells"][case.name] for case in kind if case.name in data["cells"]}
        for kind in ((*CASES, *MOLECULE_CASES), MINIBATCH_CASES)
    )
    described = data["machine"]
    commit = f"commit {data['commit']}"
    if data.get("resumed_at"):
        commit += f", resumed at {', '.join(data['resumed_at'])}"
    notes = [
        f"From `{source}`: {described['processor']}, {described['cores']} cores, {described['memory_gib']} GiB;"
        f" {commit}; load average {described['load_average_at_start']} at the start;"
        f" {'a quick run' if data['settings']['quick'] else 'a whole run'}{'' if data['complete'] else ', unfinished'}."
    ]
    notes += [f"{COLUMNS[peer]} is missing: {why}." for peer, why in data["missing"].items() if why]
    provisional = [] if data["settings"]["quick"] else data.get("provisional", [])
    if provisional:
        notes.append(f"Of the peers' variants only the default ones were timed on {', '.join(provisional)}.")
    shares = [each["jhgnn"]["stolen_share"] for each in cells.values() if "stolen_share" in each.get("jhgnn", {})]
    if shares:
        notes.append(
            f"A hypervisor took {100 * statistics.median(shares):.1f} % of the processors' time from the rounds that"
            f" count (median of the cases; at most {100 * max(shares):.1f} %)."
        )
    stands_in = data["settings"].get("synthetic", [])
    if stands_in:
        notes.append(f"Synthetic graphs stand in for {', '.join(stands_in)}.")
    return [
        " ".join(notes),
        _versions(data["cells"]),
        "### Goals of the kernels and of mini-batches\n\n" + goals_table(data["cells"], source),
        *(_full_batch(cells, plain_section(plain, plain_source)) if cells else []),
        _optional("### Cold start: from the command to the end of 100 epochs, s", _table(cells, _cold)),
        _optional("### Mini-batches on the synthetic MAG", minibatch_table(minibatches)),
        "### Lines of user code\n\n" + lines_table(),
        _optional("### Test micro-F1 over seeds, %", accuracy_table(data)),
        _optional("### Time to the target accuracy, s", target_table(data)),
        _optional("### Variants tried, ms an epoch", variants_table(cells)),
    ]


def plain_section(data: Mapping[str, Any], source: str) -> str:
    """The table of a run with the peers' processes as their users start them; empty where there was none."""
    if not data.get("cells"):
        return ""
    described = data["machine"]
    note = (
        f"From `{source}`: {described['processor']}; commit {data['commit']}; load average"
        f" {described['load_average_at_start']} at the start; quick{'' if data['complete'] else ', unfinished'}."
    )
    return (
        f"### Epoch with the peers' processes as their users start them, ms\n\n{note}\n\n{epoch_table(data['cells'])}"
    )


def _full_batch(cells: Cells, plain: str) -> list[str]:
    return [
        "### Full-batch epoch, ms (median, half the quartile range)\n\n" + epoch_table(cells),
        "![Epoch times](images/comparison-epochs.png)",
        plain,
        _optional("### Epoch with all rows computed by us as well, ms", all_rows_table(cells)),
        _optional("### Epoch with dense features on every side, ms", dense_table(cells)),
        _optional("### Epoch with features as each one's models take them, ms", as_they_come_table(cells)),
        "### Forward and backward, ms\n\n" + _table(cells, _split),
        "### First epoch, compilation included, s\n\n" + _table(cells, _number("first_epoch_s", "{:.2f}")),
        "### Semantic graph build, s\n\n" + _table(cells, _number("sgb_s", "{:.3f}")),
        "### Memory: high-water mark of the process, MiB (of which before the semantic graphs)\n\n"
        + _table(cells, _memory),
        _optional("### From the command to reading the graph, s (of which imports)", _table(cells, _start)),
    ]


def goals_table(cells: Cells, source: str) -> str:
    """Every performance goal, met or not; a quick run measures a part of them."""
    rows = [goal.row() for goal in goals(cells, f"`{Path(source).name}`", RESULTS)]
    return _markdown(["goal", "needs", "measured", "met", "from"], rows)


def epoch_table(cells: Cells) -> str:
    """Medians, and the better peer over ours with its geometric mean."""
    return _compared(cells, lambda frameworks: {name: frameworks.get(name, {}) for name in COLUMNS})


def dense_table(cells: Cells) -> str:
    """All with dense features, where ours was timed so; a peer whose best variant is dense counts with that one."""
    return _against_dense_peers(cells, "jhgnn-dense")


def as_they_come_table(cells: Cells) -> str:
    """Ours, which keeps sparse features sparse, and the peers', whose models take dense ones; the same cases."""
    return _against_dense_peers(cells, "jhgnn")


def _against_dense_peers(cells: Cells, ours: str) -> str:
    """One of our columns and the peers with dense features, where ours was timed with those as well."""

    def picked(frameworks: Mapping[str, Cell]) -> dict[str, Cell]:
        if "epoch_ms" not in frameworks.get("jhgnn-dense", {}):
            return {}
        return {"jhgnn": frameworks[ours]} | {peer: _dense(frameworks, peer) for peer in PEERS}

    return _compared(cells, picked)


def _dense(frameworks: Mapping[str, Cell], peer: str) -> Cell:
    """A peer's quickest variant with dense features."""
    best = frameworks.get(peer, {})
    return best if best.get("features") == "dense" else frameworks.get(f"{peer}-dense", {})


def all_rows_table(cells: Cells) -> str:
    """Ours with `training.rows = "all"`; HAN, which has no other way, as it is. Only where those were timed."""
    if not any("epoch_ms" in frameworks.get("jhgnn-all-rows", {}) for frameworks in cells.values()):
        return ""

    def picked(frameworks: Mapping[str, Cell]) -> dict[str, Cell]:
        ours = frameworks.get("jhgnn", {})
        if ours.get("rows") != "all":
            ours = frameworks.get("jhgnn-all-rows", {})
        return {"jhgnn": ours} | {peer: frameworks.get(peer, {}) for peer in PEERS} if "epoch_ms" in ours else {}

    return _compared(cells, picked)


def _compared(cells: Cells, picked: Callable[[Mapping[str, Cell]], dict[str, Cell]]) -> str:
    """A row for each case of which cells are picked, by framework."""
    rows, ratios = [], {}
    for case, frameworks in cells.items():
        found = picked(frameworks)
        if not found:
            continue
        ratio = better_peer(found)
        if ratio is not None:
            ratios[case] = ratio
        rows.append([case, *map(_epoch, found.values()), "-" if ratio is None else f"{ratio:.1f}"])
    of_mean = {case.name: ratios[case.name] for case in CASES if case.name in ratios}
    means = {"geometric mean": list(of_mean.values())}
    if any(case.endswith("-aifb") for case in of_mean):
        means["without AIFB"] = [ratio for case, ratio in of_mean.items() if not case.endswith("-aifb")]
    rows += [[name, "", "", "", f"{statistics.geometric_mean(each):.1f}"] for name, each in means.items() if each]
    return _markdown(["case", *COLUMNS.values(), "better peer / jhgnn"], rows) if rows else ""


def minibatch_table(cells: Cells) -> str:
    """A row a framework: a batch prepared in turn with the share of it that is sampling, and the quickest way."""
    rows = []
    for case, frameworks in cells.items():
        for name, label in COLUMNS.items():
            cell = frameworks.get(name, {})
            if "modes" not in cell:
                rows.append([case, label, str(cell.get("missing", "-")).replace("|", "/"), *["-"] * 6])
                continue
            turn, best = cell["modes"].get("in turn", {}), cell["modes"][cell["variant"]]
            rows.append(
                [
                    case,
                    label,
                    f"{turn['batch_ms']:,.0f}" if "batch_ms" in turn else turn.get("failed", "-"),
                    f"{turn['wait_share']:.0%}" if "wait_share" in turn else "-",
                    cell["variant"],
                    f"{best['batch_ms']:,.0f} ± {best['batch_ms'] * best['spread']:,.0f}",
                    f"{best['wait_share']:.0%}",
                    f"{best['targets_per_s']:,.0f}",
                    f"{cell['process_peak_bytes'] / 2**20:,.0f}" if "process_peak_bytes" in cell else "-",
                ]
            )
    header = ["case", "framework", "in turn, ms", "of it sampling and gathering", "quickest", "ms a batch"]
    return _markdown([*header, "of it waiting", "targets/s", "peak MiB"], rows) if rows else ""


def lines_table() -> str:
    """By the rule of `bench.comparison.lines`."""
    rows = [[model, *(str(user_lines(framework, model)) for framework in COLUMNS)] for model in MODELS]
    return _markdown(["model", *COLUMNS.values()], rows)


def accuracy_table(data: Mapping[str, Any]) -> str:
    """Mean and standard deviation, with the number of seeds."""
    rows = []
    for case, frameworks in data.get("accuracy", {}).items():
        row = [case]
        for name in COLUMNS:
            scores = [100 * run["test_micro_f1"] for run in frameworks.get(name, {}).values()]
            spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
            row.append(f"{statistics.fmean(scores):.2f}{spread} ({len(scores)})" if scores else "-")
        if any(cell != "-" for cell in row[1:]):
            rows.append(row)
    return _markdown(["case (seeds in parentheses)", *COLUMNS.values()], rows) if rows else ""


def target_table(data: Mapping[str, Any]) -> str:
    """First epoch plus the median number of epochs to the target times the median epoch; no evaluation in it.

    Where the quickest variant is another model, which trained no seeds, the times are of the variant that did.
    """
    rows = []
    for case, frameworks in data.get("accuracy", {}).items():
        row, target = [case], ""
        for name in COLUMNS:
            runs = list(frameworks.get(name, {}).values())
            cell = data["cells"].get(case, {}).get(name, {})
            if runs and runs[0]["variant"] != cell.get("variant"):
                cell = cell.get("tried", {}).get(runs[0]["variant"], {})
            target = f"{runs[0]['target_f1']:.2f}" if runs else target
            reached = [run["epochs_to_target"] for run in runs]
            if not runs or "epoch_ms" not in cell:
                row.append("-")
            elif None in reached:
                row.append(f"not reached by {reached.count(None)} of {len(reached)} seeds")
            else:
                epochs = statistics.median(reached)
                seconds = cell["first_epoch_s"] + (epochs - 1) * cell["epoch_ms"] / 1e3
                row.append(f"{seconds:.2f} ({epochs:.0f} epochs)")
        if any(text != "-" for text in row[1:]):
            rows.append([*row, target])
    return _markdown(["case", *COLUMNS.values(), "validation micro-F1"], rows) if rows else ""


def variants_table(cells: Cells) -> str:
    """Every variant of the peers, the chosen one marked."""
    rows = []
    for case, frameworks in cells.items():
        for peer in PEERS:
            cell = frameworks.get(peer, {})
            for variant, entry in cell.get("tried", {}).items():
                figure = (
                    f"{entry['epoch_ms']:.1f}" if "epoch_ms" in entry else f"failed: {entry.get('failed', 'unknown')}"
                )
                chosen = " **(counts)**" if variant == cell.get("variant") else ""
                rows.append([case, COLUMNS[peer], variant + chosen, figure.replace("|", "/")])
    return _markdown(["case", "framework", "variant", "probe"], rows) if rows else ""


def draw_plot(data: Mapping[str, Any], path: Path) -> None:
    """Epoch times as bars on a logarithmic axis; nothing where only mini-batches were measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cases = [case.name for case in (*CASES, *MOLECULE_CASES) if case.name in data["cells"]]
    if not cases:
        return
    figure, axis = plt.subplots(figsize=(10, 3.8), layout="constrained")
    for offset, (name, label) in enumerate(COLUMNS.items()):
        points = [
            (index + (offset - 1) * 0.27, data["cells"][case][name]["epoch_ms"])
            for index, case in enumerate(cases)
            if "epoch_ms" in data["cells"][case].get(name, {})
        ]
        if points:
            places, heights = zip(*points, strict=True)
            axis.bar(places, heights, width=0.25, label=label)
    axis.set_yscale("log")
    axis.set_ylabel("ms an epoch")
    axis.set_xticks(range(len(cases)), cases, rotation=30, ha="right")
    axis.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.tmp.png")
    figure.savefig(temporary, dpi=110)
    plt.close(figure)
    temporary.replace(path)


def _versions(cells: Cells) -> str:
    found: dict[str, str] = {}
    for frameworks in cells.values():
        for cell in frameworks.values():
            found |= cell.get("versions", {})
    return "Versions: " + ", ".join(f"{name} {version}" for name, version in found.items()) + "."


def _epoch(cell: Mapping[str, Any]) -> str:
    if "epoch_ms" in cell:
        return f"{cell['epoch_ms']:,.1f} ± {cell['epoch_ms'] * cell['spread']:,.1f}"
    return str(cell.get("missing", "-")).replace("|", "/")


def _number(field: str, form: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda cell: form.format(cell[field]) if field in cell else "-"


def _split(cell: Mapping[str, Any]) -> str:
    return f"{cell['forward_ms']:,.1f} + {cell['backward_ms']:,.1f}" if "forward_ms" in cell else "-"


def _memory(cell: Mapping[str, Any]) -> str:
    if "process_peak_bytes" not in cell:
        return "-"
    device = f", device {cell['device_peak_bytes'] / 2**20:,.0f}" if cell.get("device_peak_bytes") else ""
    return f"{cell['process_peak_bytes'] / 2**20:,.0f} ({cell['peak_before_bytes'] / 2**20:,.0f}){device}"


def _start(cell: Mapping[str, Any]) -> str:
    return f"{cell['start_s']:.2f} ({cell['import_s']:.2f})" if "start_s" in cell else "-"


def _cold(cell: Mapping[str, Any]) -> str:
    return f"{cell['cold_s']:.1f}" if "cold_s" in cell else cell.get("cold_not_run", "-")


def _table(cells: Cells, show: Callable[[Mapping[str, Any]], str]) -> str:
    rows = [[case, *(show(frameworks.get(name, {})) for name in COLUMNS)] for case, frameworks in cells.items()]
    return _markdown(["case", *COLUMNS.values()], rows) if any(cell != "-" for row in rows for cell in row[1:]) else ""


def _optional(title: str, table: str) -> str:
    return f"{title}\n\n{table}" if table else ""


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
