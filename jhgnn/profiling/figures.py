"""The figures of a profile as PNG files, in the shape of Figs. 3 to 7 of the characterization paper.

That is Han et al., "Characterizing and Understanding HGNN Training on GPUs", 2024.
"""

from pathlib import Path

from jhgnn.profiling.kernels import KERNEL_TYPES
from jhgnn.profiling.tables import Profile, ordered_stages

COLOURS = {"FP": "#3b6fb6", "NA": "#d1672b", "SF": "#3f8f5f", "LC": "#8a5aa8", "PU": "#9a7b1f"} | {
    "DM": "#3b6fb6",
    "TB": "#d1672b",
    "EW": "#3f8f5f",
    "DR": "#8a5aa8",
}
ALPHA = {"forward": 1.0, "backward": 0.6, "recompute": 0.35, "update": 1.0, "none": 1.0}


def draw_figures(profile: Profile, folder: Path) -> list[Path]:
    """Draws `stages.png`, `kernel_types.png`, `traffic.png`, `roofline.png` and `memory.png`; the paths drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    stages = ordered_stages(profile)
    names = [f"{row['stage']}\n{row['direction']}" for row in stages]
    colours = [COLOURS.get(row["stage"], "#a8b0b7") for row in stages]
    drawn = []

    def save(figure: plt.Figure, name: str) -> None:
        temporary = folder / f".{name}.tmp.png"
        figure.savefig(temporary, dpi=120)
        plt.close(figure)
        temporary.replace(folder / name)
        drawn.append(folder / name)

    for key, scale, label, file in (
        ("seconds", 1e3, "ms", "stages.png"),
        ("bytes", 1e-6, "MB moved", "traffic.png"),
    ):
        figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
        axes.bar(names, [row[key] * scale for row in stages], color=colours)
        axes.set_ylabel(label)
        axes.tick_params(axis="x", labelsize=8)
        save(figure, file)

    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    bottom = [0.0] * len(stages)
    for kind in KERNEL_TYPES:
        found = {
            (row["stage"], row["direction"]): row["seconds"] for row in profile["kernel_types"] if row["type"] == kind
        }
        heights = []
        for row in stages:
            share = found.get((row["stage"], row["direction"]), 0.0) / row["seconds"] if row["seconds"] else 0.0
            heights.append(100 * share)
        axes.bar(names, heights, bottom=bottom, color=COLOURS[kind], label=kind)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    axes.set_ylabel("% of stage time")
    axes.tick_params(axis="x", labelsize=8)
    axes.legend(frameon=False, ncols=4, fontsize=8)
    save(figure, "kernel_types.png")

    ceilings = profile["roofline"]["ceilings"]
    if ceilings:
        figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
        peak, bandwidth = ceilings["matmul_flops_per_s"], ceilings["copy_bytes_per_s"]
        reach = [1e-2, peak / bandwidth, 1e3]
        axes.loglog(reach, [min(peak, each * bandwidth) for each in reach], color="black")
        for row in stages:
            if row["intensity"] and row["flops_per_s"]:
                colour = COLOURS.get(row["stage"], "#a8b0b7")
                axes.loglog(row["intensity"], row["flops_per_s"], "o", color=colour, alpha=ALPHA[row["direction"]])
                axes.annotate(
                    f"{row['stage']} {row['direction'][:3]}", (row["intensity"], row["flops_per_s"]), fontsize=7
                )
        axes.set_xlabel("FLOP / byte")
        axes.set_ylabel("FLOP/s")
        save(figure, "roofline.png")

    programs = [(name, profile["memory"][name]) for name in ("inference", "training") if profile["memory"][name]]
    figure, grid = plt.subplots(1, len(programs), figsize=(9, 3.2), layout="constrained", sharey=True, squeeze=False)
    for axes, (name, program) in zip(grid[0], programs, strict=True):
        series = program["timeline"]["live_bytes"]
        keys = [key for key in sorted(series) if any(series[key])]
        if keys:
            values = [[value / 1e6 for value in series[key]] for key in keys]
            paint = [COLOURS.get(key.partition(".")[0], "#a8b0b7") for key in keys]
            areas = axes.stackplot(range(len(values[0])), values, colors=paint, labels=keys, step="post")
            for key, area in zip(keys, areas, strict=True):
                area.set_alpha(ALPHA.get(key.partition(".")[2], 1.0))
            axes.legend(frameon=False, fontsize=6)
        axes.set_title(name)
        axes.set_xlabel("position in the schedule")
    grid[0][0].set_ylabel("live MB")
    save(figure, "memory.png")
    return drawn
