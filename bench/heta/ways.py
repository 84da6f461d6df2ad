"""The ways to divide a batch among devices that are compared: relations first, and over `data` on a cut graph.

A way says what each of its devices reads of a batch, drawn by the samplers of training, and where each row has its
home.
"""

import dataclasses
import functools
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from jhgnn.config import Config
from jhgnn.distributed.adjacency import Adjacency
from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.meta.plan import MetaPlan, write_plan
from jhgnn.distributed.meta.planner import plan_shards
from jhgnn.distributed.meta.request import request_of
from jhgnn.distributed.methods.metis import metis_assignment
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts, SampledBlocks
from jhgnn.models import find
from jhgnn.profiling.hlo import parse
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import SamplingPlan
from jhgnn.sampling.reuse import TurnSampler
from jhgnn.training.frontier_meeting import Frontier
from jhgnn.training.problem import Problem, pose
from jhgnn.training.raf import RelationsFirst
from jhgnn.training.sampled_choices import Sampling

Rows = Mapping[str, np.ndarray]
WHOLE, CUT = "relations first", "relations first, cut deeper"


class Read(NamedTuple):
    """What one device reads for one piece of a batch.

    Attributes:
        device: that reads.
        rows: node type -> distinct ids of the input rows, int32.
        blocks, plan: what was drawn for it.
        summed: vertices of a frontier whose sums it makes for another device.
    """

    device: int
    rows: Rows
    blocks: SampledBlocks
    plan: SamplingPlan
    summed: int = 0


class Way(Protocol):
    """A way to divide batches."""

    @property
    def devices(self) -> int:
        """Those that compute a batch together."""
        ...

    @property
    def meetings(self) -> int:
        """Of all devices in a step, without that for the gradients of weights."""
        ...

    @property
    def sums_targets(self) -> bool:
        """Whether the devices sum what they made of the targets."""
        ...

    def reads(self, step: int, batch: np.ndarray) -> Iterator[Read]: ...

    def homes(self, node_type: str, ids: np.ndarray) -> np.ndarray | None:
        """The device that each row lives on; None: every device that reads rows of the type has them all."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class ByRelations:
    """Shards of the relations that share one place on `data`."""

    execution: RelationsFirst
    sums_targets: bool = True

    @property
    def devices(self) -> int:
        return len(self.execution.shards)

    @property
    def meetings(self) -> int:
        own = 1 if self.execution.problem.model.over == "relations" else 2
        return own + 2 * len(self.execution.frontier_meetings())

    def reads(self, step: int, batch: np.ndarray) -> Iterator[Read]:
        """A read for each piece of each shard: what two pieces of a shard read of another one is sent twice."""
        execution = self.execution
        (target,) = execution.problem.task.targets
        seed = execution.problem.config.run.seed
        owners = {
            frontier: owner for meeting in execution.frontier_meetings() for frontier, owner in meeting.owners.items()
        }
        for number, (samplers, shard) in enumerate(zip(execution.rel_source.samplers, execution.shards, strict=True)):
            met: set[Frontier] = set()
            for sampler, piece in zip(samplers, shard.pieces, strict=True):
                blocks = drawn(sampler, piece.seeds({target: batch}), seed, step)
                rows = {name: ids for name, ids in rows_of(blocks).items() if name in piece.own.reads}
                summed = 0
                if piece.into and piece.into not in met and owners[piece.into] != number:
                    met.add(piece.into)  # all that a shard makes of a frontier is one sum
                    summed = int((blocks.frontier(piece.own.hop, piece.own.node_type) >= 0).sum())
                yield Read(number, rows, blocks, sampler.plan, summed)

    def homes(self, node_type: str, ids: np.ndarray) -> np.ndarray | None:
        parts = self.execution.parts
        return (
            None if parts is None or node_type not in parts.placement.homes else parts.placement.places(node_type, ids)
        )

    def permuted_bytes(self) -> int:
        """Bytes that all devices send in the compiled update's permutations: frontiers and learnable rows."""
        text = self.execution.lower_update().compile().as_text()
        assert text is not None
        found = 0
        for computation in parse(text).executed.values():
            for each in computation.instructions.values():
                if each.opcode == "collective-permute":
                    pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)+)\}", each.attributes)
                    assert pairs is not None
                    found += each.num_bytes * pairs.group(1).count("{")
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class OverData:
    """Parts that train the targets they own."""

    problem: Problem
    sampling: Sampling
    cut: Assignment
    meetings: int = 1
    sums_targets: bool = False

    @property
    def devices(self) -> int:
        return self.cut.num_parts

    @functools.cached_property
    def _sampler(self) -> HostSampler:
        return HostSampler(self.sampling.sampled, self.sampling.plan, self.problem.config.sampling.threads)

    def reads(self, step: int, batch: np.ndarray) -> Iterator[Read]:
        (target,) = self.problem.task.targets
        for part in range(self.cut.num_parts):
            own = batch[self.cut.parts[target][batch] == part]
            blocks = drawn(self._sampler, {target: own}, self.problem.config.run.seed, step)
            yield Read(part, rows_of(blocks), blocks, self.sampling.plan)

    def homes(self, node_type: str, ids: np.ndarray) -> np.ndarray | None:
        return self.cut.parts[node_type][ids]


