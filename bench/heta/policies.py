"""What each cache policy leaves of the cost of misses, and which rows it has, over the budget, on a recipe's own epoch.

All of it is counted, and none of it timed; what a byte costs is as stated, or measured on this machine. LRU starts
empty, so that all policies are compared on the second half of the epoch, whose visits the planned ones know.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jhgnn.distributed.cache.baselines import heta_shares, hotness_alone, uniform_shares
from jhgnn.distributed.cache.knapsack import knapsack
from jhgnn.distributed.cache.lru import lru_hits
from jhgnn.distributed.cache.rows import Rows, TypeRows, total_bytes
from jhgnn.distributed.cache.visits import count_visits, epoch_accesses
from jhgnn.distributed.meta.work import WorkCosts, shape_of
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.training.sampled import Sampled

PLANNED = {
    "knapsack": knapsack,
    "Heta's shares": heta_shares,
    "hotness alone": hotness_alone,
    "uniform": uniform_shares,
}
LRU = "LRU"
POLICIES = (*PLANNED, LRU)
BUDGETS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of all rows and moments."""
KINDS = ("fixed", "learnable")


def compare(execution: Sampled, costs: WorkCosts, steps: int | None) -> dict[str, Any]:
    """Over the budget: for each policy the cost of misses left, the rows that it had, both by kind, and space used."""
    problem, sampling, config = execution.problem, execution.sampling, execution.problem.config
    sampler = HostSampler(sampling.sampled, sampling.plan, config.sampling.threads)
    batches = EpochBatches(problem.task.training_examples(), config.sampling.batch_size, config.run.seed)
    accesses = list(epoch_accesses(sampler, batches, config.run.seed, 0, steps))
    half = len(accesses) // 2
    shape = shape_of(problem.graph, config.model.hidden)
    rows: Rows = {
        name: TypeRows(
            counts.astype(np.float64),
            shape.row_bytes(name),
            costs.byte_s if name in shape.feature_widths else costs.learnable_byte_s,
        )
        for name, counts in count_visits(accesses[half:], problem.graph.num_nodes).items()
    }
    kinds = {kind: [name for name in rows if (name in shape.feature_widths) == (kind == "fixed")] for kind in KINDS}
    total = total_bytes(rows)
    by_lru = lru_hits(rows, accesses, [int(share * total) for share in BUDGETS], half)
    entries = []
    for number, share in enumerate(BUDGETS):
        budget = int(share * total)
        for policy in POLICIES:
            used = None
            if policy == LRU:
                hits = {name: float(own[number]) for name, own in by_lru.items()}
            else:
                admitted = PLANNED[policy](rows, budget)
                hits = {name: float(rows[name].visits[ids].sum()) for name, ids in admitted.ids.items()}
                used = admitted.used_bytes(rows) / budget
            entries.append({"budget": share, "policy": policy, **_left(rows, hits, kinds), "used": used})
    return {"rows_bytes": total, "steps": len(accesses) - half, "costs": vars(costs), "entries": entries}


def _left(rows: Rows, hits: Mapping[str, float], kinds: Mapping[str, list[str]]) -> dict[str, Any]:
    """The cost left over all there is without a cache, and the share of visits that hit; of all, and by kind."""

    def cost(names: list[str], visits: Mapping[str, float]) -> float:
        return sum(visits.get(name, 0.0) * rows[name].row_bytes * rows[name].byte_s for name in names)

    visits = {name: float(each.visits.sum()) for name, each in rows.items()}
    everything = cost(list(rows), visits)
    missed = {name: visits[name] - hits.get(name, 0.0) for name in rows}
    read = {kind: sum(visits[name] for name in names) for kind, names in kinds.items()}
    had = {kind: sum(hits.get(name, 0.0) for name in names) for kind, names in kinds.items()}
    return {
        "cost_left": cost(list(rows), missed) / everything,
        "cost_left_by_kind": {kind: cost(names, missed) / everything for kind, names in kinds.items()},
        "hit_rate": {kind: had[kind] / read[kind] if read[kind] else None for kind in KINDS},
    }


HEADINGS = ["budget", *POLICIES, "used by Heta's"]


def table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """For each budget, and each policy: the cost left (of it learnable rows'), and hits of fixed and learnable rows."""
    found: dict[float, list[str]] = {}
    used = {}
    for entry in result["entries"]:
        rates = " / ".join("-" if rate is None else f"{100 * rate:.0f}" for rate in entry["hit_rate"].values())
        cell = f"{entry['cost_left']:.3f} ({entry['cost_left_by_kind']['learnable']:.3f}); {rates} %"
        found.setdefault(entry["budget"], []).append(cell)
        if entry["policy"] == "Heta's shares":
            used[entry["budget"]] = f"{entry['used']:.2f}"
    return HEADINGS, [[f"{100 * budget:g} %", *cells, used[budget]] for budget, cells in found.items()]
