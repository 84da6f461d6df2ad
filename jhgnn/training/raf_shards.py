"""What each shard of `rel` draws, reads and computes: its branches of the metatree, and all below them.

The branches of a shard are relations into the targets, or metapaths. What a shard draws at each hop follows from them,
hop by hop: along its own relations from the targets, and along all relations from every vertex type whose state some
branch needs at that hop. So a vertex's state at an inner layer is whole wherever it is computed, and a relation that
several shards need is computed by each for its own vertices.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.config import Config
from jhgnn.distributed.meta.assign import largest_first
from jhgnn.distributed.meta.plan import MetaPlan, read_plan
from jhgnn.distributed.meta.request import request_of
from jhgnn.distributed.meta.work import tree_work
from jhgnn.errors import InputError
from jhgnn.graph.schema import Metapath
from jhgnn.nn.branches import OwnBranches
from jhgnn.sampling.plan import Draw, SamplingPlan
from jhgnn.training.problem import Problem
from jhgnn.training.sampled_choices import Sampling

SELF = "self"


@dataclasses.dataclass(frozen=True, eq=False)
class RelShard:
    """One place on the axis `rel`.

    Attributes:
        own: its branches, and the types that their layers make and read.
        plan: what it draws.
    """

    own: OwnBranches
    plan: SamplingPlan


def relation_shards(problem: Problem, sampling: Sampling) -> tuple[RelShard, ...]:
    """The shards that the recipe asks for, from its plan or dealt out largest first.

    Raises:
        InputError: fewer than two shards, more shards than branches, or a plan that is of other relations, or that cuts
            branches or divides the targets.
    """
    config = problem.config
    names = _branches(problem, sampling)
    own_row = problem.model.over == "relations" and config.model.self_loop
    branches = [*names, SELF] if own_row else names
    if config.distributed.plan:
        owners = _of_plan(read_plan(config.distributed.plan), config.distributed, branches, sampling)
    else:
        owners = _dealt(problem, sampling, branches)
    reads_receivers = own_row or config.model.residual or problem.model.attends()
    everywhere = config.model.residual or problem.model.attends()
    return tuple(
        _shard(
            sampling,
            tuple(name for name in own if name != SELF),
            own_row=SELF in own,
            reads_receivers=reads_receivers,
            needs_targets=everywhere or SELF in own,
        )
        for own in owners
    )


def _branches(problem: Problem, sampling: Sampling) -> list[str]:
    """The relations into the targets that are drawn at the first hop, or all metapaths."""
    (target,) = problem.task.targets
    return [draw.name for draw in sampling.plan.draws_at(0) if draw.target == target]


def _shard(
    sampling: Sampling, names: tuple[str, ...], *, own_row: bool, reads_receivers: bool, needs_targets: bool
) -> RelShard:
    plan = sampling.plan
    (target,) = plan.seed_types
    needed, makes = {target}, []
    drawn: list[set[str]] = []
    for hop in range(plan.num_hops):
        makes.append(tuple(sorted(needed)))
        own = [draw for draw in plan.draws_at(hop) if (draw.name in names if hop == 0 else draw.target in needed)]
        drawn.append({draw.name for draw in own})
        stays = needs_targets if hop == 0 else reads_receivers
        needed = {draw.source for draw in own} | (needed if stays else set())

    def restricted(draw: Draw) -> Draw:
        widths = tuple(width if draw.name in drawn[hop] else 0 for hop, width in enumerate(draw.widths))
        fan_outs = tuple(count if widths[hop] else 0 for hop, count in enumerate(draw.fan_outs))
        return dataclasses.replace(draw, widths=widths, fan_outs=fan_outs)

    own_plan = dataclasses.replace(plan, draws=tuple(restricted(draw) for draw in plan.draws))
    return RelShard(OwnBranches(names, own_row, tuple(makes), tuple(sorted(needed))), own_plan)


def _dealt(problem: Problem, sampling: Sampling, branches: Sequence[str]) -> list[list[str]]:
    """Branches dealt out largest first by the work that the meta-partitioner predicts; the targets' own row goes where
    rows of their type are read anyway, or else to the shard with least to do."""
    shards = problem.config.distributed.relation_shards
    names = [name for name in branches if name != SELF]
    if shards < 2:
        raise InputError(
            f"distributed.strategy = 'raf' divides relations over distributed.relation_shards = {shards}; set it to 2"
            " or more, or name a plan with distributed.plan"
        )
    if shards > len(names):
        raise InputError(
            f"distributed.relation_shards = {shards}, but only {len(names)} branches lead to"
            f" {problem.task.targets[0]!r}: {', '.join(names)}; use at most as many shards"
        )
    weights = _weights(problem, sampling, names)
    placed = largest_first(weights, shards)
    owners = [[name for name, shard in zip(names, placed, strict=True) if shard == number] for number in range(shards)]
    if SELF in branches:
        (target,) = sampling.plan.seed_types
        same = {draw.name for draw in sampling.plan.draws if draw.source == target}
        loads = [sum(weights[names.index(name)] for name in own) for own in owners]
        holders = [number for number, own in enumerate(owners) if same & set(own)] or range(shards)
        owners[min(holders, key=lambda number: (loads[number], number))].append(SELF)
    return owners


def _weights(problem: Problem, sampling: Sampling, names: Sequence[str]) -> list[float]:
    """Predicted seconds of each branch; of a metapath, what is drawn and computed of it, which is its own."""
    if sampling.metapaths:
        by_name = {draw.name: draw for draw in sampling.plan.draws}
        return [_of_metapath(sampling, by_name[name]) for name in names]
    model = problem.config.model
    request = request_of(
        problem.graph,
        _settled(problem.config, sampling.num_layers),
        (),
        over=problem.model.over,
        reads_receivers=model.self_loop or model.residual or problem.model.attends(),
    )
    tree = request.tree
    work = tree_work(tree, request.counts, request.shape, request.costs)
    by_relation = {
        str(tree.nodes[child].relation): work.of(tree.subtree(child), request.counts.batch_size)
        for child in tree.children(0)
    }
    return [by_relation[name] for name in names]


def _settled(config: Config, layers: int) -> Config:
    return dataclasses.replace(config, model=dataclasses.replace(config.model, layers=layers))


def _of_metapath(sampling: Sampling, draw: Draw) -> float:
    """Neighbours that a target keeps along a metapath, on average: in walks as many as it has ends to keep."""
    if draw.num_walks:
        return float(draw.widths[0])
    degrees = np.diff(sampling.sampled.edges[draw.steps[0]].indptr)
    return float(np.minimum(degrees, draw.widths[0]).mean())


def _of_plan(plan: MetaPlan, distributed: object, branches: Sequence[str], sampling: Sampling) -> list[list[str]]:
    """The branches of each shard of a plan."""
    shards = getattr(distributed, "relation_shards", 0)
    if shards not in (0, plan.num_shards):
        raise InputError(
            f"distributed.relation_shards = {shards}, but distributed.plan has {plan.num_shards} shards; leave it at 0"
        )
    tree = plan.tree
    children = set(tree.children(0))
    for pieces in plan.shards:
        for piece in pieces:
            if piece.node not in children or not piece.whole:
                raise InputError(
                    f"distributed.plan cuts below a branch, at {tree.path(piece.node)!r}; training runs plans of whole"
                    " branches: set distributed.relation_shards and leave the plan out"
                )
            if piece.targets != plan.batch_size:
                raise InputError(
                    f"distributed.plan divides the targets of {tree.path(piece.node)!r}; training runs plans of whole"
                    " branches: set distributed.relation_shards and leave the plan out"
                )
    owners = [[tree.nodes[piece.node].name for piece in pieces] for pieces in plan.shards]
    if sampling.metapaths:
        owners = _metapaths_of(owners, sampling.metapaths)
    owners = [[name for name in own if name in branches or name != SELF] for own in owners]
    found = sorted(name for own in owners for name in own)
    if found != sorted(branches):
        raise InputError(
            f"distributed.plan is of other branches than this recipe's: {', '.join(found)}; need"
            f" {', '.join(sorted(branches))}"
        )
    if not all(set(own) - {SELF} for own in owners):
        raise InputError("distributed.plan has a shard without relations into the targets; use fewer shards")
    return owners


def _metapaths_of(owners: Sequence[Sequence[str]], metapaths: Sequence[Metapath]) -> list[list[str]]:
    """Metapaths go where the plan put their first step back from the targets."""
    by_step: Mapping[str, int] = {name: number for number, own in enumerate(owners) for name in own}
    found: list[list[str]] = [[] for _ in owners]
    for metapath in metapaths:
        step = str(metapath.relations[-1])
        if step not in by_step:
            raise InputError(f"distributed.plan does not hold {step!r}, the last step of metapath {metapath.name!r}")
        found[by_step[step]].append(metapath.name)
    return found
