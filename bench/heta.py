"""Bytes that relations first moves in an epoch, against data-parallel training on cut graphs.

`python -m bench.heta`: draws batches of a recipe's first epoch with the samplers of training, each shard's branches and
each part's own targets, and counts the distinct rows that each must read. Bytes are counted from the draws, over all
devices; none is timed. Seconds are of a model, `bytes a device / network + meetings x rendezvous`, and say so.

Relations first: the sum over `rel` in a ring, and of learnable rows those that a shard reads and another one owns, as
training places them: the row, and its gradient back. Where the planner's own plan cuts a branch deeper, it stands
beside that of whole branches; of a frontier each shard but the owner sends its sum, and gets the gradient back. Beside
that stands what the compiled update sends for both, from its collectives: requests, rows, sums and gradients, padded to
the capacities learnt before training. Data-parallel: each
device trains the targets that its part owns, and fetches what other parts own: fixed rows once, learnable ones with
their gradients back. The gradients of weights are summed in a ring in both, and stand apart. `--page` writes the table
into `docs/distributed.md`.
"""

import argparse
import dataclasses
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bench.pages import write_between
from bench.record import RESULTS, ROOT, commit, store
from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe
from jhgnn.distributed.adjacency import Adjacency
from jhgnn.distributed.adjacency import adjacency as joined
from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.meta.plan import MetaPlan, write_plan
from jhgnn.distributed.meta.planner import plan_shards
from jhgnn.distributed.meta.request import request_of
from jhgnn.distributed.meta.work import FLOAT, WorkCosts
from jhgnn.distributed.methods.metis import metis_assignment
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.models import find
from jhgnn.nn.embeddings import with_tables
from jhgnn.profiling.hlo import parse
from jhgnn.runtime.console import Say
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.reuse import TurnSampler
from jhgnn.training.execution import num_bytes
from jhgnn.training.frontier_meeting import Frontier
from jhgnn.training.problem import Problem, pose, read_graph
from jhgnn.training.raf import RelationsFirst
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_choices import Sampling

Rows = Mapping[str, np.ndarray]
WHOLE = "relations first"


@dataclasses.dataclass
class Moved:
    """Bytes that all devices send in the steps counted, by what they are, and meetings a step.

    `permuted_compiled` are frontiers and learnable rows of relations first with requests and padding.
    """

    meetings: int
    partials: float = 0.0
    frontiers: float = 0.0
    fixed_rows: float = 0.0
    learnable_rows: float = 0.0
    weights: float = 0.0
    permuted_compiled: float | None = None

    @property
    def total(self) -> float:
        """Without the gradients of weights."""
        return self.partials + self.frontiers + self.fixed_rows + self.learnable_rows


def input_rows(sampler: HostSampler | TurnSampler, seeds: Rows, seed: int, step: int) -> dict[str, np.ndarray]:
    """The distinct vertices of each type that a batch reads, its targets included."""
    slots = np.cumsum(sampler.count(seeds, seed, step), axis=0)
    types = sampler.plan.node_types
    exact = tuple(FrozenCounts.of(dict(zip(types, map(int, row), strict=True))) for row in slots)
    blocks, _ = sampler.sample(seeds, seed, step, fixed(exact))
    return {name: ids[ids >= 0] for name, ids in blocks.nodes.items()}


def ring(members: int, size: float) -> float:
    """Bytes that all members of a ring send to sum `size` bytes."""
    return 2.0 * (members - 1) * size


def divided(graph: HeteroGraph, config: Config, branches: int, shards: int) -> dict[str, RelationsFirst]:
    """Training by `shards`: branches dealt out, or by a plan that divides targets where there are fewer branches; and
    by the planner's own plan, where it cuts a branch deeper.
    """
    config = _distributed(config, strategy="raf", relation_shards=shards, devices=shards)
    model = find(config.model.name)
    request = request_of(graph, config, (), over=model.over, reads_receivers=model.reads_receivers(config.model))

    def planned(*, whole_branches: bool) -> MetaPlan:
        what = (request.tree, request.counts, request.shape, request.costs, shards)
        return plan_shards(*what, whole_branches=whole_branches)

    def trained(plan: MetaPlan) -> RelationsFirst:
        with tempfile.TemporaryDirectory(prefix="jhgnn-heta-") as folder:
            write_plan(plan, path := Path(folder) / "plan.json")
            return RelationsFirst(pose(graph, _distributed(config, plan=str(path))))

    whole = shards <= branches
    found = {WHOLE: RelationsFirst(pose(graph, config)) if whole else trained(planned(whole_branches=True))}
    own = planned(whole_branches=False)
    if any(piece.is_cut(own.tree) for pieces in own.shards for piece in pieces):
        found["relations first, cut deeper"] = trained(own)
    return found


