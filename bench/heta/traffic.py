"""Bytes and meetings of relations first, and of training over `data` on cut graphs, without and with caches."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.heta.moved import Moved, count
from bench.heta.ways import WHOLE, ByRelations, Way, by_relations, over_data
from jhgnn.distributed.adjacency import adjacency
from jhgnn.distributed.meta.work import WorkCosts, shape_of
from jhgnn.distributed.methods.metis import metis_assignment
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.nn.embeddings import with_tables
from jhgnn.runtime.console import Say
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.training.execution import num_bytes
from jhgnn.training.sampled import Sampled


def compare(
    graph: HeteroGraph,
    execution: Sampled,
    *,
    shards: Sequence[int],
    steps: int | None,
    cache_share: float,
    network_gbit: float,
    say: Say,
) -> dict[str, Any]:
    """Counts the first steps of the first epoch, or all of it; figures are of one step.

    Args:
        graph: as read, which relations first poses anew.
        shards: numbers of shards, and of parts.
        cache_share: bytes of each device's cache over those of all rows and moments.
        network_gbit: of the model of exchange.
    """
    problem, sampling = execution.problem, execution.sampling
    config, shape = problem.config, shape_of(problem.graph, problem.config.model.hidden)
    costs = dataclasses.replace(WorkCosts(), exchange_byte_s=8e-9 / network_gbit)
    weights = num_bytes(with_tables(execution.abstract_params, {}))
    all_rows = sum(size * shape.row_bytes(name) for name, size in problem.graph.num_nodes.items())
    epoch = EpochBatches(problem.task.training_examples(), config.sampling.batch_size, config.run.seed)
    order = epoch.order(0)
    whole = max(1, len(order) // epoch.batch_size)  # the rest of the targets makes no whole batch
    counted = whole if steps is None else min(steps, whole)
    batches = [(step, epoch.batch(order, step)) for step in range(counted)]
    joined = None
    try:
        joined = adjacency(problem.graph)
        metis_assignment(problem.graph, joined, 1)
    except InputError as error:
        joined = None
        say(f"without METIS: {error}")
    branches = sum(draw.target in problem.task.targets for draw in sampling.plan.draws_at(0))
    entries: list[dict[str, Any]] = []
    for number in shards:
        ways: dict[str, Way] = {
            **by_relations(graph, config, branches, number),
            **over_data(problem, sampling, number, joined),
        }
        for name, way in ways.items():
            found = count(way, shape, problem.graph.num_nodes, batches)
            plain = found.moved(weights, costs)
            cached = found.moved(weights, costs, int(cache_share * all_rows))
            sent = (plain.total + plain.weights) / counted / number
            model_s = sent * costs.exchange_byte_s + (way.meetings + 1) * costs.rendezvous_s
            entries.append(
                {
                    "shards": number,
                    "way": name,
                    "meetings": way.meetings,
                    "moved": _a_step(plain, counted),
                    "moved_with_caches": _a_step(cached, counted),
                    "permuted_compiled": way.permuted_bytes() if isinstance(way, ByRelations) else None,
                    "draws": (found.draws / counted).tolist(),
                    "flops": (found.flops / counted).tolist(),
                    "exchange_epoch_s_modelled": model_s * epoch.steps_per_epoch,
                }
            )
            say(f"{number} shards, {name}: {plain.total / counted / 2**20:.1f} MiB a step")
    return {
        "graph": problem.graph.name,
        "nodes": dict(problem.graph.num_nodes),
        "batch_size": config.sampling.batch_size,
        "fan_out": str(config.sampling.fan_out),
        "steps": counted,
        "steps_per_epoch": epoch.steps_per_epoch,
        "cache_bytes": int(cache_share * all_rows),
        "entries": entries,
    }


def _a_step(moved: Moved, steps: int) -> dict[str, Any]:
    found = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in dataclasses.asdict(moved).items()
    }
    return {
        name: value
        if name == "hits"
        else [each / steps for each in value]
        if isinstance(value, list)
        else value / steps
        for name, value in found.items()
    }


NETWORK = ("partials", "frontiers", "fixed_rows", "learnable_rows")
HEADINGS = [
    *("shards", "way", "partials", "frontiers", "fixed rows", "learnable rows"),
    *("frontiers and learnable rows, compiled", "times relations first", "without learnable rows"),
    *("exchange an epoch (model)",),
]


def table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """MiB a step between devices, without caches."""
    rows = []
    for entry in result["entries"]:
        moved, ours = entry["moved"], _of(result, entry["shards"], WHOLE)["moved"]
        sizes = [*(moved[name] for name in NETWORK), entry["permuted_compiled"]]
        fixed = [sum(each[name] for name in NETWORK[:-1]) for each in (moved, ours)]
        rows.append(
            [
                str(entry["shards"]),
                entry["way"],
                *("-" if size is None else f"{size / 2**20:.1f}" for size in sizes),
                f"{sent(moved) / sent(ours):.1f}",
                f"{fixed[0] / fixed[1]:.1f}",
                f"{entry['exchange_epoch_s_modelled']:.1f} s",
            ]
        )
    return HEADINGS, rows


CACHED_HEADINGS = [
    *("shards", "way", "GiB an epoch between devices", "with caches", "meetings an epoch"),
    *("GiB an epoch from hosts and back", "with caches", "rows that the caches had"),
]


def cached_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """GiB an epoch, between devices and between them and their hosts, without and with caches."""
    rows, steps = [], result["steps_per_epoch"]
    for entry in result["entries"]:
        both = [entry["moved"], entry["moved_with_caches"]]
        between = [sent(moved) * steps / 2**30 for moved in both]
        hosts = [sum((*moved["fixed_from_host"], *moved["learnable_from_host"])) * steps / 2**30 for moved in both]
        rows.append(
            [
                str(entry["shards"]),
                entry["way"],
                *(f"{value:.2f}" for value in between),
                f"{entry['meetings'] * steps:,}",
                *(f"{value:.1f}" for value in hosts),
                f"{100 * both[1]['hits']:.0f} %",
            ]
        )
    return CACHED_HEADINGS, rows


def sent(moved: Mapping[str, Any]) -> float:
    """Bytes between devices, without the gradients of weights."""
    return float(sum(moved[name] for name in NETWORK))


def _of(result: Mapping[str, Any], shards: int, way: str) -> Mapping[str, Any]:
    return next(entry for entry in result["entries"] if entry["shards"] == shards and entry["way"] == way)
