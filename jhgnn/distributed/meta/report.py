"""A plan of shards as tables on a terminal and as a chart."""

from pathlib import Path

import numpy as np

from jhgnn.distributed.meta.counts import TreeCounts
from jhgnn.distributed.meta.measure import Measured
from jhgnn.distributed.meta.plan import TRAFFIC, MetaPlan, Piece
from jhgnn.distributed.meta.traffic import data_parallel_bytes
from jhgnn.distributed.meta.work import KINDS, ModelShape, TreeWork
from jhgnn.distributed.quality_report import save_figure
from jhgnn.runtime.console import Say

MOST_ROWS = 40
_MIB = 2**20


def print_plan(
    say: Say,
    plan: MetaPlan,
    counts: TreeCounts,
    work: TreeWork,
    shape: ModelShape,
    measured: Measured,
    stored_bytes: np.ndarray,
) -> None:
    """Prints the metatree with its work, what was considered, the shards with their balance, and the traffic."""
    tree, batch = plan.tree, plan.batch_size
    rows = []
    for node in tree.nodes[1 : MOST_ROWS + 1]:
        milliseconds = [f"{1e3 * work.of((node.number,), batch, kind):.3f}" for kind in KINDS]
        below = f"{1e3 * work.of(tree.subtree(node.number), batch):.3f}"
        vertices, draws = counts.vertices[-1, node.number], counts.draws[-1, node.number]
        rows.append([tree.path(node.number), f"{vertices:,.0f}", f"{draws:,.0f}", *milliseconds, below])
    columns = ["branch", "vertices", "draws", *(f"{kind} ms" for kind in KINDS), "with all below"]
    more = f"; {len(tree.nodes) - 1 - MOST_ROWS} more" if len(tree.nodes) - 1 > MOST_ROWS else ""
    say.table(f"metatree of {tree.target}, a batch of {batch} targets{more}", columns, rows)

    considered = [[words, f"{1e3 * seconds:.3f}"] for words, seconds in plan.considered]
    say.table("predicted ms of a step: the slowest shard and the exchange", ["way", "ms"], considered)

    for shard, pieces in enumerate(plan.shards):
        say.table(f"shard {shard} computes", ["branch", "targets"], [_piece(plan, piece) for piece in pieces])
    owned = ", ".join(f"{node_type} by shard {shard}" for node_type, shard in plan.row_owners.items())
    sent = sum(plan.sent_bytes.values(), np.zeros(plan.num_shards))
    rows = [
        [
            str(shard),
            f"{1e3 * plan.work_s[shard].sum():.3f}",
            f"{1e3 * measured.work_s[shard].sum():.3f}",
            f"{sent[shard] / _MIB:.2f}",
            f"{stored_bytes[shard] / _MIB:.1f}",
        ]
        for shard in range(plan.num_shards)
    ]
    rows.append(["max/mean", f"{plan.imbalance:.3f}", f"{measured.imbalance:.3f}", "", ""])
    title = f"shards; learnable rows are owned: {owned}" if owned else "shards"
    say.table(title, ["shard", "predicted ms", "measured ms", "sends MiB", "stores MiB"], rows)

    rows = [[kind, f"{plan.sent_bytes[kind].sum() / _MIB:.3f}"] for kind in TRAFFIC]
    rows.append(["all", f"{plan.bytes_a_step / _MIB:.3f}"])
    over_data = data_parallel_bytes(counts, shape, plan.num_shards)
    rows.append(["over data, random parts (modelled)", f"{over_data / _MIB:.3f}"])
    say.table("predicted traffic of a step", ["kind", "MiB"], rows)


def draw_plan(path: Path, plan: MetaPlan, measured: Measured) -> None:
    """Writes a chart of each shard's work by branch, predicted and measured, and of its traffic; by the suffix."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    work, traffic, shares = figure.subplots(3, 1, height_ratios=[2, 1, 2])
    names = [f"{shard}" for shard in range(plan.num_shards)]
    at = np.zeros((2, plan.num_shards))
    for number, kind in enumerate(KINDS):
        for side, table in enumerate((plan.work_s, measured.work_s)):
            values = 1e3 * table[:, number]
            positions = np.arange(plan.num_shards) + (side - 0.5) * 0.4
            label = kind if side == 0 else None
            work.bar(positions, values, 0.38, bottom=at[side], color=f"C{number}", alpha=1 - 0.45 * side, label=label)
            at[side] += values
    work.set_title(
        f"ms of work, predicted (left, max/mean {plan.imbalance:.3f}) and measured (right, {measured.imbalance:.3f})"
    )
    work.set_xticks(range(plan.num_shards), names)
    work.legend(fontsize=7, loc="lower right")
    bottom = np.zeros(plan.num_shards)
    for kind in TRAFFIC:
        traffic.bar(names, plan.sent_bytes[kind] / _MIB, bottom=bottom, label=kind)
        bottom += plan.sent_bytes[kind] / _MIB
    traffic.set_title("MiB that a shard sends a step, predicted")
    traffic.legend(fontsize=7)
    branches = sorted({piece.node for pieces in plan.shards for piece in pieces})
    for shard, pieces in enumerate(plan.shards):
        for piece in pieces:
            row = branches.index(piece.node)
            shares.barh(row, piece.targets, left=piece.low, color=f"C{shard % 10}", edgecolor="white")
            shares.text((piece.low + piece.high) / 2, row, str(shard), ha="center", va="center", fontsize=7)
    shares.set_yticks(range(len(branches)), [plan.tree.path(node) for node in branches], fontsize=7)
    shares.set_xlabel("targets of a batch; the number is the shard")
    shares.set_title("who computes what")
    save_figure(figure, path)


def _piece(plan: MetaPlan, piece: Piece) -> list[str]:
    below = ", without what is below" if piece.is_cut(plan.tree) else ""
    targets = "all" if piece.targets == plan.batch_size else f"{piece.low} to {piece.high - 1}"
    return [plan.tree.path(piece.node) + below, targets]
