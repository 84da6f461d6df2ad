"""Findings that need a GPU's counters, or several GPUs, as far as models tell of them; their verdicts say "modelled".

Reuse distances (`python -m bench.locality model`) and programs compiled for GPUs (`python -m bench.several_gpus`) are
what they are modelled from. Nothing of it was measured on a GPU.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.paper_study.verdicts import Judged
from bench.record import RESULTS

LOCALITY, SEVERAL = RESULTS / "locality-modelled.json", RESULTS / "several-gpus.json"
HOLDS, FAILS, PARTLY = "modelled: holds", "modelled: does not hold", "modelled: holds in part"

Row = Mapping[str, Any]


def modelled_findings() -> dict[str, Judged]:
    """By number; only those whose results are stored."""
    found: dict[str, Judged] = {}
    if LOCALITY.exists():
        found["10"] = locality(_rows(LOCALITY))
    if SEVERAL.exists():
        rows = _rows(SEVERAL)
        parts: dict[str, Callable[[Sequence[Row]], Judged | None]] = {
            "16": device_sampling,
            "19": scaling,
            "20": sampling_share,
            "22": bandwidth,
        }
        found |= {number: told for number, make in parts.items() if (told := make(rows)) is not None}
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def locality(rows: Sequence[Row]) -> Judged:
    """Finding 10, of the gathers of neighbor aggregation alone: A100's second level, which begins empty."""
    rates: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["group"] == "passes":
            rates.setdefault(row["what"], {}).setdefault(row["graph"], {})[row["pass"]] = row["from empty"]["2048 B"][
                "a100 L2"
            ]
    told, lower, count = [], 0, 0
    for what, graphs in rates.items():
        forward, backward = (
            statistics.mean(each[name] for each in graphs.values()) for name in ("forward", "backward")
        )
        own = sum(each["backward"] < each["forward"] - 5e-4 for each in graphs.values())
        told.append(f"{what}s {forward:.1%} forward, {backward:.1%} backward, lower on {own} of {len(graphs)}")
        lower, count = lower + own, count + len(graphs)
    large = [row for row in rows if row["group"] == "large"]
    if large:
        by_pass = {
            name: statistics.mean(row["from empty"]["2048 B"]["a100 L2"] for row in large if row["pass"] == name)
            for name in ("forward", "backward")
        }
        told.append(f"MAG's relations {by_pass['forward']:.1%} and {by_pass['backward']:.1%}")
    verdict = HOLDS if lower > 0.8 * count else PARTLY if lower > 0.5 * count else FAILS
    ours = (
        "hit rates of NA's gathers in an A100's L2 from empty, 2 KiB a row, by reuse distances: "
        + "; ".join(told)
        + ". A metapath that returns the way it came gathers the same rows in both passes, and a relation and its"
        " reverse swap theirs: what the paper saw is not the gathers' order (`python -m bench.locality model`)"
    )
    return Judged(ours, verdict)


def _host(rows: Sequence[Row]) -> dict[str, dict[int, Row]]:
    """Recipe -> devices -> row, of those sampled on the host that have one device."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row["side"] == "host":
            found.setdefault(row["recipe"], {})[row["devices"]] = row
    return {recipe: each for recipe, each in found.items() if 1 in each}


def _name(recipe: str) -> str:
    return recipe.replace("_", " ")


def device_sampling(rows: Sequence[Row]) -> Judged | None:
    """Finding 16: what sampling adds to the device's program, against sampling on the host."""
    host = _host(rows)
    told, ratios = [], []
    for row in rows:
        if row["side"] == "device" and row["devices"] == 1 and row["recipe"] in host:
            base = host[row["recipe"]][1]
            added = max(row["device_s"] - base["device_s"], 1e-6)
            ratios.append(base["sample_s"] / added)
            told.append(
                f"{_name(row['recipe'])} {1e3 * base['sample_s']:.2f} ms on 2 cores (measured), {1e3 * added:.2f} ms"
                f" added to the A100's program: {ratios[-1]:.1f}x"
            )
    if not told:
        return None
    verdict = HOLDS if min(ratios) > 1 else PARTLY if max(ratios) > 1 else FAILS
    return Judged("; ".join(told) + " (`python -m bench.several_gpus`)", verdict)


def scaling(rows: Sequence[Row]) -> Judged | None:
    """Finding 19: a step on one device over that on several."""
    told, worst = [], []
    for recipe, each in _host(rows).items():
        gains = {n: each[1]["step_s"] / row["step_s"] for n, row in sorted(each.items()) if n > 1}
        if gains:
            told.append(f"{_name(recipe)} " + ", ".join(f"{gain:.2f}x on {n}" for n, gain in gains.items()))
            worst += [gain / n for n, gain in gains.items()]
    if not told:
        return None
    verdict = HOLDS if max(worst) < 0.95 else PARTLY if min(worst) < 0.95 else FAILS
    return Judged("; ".join(told) + "; sampled on the host, in turn, one batch divided over all", verdict)


def sampling_share(rows: Sequence[Row]) -> Judged | None:
    """Finding 20: the host's sampling in a step of several devices."""
    told, shares = [], []
    for recipe, each in _host(rows).items():
        own = {n: row["sample_s"] / row["step_s"] for n, row in sorted(each.items())}
        told.append(f"{_name(recipe)} " + ", ".join(f"{share:.0%} on {n}" for n, share in own.items()))
        shares += [share for n, share in own.items() if n > 1]
    if not shares:
        return None
    verdict = HOLDS if min(shares) > 0.5 else PARTLY if max(shares) > 0.5 else FAILS
    return Judged("; ".join(told), verdict)


def bandwidth(rows: Sequence[Row]) -> Judged | None:
    """Finding 22: what each device gets of PCIe and of NVLink."""
    told, lost = [], []
    for recipe, each in _host(rows).items():
        several = {n: row for n, row in sorted(each.items()) if n > 1}
        if not several:
            continue
        pcie = {n: row["pcie_bytes_per_s"] / each[1]["pcie_bytes_per_s"] - 1 for n, row in several.items()}
        link = {n: row["nvlink_bytes_per_s"] / 1e9 for n, row in several.items()}
        told.append(
            f"{_name(recipe)} PCIe " + ", ".join(f"{change:+.0%} on {n}" for n, change in pcie.items()) + "; NVLink "
            + ", ".join(f"{rate:.1f} GB/s on {n}" for n, rate in link.items())
        )  # fmt: skip
        lost += list(pcie.values())
    if not told:
        return None
    verdict = HOLDS if max(lost) < -0.02 else PARTLY if min(lost) < -0.02 else FAILS
    return Judged("; ".join(told), verdict)
