"""Where to sample: on the device inside the step, or on the host ahead of it."""

from typing import Literal

import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.plan import SamplingPlan

Side = Literal["device", "host"]
DEVICE_SHARE = 0.25  # of device memory that edges may take; features, parameters and activations need the rest


def edge_bytes(graph: HeteroGraph, plan: SamplingPlan) -> int:
    """Bytes of the int32 in-edges that a plan reads, and of the slot per vertex that deduplication keeps."""
    relations = {relation for draw in plan.draws for relation in draw.steps}
    edges = sum(graph.edges[relation].num_edges + graph.edges[relation].num_targets + 1 for relation in relations)
    return np.dtype(np.int32).itemsize * (edges + sum(count for _, count in plan.num_nodes.items))


def choose_side(
    graph: HeteroGraph,
    plan: SamplingPlan,
    platform: str,
    memory_bytes: int | None = None,
    feature_bytes: int = 0,
) -> tuple[Side, str]:
    """The side that `auto` samples on, and why, from static facts.

    Args:
        platform: of the devices that train: `cpu`, `gpu` or `tpu`.
        memory_bytes: of one device; None where it is not known.
        feature_bytes: of the features of edges that are sampled with them.
    """
    if platform == "cpu":
        # bench/sampling.py: the jnp sampler takes several times as long as the native one on the same cores.
        return "host", "the devices are CPUs, where the native sampler is faster than the compiled one"
    largest = max((graph.edges[relation].num_edges for draw in plan.draws for relation in draw.steps), default=0)
    if largest >= 2**31:
        return "host", f"a relation has {largest:,} edges, and the device sampler indexes with int32"
    need = edge_bytes(graph, plan) + feature_bytes
    if memory_bytes is None:
        return "host", f"the edges take {need / 2**30:.2f} GiB and the memory of the device is not known"
    have = f"{need / 2**30:.2f} GiB of the device's {memory_bytes / 2**30:.2f} GiB"
    if need > DEVICE_SHARE * memory_bytes:
        return "host", f"the edges would take {have}, over {DEVICE_SHARE:.0%}"
    return "device", f"the edges take {have}, within {DEVICE_SHARE:.0%}: no host work at all"
