"""Rows that batches gather, and bytes that go to the device, by share of hot vertices: counted from the draws."""

import statistics
from typing import Any

import numpy as np

from bench.heta.ways import drawn, rows_of
from bench.neutronorch.problems import sampled
from jhgnn.sampling.temporal import TemporalSampler
from jhgnn.training.execution import num_bytes
from jhgnn.training.problem import Problem


def count(problem: Problem, shares: list[float], steps: int) -> list[dict[str, Any]]:
    """For each share: means over the first batches of distinct rows read, by what they are, and of bytes."""
    found = []
    for share in shares:
        execution = sampled(problem, share)
        sampling, batches, seed = execution.sampling, execution.batches(0), execution.config.run.seed
        order, layout = batches.order(0), execution.layout
        assert not isinstance(layout.sampler, TemporalSampler)
        tables = {name: table for name, table in sampling.features.tables.items() if isinstance(table, np.ndarray)}
        rows = []
        for step in range(min(steps, batches.steps_per_epoch)):
            seeds = execution.seeds_of(batches.batch(order, step), seed, step)
            ids = rows_of(drawn(layout.sampler, seeds, seed, step))
            bucket = layout.buckets.choose(sampling.plan, layout.sampler.count(seeds, seed, step))
            means = {name: int((own >= len(tables[name])).sum()) for name, own in ids.items() if name in tables}
            width = {name: table.itemsize * table.shape[1] for name, table in tables.items()}
            fixed = sum(len(own) for name, own in ids.items() if name in tables)
            rows.append(
                {
                    "features": fixed - sum(means.values()),
                    "means": sum(means.values()),
                    "learnable": sum(len(own) for name, own in ids.items() if name not in tables),
                    "gathered_bytes": sum(len(own) * width[name] for name, own in ids.items() if name in tables),
                    "device_bytes": num_bytes(execution.abstract_shard(bucket)),
                }
            )
        each = {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}
        each["all_rows"] = each["features"] + each["means"] + each["learnable"]
        found.append({"share": share, **each, **{k: v for k, v in execution.facts().items() if k != "hot_s"}})
        found[-1]["hot_s"] = execution.hot_s
    return found
