"""The same neighbours drawn by the host and by the device (finding 16): milliseconds a batch."""

import os
from collections.abc import Iterator
from typing import Any

from bench.gpu.measure.timing import measuring, preparing
from bench.gpu.measure.worker import Run
from bench.sampling import device_runner, host_runner, measure
from jhgnn.data import load
from jhgnn.sampling.capacities import presampled
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan

FAN_OUTS = ([25, 20], [10, 10])
BATCH_SIZE, BATCHES = 1024, 8


def rows(run: Run) -> Iterator[dict[str, Any]]:
    """A row a fan-out and side; the host has as many threads as cores, up to 8, and its arrays are not moved."""
    graph = load("synthetic", "mag", scale=run.sizes.mag_scale, progress=False)
    target, threads = graph.target or "", min(8, len(os.sched_getaffinity(0)))
    for fan_out in FAN_OUTS:
        plan = fan_out_plan(graph, fan_out, len(fan_out))
        epoch = EpochBatches(graph.splits["train"], run.sizes.batch_size or BATCH_SIZE, seed=0)
        order, count = epoch.order(0), min(BATCHES, epoch.steps_per_epoch)
        batches = [epoch.batch(order, step) for step in range(count)]
        buckets = presampled(HostSampler(graph, plan, 1), 1, [{target: batch} for batch in batches])
        with preparing(run.folder):
            runners = {
                "host": host_runner(graph, plan, threads, buckets),
                "device": device_runner(graph, plan, buckets),
            }
        shared = {"kind": "sampling", "fan_out": fan_out, "batch_size": len(batches[0]), "threads": threads}
        with measuring(run.folder):
            timed = measure(runners, batches, run.sizes.samples)
        for side, found in timed.items():
            yield shared | {"sampling": side} | found