def drawn(sampler: HostSampler | TurnSampler, seeds: Rows, seed: int, step: int) -> SampledBlocks:
    """What a batch draws, in blocks without spare slots."""
    slots = np.cumsum(sampler.count(seeds, seed, step), axis=0)
    types = sampler.plan.node_types
    exact = tuple(FrozenCounts.of(dict(zip(types, map(int, row), strict=True))) for row in slots)
    return sampler.sample(seeds, seed, step, fixed(exact))[0]


def rows_of(blocks: SampledBlocks) -> dict[str, np.ndarray]:
    """The distinct vertices of each type that a batch meets, its targets included."""
    return {name: ids[ids >= 0] for name, ids in blocks.nodes.items()}


def by_relations(graph: HeteroGraph, config: Config, branches: int, shards: int) -> Mapping[str, Way]:
    """Training by `shards`: branches dealt out, or by a plan that divides targets where there are fewer branches; and
    by the planner's own plan, where it cuts a branch deeper.
    """
    config = distributed(config, strategy="raf", relation_shards=shards, devices=shards)
    model = find(config.model.name)
    request = request_of(graph, config, (), over=model.over, reads_receivers=model.reads_receivers(config.model))

    def planned(*, whole_branches: bool) -> MetaPlan:
        what = (request.tree, request.counts, request.shape, request.costs, shards)
        return plan_shards(*what, whole_branches=whole_branches)

    def trained(plan: MetaPlan) -> ByRelations:
        with tempfile.TemporaryDirectory(prefix="jhgnn-heta-") as folder:
            write_plan(plan, path := Path(folder) / "plan.json")
            return ByRelations(RelationsFirst(pose(graph, distributed(config, plan=str(path)))))

    dealt = shards <= branches
    found: dict[str, Way] = {
        WHOLE: ByRelations(RelationsFirst(pose(graph, config))) if dealt else trained(planned(whole_branches=True))
    }
    own = planned(whole_branches=False)
    if any(piece.is_cut(own.tree) for pieces in own.shards for piece in pieces):
        found[CUT] = trained(own)
    return found


def over_data(problem: Problem, sampling: Sampling, parts: int, adjacency: Adjacency | None) -> Mapping[str, Way]:
    """Training on random parts, and on METIS' where there is an adjacency."""
    cuts = {"random": random_assignment(problem.graph, parts)}
    if adjacency is not None:
        cuts["metis"] = metis_assignment(problem.graph, adjacency, parts)
    return {f"data, {name}": OverData(problem, sampling, cut) for name, cut in cuts.items()}


def distributed(config: Config, **changes: Any) -> Config:
    return dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, **changes))