def relations_first(execution: RelationsFirst, batches: Sequence[tuple[int, np.ndarray]], weights: int) -> Moved:
    """Of shards that share one place on `data`. What two pieces of a shard read of another one is sent twice."""
    problem, shards, parts = execution.problem, execution.shards, execution.parts
    (target,) = problem.task.targets
    hidden, seed = problem.config.model.hidden, problem.config.run.seed
    at_frontiers = execution.frontier_meetings()
    owners = {frontier: owner for meeting in at_frontiers for frontier, owner in meeting.owners.items()}
    moved = Moved(meetings=(1 if problem.model.over == "relations" else 2) + 2 * len(at_frontiers))
    for step, batch in batches:
        moved.partials += ring(len(shards), len(batch) * hidden * FLOAT)
        moved.weights += ring(len(shards), weights)
        for number, (samplers, shard) in enumerate(zip(execution.rel_source.samplers, shards, strict=True)):
            summed: dict[Frontier, int] = {}
            for sampler, piece in zip(samplers, shard.pieces, strict=True):
                if piece.into and owners[piece.into] != number:
                    slots = np.cumsum(sampler.count(piece.seeds({target: batch}), seed, step), axis=0)
                    summed[piece.into] = int(slots[piece.own.hop, sampler.plan.node_types.index(piece.own.node_type)])
                for name, ids in input_rows(sampler, piece.seeds({target: batch}), seed, step).items():
                    if parts is not None and name in parts.placement.homes and name in piece.own.reads:
                        remote = int((parts.placement.places(name, ids) != number).sum())
                        moved.learnable_rows += remote * hidden * FLOAT * 2
            moved.frontiers += sum(summed.values()) * hidden * FLOAT * 2
    moved.permuted_compiled = float(permuted_bytes(execution) * len(batches))
    return moved


def permuted_bytes(execution: RelationsFirst) -> int:
    """Bytes that all devices send in the compiled update's permutations, by which frontiers and learnable rows go."""
    text = execution.lower_update().compile().as_text()
    assert text is not None
    module = parse(text)
    found = 0
    for computation in module.executed.values():
        for each in computation.instructions.values():
            if each.opcode == "collective-permute":
                pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)+)\}", each.attributes)
                assert pairs is not None
                found += each.num_bytes * pairs.group(1).count("{")
    return found


def data_parallel(
    problem: Problem,
    sampling: Sampling,
    batches: Sequence[tuple[int, np.ndarray]],
    weights: int,
    cut: Assignment,
) -> Moved:
    """Of parts that train the targets they own."""
    (target,) = problem.task.targets
    sampler = HostSampler(sampling.sampled, sampling.plan, problem.config.sampling.threads)
    moved = Moved(meetings=1)
    hidden, features = problem.config.model.hidden, problem.graph.features
    for step, batch in batches:
        moved.weights += ring(cut.num_parts, weights)
        for part in range(cut.num_parts):
            own = batch[cut.parts[target][batch] == part]
            for name, ids in input_rows(sampler, {target: own}, problem.config.run.seed, step).items():
                remote = int((cut.parts[name][ids] != part).sum())
                if name in features:
                    moved.fixed_rows += remote * features[name].shape[1] * FLOAT
                else:
                    moved.learnable_rows += remote * hidden * FLOAT * 2
    return moved


