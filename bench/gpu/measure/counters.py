"""Hardware counters of a training step by stage, read with Nsight Compute: findings 10 to 12 of the paper."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.gpu.measure.stages import keep, profiled
from bench.gpu.measure.timing import measuring
from bench.gpu.measure.worker import Run

FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer="
"""Kernels that tuning tries would be replayed as well, and not every version tells those of a command buffer apart."""
STAGES = ("FP", "NA", "SF")
DENSE_PRODUCT = re.compile(r"gemm|gemv|cutlass|xmma|dot", re.IGNORECASE)
MOST_KERNELS = 40


def rows(run: Run, case: str) -> Iterator[dict[str, Any]]:
    """One row: the profile by stage, with counters and what they say of the findings where `ncu` is."""
    has_ncu = shutil.which("ncu") is not None and not run.rehearsal
    folder = run.folder / "profiles" / f"{case}-counters"
    with measuring(run.folder):
        profile = profiled(run, case, folder, FLAGS if has_ncu else "", ["--ncu"] * has_ncu)
    keep(folder, run.kept / f"counters-{case}.tar.gz")
    row: dict[str, Any] = {"kind": "counters", "case": case, "step": profile["step"]}
    row["stages"] = [{key: each.get(key) for key in ("stage", "direction", "share")} for each in profile["stages"]]
    if not profile["ncu"]:
        why = "a rehearsal reads no counters" if run.rehearsal else "Nsight Compute's command `ncu` is not on PATH"
        yield row | {"skipped": why}
        return
    counters = dict(profile["ncu"])
    counters["kernels"] = counters["kernels"][:MOST_KERNELS]
    yield row | {"ncu": counters, "findings": findings(profile["ncu"])}


def findings(counters: Mapping[str, Any]) -> dict[str, Any]:
    """What the counters of one step say.

    `10`: the L2 hit rate forwards less that backwards, by stage. `11`: shares of stalls that wait for memory, of all
    kernels and of dense products alone. `12`: that share backwards over forwards.
    """
    stages = {(each["stage"], each["direction"]): each for each in counters["stages"]}
    hits = {}
    for stage in STAGES:
        forward, backward = ((stages.get((stage, way)) or {}).get("l2_hit_share") for way in ("forward", "backward"))
        if forward is not None and backward is not None:
            hits[stage] = forward - backward
    kernels = counters["kernels"]
    products = [each for each in kernels if DENSE_PRODUCT.search(each["kernel"])]
    by_direction = {
        direction: _stalls([each for each in counters["stages"] if each["direction"] == direction])
        for direction in ("forward", "backward")
    }
    before, after = by_direction["forward"], by_direction["backward"]
    return {
        "10": {"l2_hit_rate_forward_less_backward": hits},
        "11": {"memory_stall_share": _stalls(kernels), "of_dense_products": _stalls(products)},
        "12": {"backward_over_forward": after / before if before and after is not None else None},
    }


def _stalls(members: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of stalls that wait for memory, weighted by time; None where nothing tells."""
    told = [(each["memory_stall_share"], each["seconds"]) for each in members if each["memory_stall_share"] is not None]
    seconds = sum(weight for _, weight in told)
    return sum(share * weight for share, weight in told) / seconds if seconds else None
