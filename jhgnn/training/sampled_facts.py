"""What a run on mini-batches says of itself: on the terminal, in its summary and in its profile."""

from typing import TYPE_CHECKING, Any

from jhgnn.stores.cached import CachedRows
from jhgnn.training.execution import num_bytes

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled


def describe(execution: "Sampled") -> list[str]:
    """Lines for the terminal: where it samples, where rows are, which vertices are hot."""
    side, features = execution.sampling.side, execution.sampling.features_on_device
    where = "on the device" if features[0] else "on the host"
    lines = [f"sampling side: {side[0]} ({side[1]})", f"features: {where} ({features[1]})"]
    if isinstance(execution.features, CachedRows):
        lines.append(f"feature cache: {execution.features.describe()}")
    if execution.maps_tables:
        lines.append(f"embedding tables: {execution.mapped_shapes.describe(execution.records)}")
    if execution.parts is not None and execution.config.distributed.strategy != "raf":
        made = f"{execution.mesh.size} by {execution.parts.placement.method}"
        strategy, size = execution.config.distributed.strategy, execution.shares.size
        lines.append(f"parts: {made}; strategy {strategy}, shares of at most {size} targets")
    lines += [line for line in (execution.share_chosen, execution.steps_chosen) if line]
    if execution.sampling.hot is not None:
        lines.append(f"hot vertices: {execution.sampling.hot.describe()}, in {execution.hot_s:.1f} s")
    if execution.sampling.reuse is not None:
        lines.append(f"hot vertices: {execution.sampling.reuse.describe()}, in {execution.hot_s:.1f} s")
    return lines


def facts(execution: "Sampled") -> dict[str, Any]:
    """For `summary.json`: the cache of features and the hot vertices; empty where there are neither."""
    facts: dict[str, Any] = {}
    if isinstance(execution.features, CachedRows):
        facts["feature_cache"] = execution.features.facts()
    if (hot := execution.sampling.hot) is not None:
        facts |= {
            "hot_vertices": sum(map(len, hot.ids.values())),
            "hot_means": hot.num_rows,
            "hot_bytes": execution.sampling.features.nbytes - execution.plain.features.nbytes,
            "hot_s": execution.hot_s,
        }
    if (reuse := execution.sampling.reuse) is not None:
        facts |= {
            "hot_vertices": reuse.num_vertices,
            "hot_bytes": num_bytes(execution.layout.resident.kept),
            "hot_s": execution.hot_s,
        }
    return facts


def profile_facts(execution: "Sampled") -> dict[str, Any]:
    """For a profile: what a batch is and how it is drawn."""
    settings, last = execution.config.sampling, execution.layout.buckets.capacities[0][-1]
    return {
        "sampling": {
            "batch_size": settings.batch_size,
            "fan_out": settings.fan_out,
            "walks": settings.walks,
            "side": execution.sampling.side[0],
            "features_on_device": execution.sampling.features_on_device[0],
            "threads": settings.threads,
            "prefetch_threads": settings.prefetch_threads,
            "steps_per_epoch": execution.steps_per_epoch,
            "slots": sum(count for _, count in last.items),
        }
    }
