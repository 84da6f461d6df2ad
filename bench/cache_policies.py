"""How much of the cost of misses each cache policy leaves, over the budget, on a recipe's own epoch.

`python -m bench.cache_policies`: draws the first epoch of a recipe, counts the visits of every row, and prints for each
budget the residual cost of misses under the knapsack optimum, Heta's shares, hotness alone, uniform shares and LRU, and
the share of the budget that is used. All of it is counted, and none of it timed; what a byte costs is as stated, or
measured here with `--costs measured`. LRU starts empty, so that all policies are compared on the second half of the
epoch, which the planned ones know.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jhgnn.config.fan_out import parse as parse_fan_out
from jhgnn.config.recipe import load_recipe
from jhgnn.data import load
from jhgnn.distributed.cache.baselines import heta_shares, hotness_alone, uniform_shares
from jhgnn.distributed.cache.knapsack import knapsack
from jhgnn.distributed.cache.lru import lru_saved_s
from jhgnn.distributed.cache.rows import Rows, TypeRows, miss_cost_s, total_bytes
from jhgnn.distributed.cache.visits import count_visits, epoch_accesses
from jhgnn.distributed.meta.work import WorkCosts, measured_costs, shape_of
from jhgnn.runtime.console import Say
from jhgnn.runtime.files import write_json
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan

POLICIES = {"knapsack": knapsack, "heta": heta_shares, "hotness": hotness_alone, "uniform": uniform_shares}
SHARES = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cache_policies", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/rgcn_mag.toml", help="recipe with mini-batches")
    parser.add_argument("--scale", type=float, default=1.0, help="of the recipe's synthetic graph")
    parser.add_argument("--steps", type=int, default=None, help="of the epoch; default all")
    parser.add_argument("--costs", choices=("stated", "measured"), default="stated")
    parser.add_argument("--out", help="JSON file to write the table to")
    options = parser.parse_args(arguments)
    config = load_recipe(options.config)
    graph = load("synthetic", config.data.preset, scale=options.scale, seed=config.data.seed)
    graph = graph.with_reverse_relations() if config.data.reverse_relations else graph
    plan = fan_out_plan(graph, parse_fan_out(config.sampling.fan_out, "sampling.fan_out"), config.model.layers)
    sampler = HostSampler(graph, plan, config.sampling.threads)
    batches = EpochBatches(graph.splits["train"], config.sampling.batch_size, config.run.seed)
    accesses = list(epoch_accesses(sampler, batches, config.run.seed, 0, options.steps))
    half = len(accesses) // 2
    visits = count_visits(accesses[half:], graph.num_nodes)
    shape, costs = shape_of(graph, config.model.hidden), WorkCosts()
    if options.costs == "measured":
        costs = measured_costs(shape, lambda turn: 1)
    rows: Rows = {
        name: TypeRows(
            counts.astype(np.float64),
            shape.row_bytes(name),
            costs.byte_s if name in shape.feature_widths else costs.learnable_byte_s,
        )
        for name, counts in visits.items()
    }
    total, cost = total_bytes(rows), miss_cost_s(rows)
    budgets = [int(share * total) for share in SHARES]
    lru = lru_saved_s(rows, accesses, budgets, half)
    table, shown = [], []
    for share, budget, lru_s in zip(SHARES, budgets, lru, strict=True):
        admissions = {name: policy(rows, budget) for name, policy in POLICIES.items()}
        left = {name: 1 - admission.saved_s(rows) / cost for name, admission in admissions.items()}
        left["lru"] = 1 - lru_s / cost
        used = {name: admission.used_bytes(rows) / budget for name, admission in admissions.items()}
        table.append({"budget": share, "bytes": budget, "residual_cost": left, "used": used})
        shown.append(
            [f"{100 * share:g} %", *(f"{left[name]:.3f}" for name in (*POLICIES, "lru")), f"{used['heta']:.2f}"]
        )
    title = (
        f"cost of misses left, of {len(accesses) - half} steps on {graph.name}; all rows take {total / 2**20:.0f} MiB"
    )
    Say().table(title, ["budget", *POLICIES, "lru", "used by heta"], shown)
    if options.out:
        write_json(Path(options.out), {"title": title, "config": options.config, "costs": vars(costs), "rows": table})
    return 0


if __name__ == "__main__":
    sys.exit(main())
