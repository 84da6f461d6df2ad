"""The study's figures, in the shape of the paper's Figs. 3 to 7, 9 to 11 and 13."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.paper_study.runs import LENGTHS, total
from bench.paper_study.sampled import sampling_ms, step_shares
from jhgnn.profiling.figures import ALPHA, COLOURS

Row = dict[str, Any]
STAGES = ("FP", "NA", "SF", "LC", "PU")
HOST_COLOURS = {"SAMPLE": "#b03a48", "GATHER": "#5c8aa8", "LOAD": "#76a5a0", "SYNC": "#6b6b6b", "idle": "#d5dade"}


def draw_all(rows: Sequence[Row], folder: Path) -> list[str]:
    """Draws the figures, of the fused kernels, into a folder and returns their names."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in rows if row["aggregation"] == "fused"]
    pairs = [row for row in rows if row["group"] == "pairs"]
    names = [row["name"].replace(" ", "\n") for row in pairs]
    drawn = []

    def save(figure: plt.Figure, name: str) -> None:
        figure.savefig(folder / name, dpi=100)
        plt.close(figure)
        drawn.append(name)

    for file, key in (("paper_fig3_time.png", "seconds"), ("paper_fig6_traffic.png", "bytes")):
        figure, grid = plt.subplots(1, 3, figsize=(13, 3.4), layout="constrained", sharey=True)
        for axes, direction in zip(grid, ("", "forward", "backward"), strict=True):
            bottom = [0.0] * len(pairs)
            for stage in STAGES:
                whole = [total(row, key, "", direction) for row in pairs]
                shares = [
                    100 * total(row, key, stage, direction) / sum_ for row, sum_ in zip(pairs, whole, strict=True)
                ]
                axes.bar(names, shares, bottom=bottom, color=COLOURS[stage], label=stage)
                bottom = [a + b for a, b in zip(bottom, shares, strict=True)]
            axes.set_title(direction or "step")
            axes.tick_params(axis="x", labelsize=7)
        grid[0].set_ylabel("% of time" if key == "seconds" else "% of bytes moved")
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
        save(figure, file)

    figure, grid = plt.subplots(2, 3, figsize=(13, 5.6), layout="constrained", sharey=True)
    for line, direction in zip(grid, ("forward", "backward"), strict=True):
        for axes, stage in zip(line, ("FP", "NA", "SF"), strict=True):
            bottom = [0.0] * len(pairs)
            for kind in ("DM", "TB", "EW", "DR"):
                shares = []
                for row in pairs:
                    found = [
                        each for each in row["kernel_types"] if (each["stage"], each["direction"]) == (stage, direction)
                    ]
                    whole_s = sum(each["seconds"] for each in found) or 1.0
                    shares.append(100 * sum(each["seconds"] for each in found if each["type"] == kind) / whole_s)
                axes.bar(names, shares, bottom=bottom, color=COLOURS[kind], label=kind)
                bottom = [a + b for a, b in zip(bottom, shares, strict=True)]
            axes.set_title(f"{stage} {direction}")
            axes.tick_params(axis="x", labelsize=6)
    handles = grid[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right center", frameon=False, fontsize=8)
    save(figure, "paper_fig4_kernels.png")

    dblp = next(row for row in pairs if row["name"] == "han dblp")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    peak, bandwidth = (dblp["ceilings"][key] for key in ("matmul_flops_per_s", "copy_bytes_per_s"))
    reach = [1e-2, peak / bandwidth, 1e3]
    axes.loglog(reach, [min(peak, each * bandwidth) for each in reach], color="black")
    for each in dblp["stages"]:
        if each["intensity"] and each["flops_per_s"]:
            point = each["intensity"], each["flops_per_s"]
            axes.loglog(*point, "o", color=COLOURS[each["stage"]], alpha=ALPHA[each["direction"]])
            axes.annotate(f"{each['stage']} {each['direction'][:3]}", point, fontsize=7)
    axes.set_xlabel("FLOP / byte")
    axes.set_ylabel("FLOP/s")
    axes.set_title("HAN on DBLP")
    save(figure, "paper_fig5_roofline.png")

    han = [row for row in pairs if row["timelines"]]
    figure, lines = plt.subplots(2, len(han), figsize=(13, 5), layout="constrained", squeeze=False)
    for column, row in enumerate(han):
        for axes, program in zip(lines[:, column], ("inference", "training"), strict=True):
            series = {key: values for key, values in row["timelines"][program].items() if any(values)}
            keys = sorted(series)
            values = [[value / 1e6 for value in series[key]] for key in keys]
            areas = axes.stackplot(range(len(values[0])), values, colors=[COLOURS.get(k[:2], "#a8b0b7") for k in keys])
            for key, area in zip(keys, areas, strict=True):
                area.set_alpha(ALPHA.get(key.partition(".")[2], 1.0))
            axes.set_title(f"{row['name']}: {program}")
            axes.set_ylabel("live MB")
            axes.set_xlabel("position in the schedule", fontsize=8)
    patches = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[stage]) for stage in STAGES]
    figure.legend(patches, STAGES, loc="outside right center", frameon=False, fontsize=8)
    save(figure, "paper_fig7_memory.png")

    figure, both = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for axes, group, label in zip(both, ("length", "number"), ("length", "number of metapaths"), strict=True):
        found = [row for row in rows if row["group"] == group]
        for stage in ("FP", "NA", "SF"):
            values_ms = [1e3 * total(row, stage=stage) for row in found]
            axes.plot([int(row["name"]) for row in found], values_ms, "o-", color=COLOURS[stage], label=stage)
        axes.set_xlabel(label)
        axes.set_ylabel("ms, forward and backward")
        axes.legend(frameon=False)
    both[0].set_xticks(list(LENGTHS))
    save(figure, "paper_fig9_metapaths.png")

    sampled = [row for row in rows if row["group"] == "sampled"]
    if sampled:
        parts = [step_shares(row) for row in sampled]
        figure, axes = plt.subplots(figsize=(10, 3.6), layout="constrained")
        bottom = [0.0] * len(sampled)
        labels = [row["name"].replace(" ", "\n") for row in sampled]
        for part, colour in (HOST_COLOURS | {stage: COLOURS[stage] for stage in STAGES}).items():
            heights = [100 * each.get(part, 0.0) for each in parts]
            axes.bar(labels, heights, bottom=bottom, color=colour, label=part)
            bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
        axes.set_ylabel("% of a mini-batch step")
        figure.legend(loc="outside right center", frameon=False, fontsize=8)
        save(figure, "paper_fig10_minibatch.png")

    series = {
        group: sampling_ms([row for row in rows if row["group"] == f"sample {group}"]) for group in ("length", "number")
    }
    if all(series.values()):
        figure, grid = plt.subplots(2, 2, figsize=(9, 5.6), layout="constrained")
        for line, (group, label) in zip(
            grid, (("length", "metapath length"), ("number", "number of metapaths")), strict=True
        ):
            for axes, (dataset, each) in zip(line, series[group].items(), strict=True):
                axes.plot(list(each), list(each.values()), "o-", color=HOST_COLOURS["SAMPLE"])
                axes.set_title(dataset)
                axes.set_xlabel(label)
                axes.set_ylabel("sampling, ms a batch")
                axes.set_ylim(bottom=0)
        save(figure, "paper_fig11_sampling.png")

    contention = [row for row in rows if row["group"] == "contention"]
    if contention:
        figure, both = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        names = [row["name"] for row in contention]
        both[0].bar(names, [row["edges"] for row in contention], color="#b9c4cf")
        both[0].set_ylabel("edges a batch and process")
        right = both[0].twinx()
        right.plot(names, [1e3 * row["sample_s"] for row in contention], "o-", color=HOST_COLOURS["SAMPLE"])
        right.set_ylabel("ms a batch")
        both[1].bar(names, [row["switches"] for row in contention], color="#b9c4cf")
        both[1].set_ylabel("context switches a batch")
        for axes in both:
            axes.set_xlabel("processes that sample")
        save(figure, "paper_fig13_contention.png")
    return drawn
