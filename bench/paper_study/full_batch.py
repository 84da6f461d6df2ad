"""Findings 1 to 9, 13, 14 and section 6: full-batch training, each judged by runs of one kind of kernels."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.paper_study.runs import LENGTHS, NUMBERS, geometric_mean, total
from bench.paper_study.verdicts import FAILS, HOLDS, PARTLY, Judged, of_parts, of_share
from jhgnn.profiling.roofline import bound

Row = Mapping[str, Any]
STAGES = ("FP", "NA", "SF")


def forward_or_backward(pairs: Sequence[Row]) -> Judged:
    """Finding 1."""
    forward = [total(row, direction="forward") / total(row) for row in pairs]
    backward = [total(row, direction="backward") / total(row) for row in pairs]
    more = sum(a > b for a, b in zip(forward, backward, strict=True))
    ours = (
        f"forward {statistics.mean(forward):.1%}, backward {statistics.mean(backward):.1%} of op time;"
        f" forward is longer on {more} of {len(pairs)} pairs"
    )
    return Judged(ours, of_parts([statistics.mean(forward) > statistics.mean(backward), more > len(pairs) / 2]))


def dominant_stage(pairs: Sequence[Row]) -> Judged:
    """Finding 2."""
    forward, backward = ([_na_share(row, direction) for row in pairs] for direction in ("forward", "backward"))
    ours = (
        f"{statistics.mean(forward):.1%} of forward and {statistics.mean(backward):.1%} of backward (of FP, NA and SF);"
        f" most on {sum(share > 0.5 for share in forward)} and {sum(share > 0.5 for share in backward)} of"
        f" {len(pairs)} pairs"
    )
    return Judged(ours, of_parts([statistics.mean(forward) > 0.5, statistics.mean(backward) > 0.5]))


def _na_share(row: Row, direction: str) -> float:
    return total(row, stage="NA", direction=direction) / sum(total(row, "seconds", name, direction) for name in STAGES)


def kernel_types(pairs: Sequence[Row]) -> Judged:
    """Finding 3."""
    cases = [(row, stage) for row in pairs for stage in STAGES]
    same = sum(_main_type(row, stage, "forward") == _main_type(row, stage, "backward") for row, stage in cases)
    ours = f"the main kernel type is the same in {same} of {len(cases)} (pair, stage) cases"
    return Judged(ours, of_share(same, len(cases)))


def _main_type(row: Row, stage: str, direction: str) -> str:
    found = [each for each in row["kernel_types"] if (each["stage"], each["direction"]) == (stage, direction)]
    return max(found, key=lambda each: each["seconds"])["type"] if found else ""


def additions(pairs: Sequence[Row]) -> Judged:
    """Finding 4."""
    sums = [row for row in pairs if not row["name"].startswith("han")]
    ratio = geometric_mean(
        [total(row, stage="SF", direction="backward") / total(row, stage="SF", direction="forward") for row in sums]
    )
    ours = f"SF backward takes {ratio:.2f}x SF forward in R-GCN and R-GAT (activation and bias remain)"
    return Judged(ours, HOLDS if ratio < 0.5 else FAILS)


def _stage_row(row: Row, stage: str, direction: str) -> Mapping[str, Any]:
    return next(each for each in row["stages"] if (each["stage"], each["direction"]) == (stage, direction))


def bounds_forward(pairs: Sequence[Row]) -> Judged:
    """Finding 5."""
    (dblp,) = (row for row in pairs if row["name"] == "han dblp")
    low, high = _ridge(pairs)
    intensities = {stage: _stage_row(dblp, stage, "forward")["intensity"] for stage in STAGES}
    sides = {stage: _side(intensity, pairs) for stage, intensity in intensities.items()}
    ours = "HAN on DBLP: " + ", ".join(
        f"{stage} {intensities[stage]:.2f} FLOP/byte ({sides[stage]})" for stage in STAGES
    )
    ours += f"; the ridge, measured beside each pair, is at {low:.1f} to {high:.1f}"
    ours += "; FP multiplies sparse features, so it is no dense product"
    if {"memory", "compute"} <= set(sides.values()):
        return Judged(ours, HOLDS)
    return Judged(ours, FAILS if len(set(sides.values())) == 1 else PARTLY)


def bounds_backward(pairs: Sequence[Row]) -> Judged:
    """Finding 6."""
    cases = [
        [_side(_stage_row(row, stage, direction)["intensity"], pairs) for direction in ("forward", "backward")]
        for row in pairs
        for stage in STAGES
    ]
    same = sum(forward == backward for forward, backward in cases)
    return Judged(f"the bound is the same in {same} of {len(cases)} (pair, stage) cases", of_share(same, len(cases)))


def _ridge(pairs: Sequence[Row]) -> tuple[float, float]:
    """Where the roofline bends (FLOP/byte), lowest and highest of the pairs: both its ceilings are noisy."""
    ridges = [row["ceilings"]["matmul_flops_per_s"] / row["ceilings"]["copy_bytes_per_s"] for row in pairs]
    return min(ridges), max(ridges)


def _side(intensity: float, pairs: Sequence[Row]) -> str:
    """The bound that an arithmetic intensity has beside every pair, or that it lies where ridges were measured."""
    told = {bound(intensity, row["ceilings"]) for row in pairs}
    return told.pop() if len(told) == 1 else "at the ridge"


def traffic(pairs: Sequence[Row]) -> Judged:
    """Finding 7."""
    forward, backward = (
        statistics.mean(total(row, "bytes", direction=direction) / total(row, "bytes") for row in pairs)
        for direction in ("forward", "backward")
    )
    ours = f"backward {backward:.1%}, forward {forward:.1%} of bytes by the cost model"
    return Judged(ours, HOLDS if backward > forward else FAILS)


def traffic_stage(pairs: Sequence[Row]) -> Judged:
    """Finding 8."""

    def main(row: Row, direction: str) -> str:
        return max(STAGES, key=lambda stage: total(row, "bytes", stage, direction))

    same = sum(main(row, "forward") == main(row, "backward") for row in pairs)
    ours = f"the stage with most traffic is the same on {same} of {len(pairs)} pairs: " + ", ".join(
        f"{row['name']} {main(row, 'forward')}" for row in pairs
    )
    return Judged(ours, HOLDS if same == len(pairs) else PARTLY if same > len(pairs) / 2 else FAILS)


def memory(pairs: Sequence[Row]) -> Judged:
    """Finding 9."""
    (dblp,) = (row for row in pairs if row["name"] == "han dblp")
    shares = [_na_of_peak(row) for row in pairs]
    temporary = dblp["memory"]["training"]["temp_bytes"] / 2**20
    ours = (
        f"HAN on DBLP {_memory_ratio(dblp):.2f}x inference, NA {_na_of_peak(dblp):.1%} of live temporaries at the peak,"
        f" {temporary:,.0f} MiB of them in training; all pairs"
        f" {geometric_mean([_memory_ratio(row) for row in pairs]):.2f}x and {statistics.mean(shares):.1%}"
    )
    return Judged(ours, of_parts([all(_memory_ratio(row) > 1 for row in pairs), statistics.mean(shares) > 0.5]))


def _memory_ratio(row: Row) -> float:
    return float(row["memory"]["training"]["total_bytes"] / row["memory"]["inference"]["total_bytes"])


def _na_of_peak(row: Row) -> float:
    peak = row["memory"]["training"]["peak_by_stage"]
    return sum(size for key, size in peak.items() if key.startswith("NA.")) / sum(peak.values())


def _stage_ratios(first: Row, last: Row) -> dict[str, float]:
    return {stage: total(last, stage=stage) / total(first, stage=stage) for stage in STAGES}


def length(rows: Sequence[Row]) -> Judged:
    """Finding 13."""
    ratios = _stage_ratios(rows[0], rows[-1])
    ours = f"length {min(LENGTHS)} to {max(LENGTHS)}: " + ", ".join(f"{key} {x:.2f}x" for key, x in ratios.items())
    ours += f"; edges {rows[-1]['edges'] / rows[0]['edges']:.1f}x"
    return Judged(ours, of_parts([ratios["NA"] > 1.5, ratios["FP"] < 1.5 and ratios["SF"] < 1.5]))


def number(rows: Sequence[Row]) -> Judged:
    """Finding 14."""
    ratios = _stage_ratios(rows[0], rows[-1])
    ours = f"1 to {len(NUMBERS)} metapaths: " + ", ".join(f"{key} {x:.2f}x" for key, x in ratios.items())
    return Judged(ours, of_parts([min(ratios.values()) > 1.1, ratios["NA"] == max(ratios.values())]))


def semantic_graph_build(pairs: Sequence[Row]) -> Judged:
    """Section 6.1.1, of the models over metapaths."""
    han = [row for row in pairs if row["name"].startswith("han")]
    ratios = [row["sgb_s"] / row["step_s"] for row in han]
    ours = f"{geometric_mean(ratios):.2f}x (" + ", ".join(
        f"{row['name']} {ratio:.1f}x" for row, ratio in zip(han, ratios, strict=True)
    )
    return Judged(ours + ")", HOLDS if geometric_mean(ratios) > 1 else FAILS)


def fusion_overhead(pairs: Sequence[Row]) -> Judged:
    """Section 6.1.3."""
    share = statistics.mean(total(row, stage="SF") / total(row) for row in pairs)
    return Judged(f"{share:.1%} of op time on average", HOLDS if share > 0.05 else FAILS)


def against_homogeneous(homogeneous: Sequence[Row], all_rows: Sequence[Row]) -> Judged:
    """Section 6.2.1.

    Args:
        homogeneous: runs of GCN and GAT.
        all_rows: with those of the other models.
    """
    pairs = [row for row in all_rows if row["group"] == "pairs"]

    def share(rows: Sequence[Row], stage: str) -> float:
        return statistics.mean(total(row, stage=stage) / total(row) for row in rows)

    def shares(rows: Sequence[Row]) -> str:
        return ", ".join(f"{stage} {share(rows, stage):.1%}" for stage in STAGES)

    gcn, gat = ([row for row in homogeneous if row["name"].startswith(name)] for name in ("gcn", "gat"))
    ours = f"shares of op time: HGNNs {shares(pairs)}; GCN {shares(gcn)}; GAT {shares(gat)}"
    return Judged(ours, HOLDS if share(pairs, "NA") > share(homogeneous, "NA") else FAILS)
