"""A partition's quality as tables on a terminal and as a chart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.distributed.quality import Quality, balance
from jhgnn.runtime.console import Say


def print_quality(say: Say, quality: Quality) -> None:
    """Prints three tables: cut edges by relation, what each part owns by type, and the balance of parts."""
    rows = []
    for relation, edges in quality.edges.items():
        cut = int(quality.cut[relation].sum())
        rows.append([str(relation), f"{edges.sum():,}", f"{cut:,}", _share(cut, int(edges.sum())), _ratio(edges)])
    total = sum(int(edges.sum()) for edges in quality.edges.values())
    cut = sum(int(counts.sum()) for counts in quality.cut.values())
    rows.append(["all", f"{total:,}", f"{cut:,}", _share(cut, total), ""])
    title = f"edges cut into {quality.num_parts} parts by {quality.method}"
    say.table(title, ["relation", "edges", "cut", "share", "max/mean"], rows)

    rows = []
    for node_type, nodes in quality.nodes.items():
        own, beyond = quality.feature_bytes.get(node_type), quality.halo_feature_bytes.get(node_type)
        rows.append(
            [
                node_type,
                f"{nodes.sum():,}",
                _ratio(nodes),
                f"{quality.halo[node_type].sum():,}",
                "none" if own is None else f"{own.sum() / 2**20:.1f} MiB",
                "" if own is None else _ratio(own),
                "" if beyond is None else f"{beyond.sum() / 2**20:.1f} MiB",
            ]
        )
    columns = ["type", "nodes", "max/mean", "halo", "features", "max/mean", "halo features"]
    say.table("nodes, and feature rows that are met from other parts", columns, rows)

    rows = []
    edges_of = sum(quality.edges.values(), np.zeros(quality.num_parts, np.int64))
    for part in range(quality.num_parts):
        targets = [f"{counts[part]:,}" for counts in quality.targets.values()]
        rows.append([str(part), *targets, f"{edges_of[part]:,}", f"{quality.part_bytes[part] / 2**20:.1f} MiB"])
    ratios = [_ratio(counts) for counts in quality.targets.values()]
    rows.append(["max/mean", *ratios, _ratio(edges_of), _ratio(quality.part_bytes)])
    say.table("parts", ["part", *quality.targets, "edges", "features and edges"], rows)


def draw_quality(path: Path, quality: Quality) -> None:
    """Writes a chart of targets, edges and bytes by part and of cut edges by relation; the suffix gives the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    ((targets, edges), (features, cut)) = figure.subplots(2, 2)
    _stack(targets, "targets", quality.targets)
    _stack(edges, "edges into owned nodes", {str(r): counts for r, counts in quality.edges.items()})
    mebibytes = {name: counts / 2**20 for name, counts in quality.feature_bytes.items()}
    _stack(features, "MiB of features", mebibytes)
    names = [str(relation) for relation in quality.cut]
    shares = [100 * quality.cut[r].sum() / max(1, quality.edges[r].sum()) for r in quality.cut]
    cut.barh(range(len(names)), shares, color="tab:red")
    cut.set_yticks(range(len(names)), names, fontsize=7)
    cut.set_title(f"cut edges, % ({100 * quality.cut_share:.1f} % of all)")
    figure.suptitle(f"{quality.num_parts} parts by {quality.method}")
    save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Saves a matplotlib figure under a temporary name and renames it."""
    temporary = path.with_name(f".{path.name}.tmp{path.suffix}")
    figure.savefig(temporary, dpi=120)
    temporary.replace(path)


def _stack(axes: Any, title: str, series: Mapping[str, np.ndarray]) -> None:
    at: np.ndarray | int = 0
    for name, counts in series.items():
        axes.bar(range(len(counts)), counts, bottom=at, label=name)
        at = at + counts
    axes.set_title(title)
    axes.set_xlabel("part")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if 0 < len(series) <= 12:
        axes.legend(fontsize=7)
        axes.set_ylim(top=1.4 * max(1e-9, float(np.max(at, initial=0))))  # room for the legend


def _share(count: int, total: int) -> str:
    return f"{100 * count / max(1, total):.1f} %"


def _ratio(counts: np.ndarray | Sequence[int]) -> str:
    return f"{balance(np.asarray(counts)):.3f}"
