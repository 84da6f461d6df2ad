"""What the rows of a run come to: conformance, ratios to PyG, shares of a copy's rate, thresholds, findings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.gpu.measure.items import EPOCH_CASES

Row = Mapping[str, Any]

LEAST_OVER_PYG, LEAST_SHARE_OF_COPY = 5.0, 0.6
"""The goals: PyG's epochs over ours on each of the nine cases, and of a copy's rate for graphs beyond the cache."""


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """All of it; what was not measured is absent, and a goal that needs it is not met."""
    epochs = epoch_ratios(rows)
    shares = copy_shares(rows)
    sampling = sampling_ratios(rows)
    found: dict[str, Any] = {
        "conformance": conformance(rows),
        "epochs": epochs,
        "ops_share_of_copy": shares,
        "thresholds": thresholds(rows),
        "findings": {"16": {"host_over_device": sampling}} | _counters(rows),
    }
    least = [epochs[case]["pyg_over_ours"] for case in EPOCH_CASES if epochs.get(case, {}).get("pyg_over_ours")]
    best = {op: max(by.values()) for op, by in shares.items() if by}
    found["goals"] = {
        "epochs": {
            "wanted": LEAST_OVER_PYG,
            "least": min(least, default=None),
            "cases": len(least),
            "met": len(least) == len(EPOCH_CASES) and min(least) >= LEAST_OVER_PYG,
        },
        "share_of_copy": {
            "wanted": LEAST_SHARE_OF_COPY,
            "best": best,
            "met": len(best) == 4 and min(best.values()) >= LEAST_SHARE_OF_COPY,
        },
    }
    return found


def conformance(rows: Iterable[Row]) -> dict[str, Any]:
    """How many checks were made, and those that failed."""
    made = [row for row in rows if row.get("kind") == "conformance" and "ok" in row]
    names = ("op", "implementation", "takes", "graph", "heads", "width", "dtype")
    failed = [{key: row[key] for key in names} for row in made if not row["ok"]]
    return {"checks": len(made), "failed": failed}


def epoch_ratios(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """By case: the quickest of ours and of PyG's, in a row and waiting after each, and PyG's over ours, the lesser."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.get("kind") != "epoch" or "in_a_row" not in row:
            continue
        side = "pyg" if row["implementation"] == "pyg" else "ours"
        case = found.setdefault(row["case"], {})
        for way in ("in_a_row", "waiting"):
            best = case.setdefault(f"{side}_{way}", {"ms": float("inf")})
            if row[way]["ms"] < best["ms"]:
                best |= {"ms": row[way]["ms"], "by": row.get("variant") or row["implementation"]}
    for case in found.values():
        ratios = [
            case[f"pyg_{way}"]["ms"] / case[f"ours_{way}"]["ms"]
            for way in ("in_a_row", "waiting")
            if f"pyg_{way}" in case and f"ours_{way}" in case
        ]
        if ratios:
            case["pyg_over_ours"] = min(ratios)
    return found


def copy_shares(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Of graphs beyond the cache: op and pass -> implementation -> the share of a copy's rate."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        share = row.get("share_of_copy")
        if row.get("kind") == "op" and row.get("beyond_the_cache") and share:
            if row["implementation"] in ("cusparse", "pyg"):
                continue
            by = found.setdefault(f"{row['op']}, {row['pass']}", {})
            by[row["implementation"]] = max(share, by.get(row["implementation"], 0.0))
    return found


def as_ops(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows of ops as `bench.ops` has them, one for all implementations of a case, op and pass."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        if row.get("kind") == "op" and "ms" in row:
            shared = {key: row[key] for key in ("case", "op", "pass", "num_edges", "density")}
            made = found.setdefault((row["case"], row["op"], row["pass"]), shared | {"results": {}})
            made["results"][row["implementation"]] = {"ms": row["ms"]}
    return list(found.values())


def thresholds(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """By op and implementation: from which density a dense product is the quicker, as `bench.ops` derives it."""
    from bench.ops.thresholds import dense_from  # imports JAX, which is for the items' processes

    made, found = as_ops(rows), dict[str, dict[str, float]]()
    for op in ("neighbor_attention", "neighbor_mean"):
        for against in ("native", "bucketed", "segment"):
            density = dense_from(made, op, against)
            if density is not None:
                found.setdefault(op, {})[against] = density
    return found


def sampling_ratios(rows: Iterable[Row]) -> dict[str, float]:
    """By fan-out: milliseconds of a batch on the host over those on the device."""
    ms = {(str(row["fan_out"]), row["sampling"]): row["ms"] for row in rows if row.get("kind") == "sampling"}
    found = {}
    for fan_out, side in ms:
        if side == "host" and ms.get((fan_out, "device")):
            found[fan_out] = ms[fan_out, "host"] / ms[fan_out, "device"]
    return found


def _counters(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Findings 10 to 12 by pair."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        for number, figures in row.get("findings", {}).items():
            found.setdefault(number, {})[row["case"]] = figures
    return found
