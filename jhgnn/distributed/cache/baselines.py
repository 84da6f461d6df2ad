"""Admissions to compare with: Heta's proportional shares, hotness alone, and uniform shares."""

import numpy as np

from jhgnn.distributed.cache.rows import Admission, Rows, check_budget


def heta_shares(rows: Rows, budget_bytes: int) -> Admission:
    """Gives each type a share of the budget by its visits x seconds a byte, and keeps its hottest rows.

    A type that is smaller than its share leaves the rest unused, as in Heta's code.

    Source: Heta (Zhong et al., PVLDB 18(9)), miss-penalty-aware cache.
    """
    check_budget(budget_bytes)
    weights = {node_type: float(each.visits.sum()) * each.byte_s for node_type, each in rows.items()}
    total = sum(weights.values())
    shares = {node_type: budget_bytes * weight / total if total else 0.0 for node_type, weight in weights.items()}
    return _hottest("heta", rows, budget_bytes, shares)


def uniform_shares(rows: Rows, budget_bytes: int) -> Admission:
    """Gives each type the same share of the budget, and keeps its hottest rows."""
    check_budget(budget_bytes)
    return _hottest("uniform", rows, budget_bytes, dict.fromkeys(rows, budget_bytes / max(1, len(rows))))


def hotness_alone(rows: Rows, budget_bytes: int) -> Admission:
    """Keeps the rows visited most, whatever a miss costs and however large they are, until one does not fit."""
    check_budget(budget_bytes)
    types = list(rows)
    visits = np.concatenate([rows[name].visits for name in types] or [np.zeros(0)])
    kind = np.repeat(np.arange(len(types)), [len(rows[name].visits) for name in types])
    ids = np.concatenate([np.arange(len(rows[name].visits)) for name in types] or [np.zeros(0, np.int64)])
    sizes = np.array([rows[name].row_bytes for name in types], np.int64)[kind]
    order = np.argsort(-visits, kind="stable")
    kept = order[: int(np.searchsorted(np.cumsum(sizes[order]), budget_bytes, side="right"))]
    admitted = {name: np.sort(ids[kept[kind[kept] == number]]) for number, name in enumerate(types)}
    return Admission("hotness", budget_bytes, admitted)


def _hottest(policy: str, rows: Rows, budget_bytes: int, shares: dict[str, float]) -> Admission:
    ids = {name: each.hottest(int(shares[name] // each.row_bytes)) for name, each in rows.items()}
    return Admission(policy, budget_bytes, ids)