def cuts_of(problem: Problem, parts: int, adjacency: Adjacency | None) -> dict[str, Assignment]:
    found = {"random": random_assignment(problem.graph, parts)}
    if adjacency is not None:
        found["metis"] = metis_assignment(problem.graph, adjacency, parts)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.heta", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/rgcn_mag.toml", help="recipe with mini-batches")
    parser.add_argument("--scale", type=float, default=1.0, help="of the recipe's synthetic graph")
    parser.add_argument("--steps", type=int, default=8, help="batches of the epoch that are counted")
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--network-gbit", type=float, default=10.0, help="of the model of seconds")
    parser.add_argument("--out", type=Path, default=RESULTS / "heta.json")
    parser.add_argument("--page", action="store_true", help="write the table into docs/distributed.md")
    options = parser.parse_args(arguments)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(options.shards))
    config = load_recipe(options.config)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, format="synthetic", scale=options.scale))
    graph = read_graph(config)
    execution = Sampled(pose(graph, _distributed(config, devices=1)))
    problem, sampling = execution.problem, execution.sampling
    weights = num_bytes(with_tables(execution.abstract_params, {}))
    epoch = EpochBatches(problem.task.training_examples(), config.sampling.batch_size, config.run.seed)
    order = epoch.order(0)
    steps = min(options.steps, max(1, epoch.steps_per_epoch - 1))  # whole batches
    batches = [(step, epoch.batch(order, step)) for step in range(steps)]
    adjacency = None
    try:
        adjacency = joined(problem.graph)
        metis_assignment(problem.graph, adjacency, 1)
    except InputError as error:
        Say()(f"without METIS: {error}")
    branches = sum(draw.target in problem.task.targets for draw in sampling.plan.draws_at(0))
    entries: list[dict[str, Any]] = []
    for shards in options.shards:
        ways = {
            name: relations_first(own, batches, weights)
            for name, own in divided(graph, config, branches, shards).items()
        }
        for name, cut in cuts_of(problem, shards, adjacency).items():
            ways[f"data, {name}"] = data_parallel(problem, sampling, batches, weights, cut)
        ours = ways[WHOLE]
        for name, moved in ways.items():
            sent = (moved.total + moved.weights) / steps / shards
            model_s = sent / (options.network_gbit * 1e9 / 8) + (moved.meetings + 1) * WorkCosts().rendezvous_s
            rest = (moved.total - moved.learnable_rows) / (ours.total - ours.learnable_rows)
            own = {
                key: None if value is None else value / steps
                for key, value in dataclasses.asdict(moved).items()
                if key != "meetings"
            }
            entries.append(
                {"shards": shards, "way": name, "bytes_a_step": own, "meetings": moved.meetings,
                 "epoch_bytes": moved.total / steps * epoch.steps_per_epoch,
                 "times_relations_first": moved.total / ours.total,
                 "times_without_learnable_rows": rest,
                 "exchange_epoch_s_modelled": model_s * epoch.steps_per_epoch}
            )  # fmt: skip
    command = f"python -m bench.heta --config {options.config} --scale {options.scale} --steps {steps}"
    store(
        options.out,
        {"command": command, "commit": commit(), "graph": problem.graph.name, "nodes": dict(problem.graph.num_nodes),
         "batch_size": config.sampling.batch_size, "fan_out": str(config.sampling.fan_out), "entries": entries},
    )  # fmt: skip
    rows = [_shown(each) for each in entries]
    Say().table(f"MiB a step that all devices send, {steps} steps of {problem.graph.name}", HEADINGS, rows)
    if options.page:
        lines = [f"| {' | '.join(each)} |" for each in (HEADINGS, ["---"] * len(HEADINGS), *rows)]
        about = f"By `{command}` (`bench/results/heta.json`)."
        write_between(
            ROOT / "docs" / "distributed.md", "<!-- heta -->", "<!-- /heta -->", "\n".join([*lines, "", about])
        )
    return 0


HEADINGS = [
    *(
        "shards",
        "way",
        "partials",
        "frontiers",
        "fixed rows",
        "learnable rows",
        "frontiers and learnable rows, compiled",
    ),
    *("times relations first", "without learnable rows", "exchange an epoch (model)"),
]


def _shown(entry: Mapping[str, Any]) -> list[str]:
    """A row of the table."""
    kinds = ("partials", "frontiers", "fixed_rows", "learnable_rows", "permuted_compiled")
    sizes = [entry["bytes_a_step"][kind] for kind in kinds]
    return [
        str(entry["shards"]),
        entry["way"],
        *("-" if size is None else f"{size / 2**20:.1f}" for size in sizes),
        f"{entry['times_relations_first']:.1f}",
        f"{entry['times_without_learnable_rows']:.1f}",
        f"{entry['exchange_epoch_s_modelled']:.1f} s",
    ]


def _distributed(config: Config, **changes: Any) -> Config:
    return dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, **changes))


if __name__ == "__main__":
    sys.exit(main())
