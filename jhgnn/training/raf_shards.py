"""What each shard of `rel` draws, reads and computes: its branches of the metatree, and all below them.

The branches of a shard are relations into the targets, or metapaths. A plan may have a shard compute a relation for
some of the targets, and another one for the others; a shard then has a piece for each range of targets, as if it were a
smaller batch. What a piece draws at each hop follows from its branches, hop by hop: along its own relations from the
targets, and along all relations from every vertex type whose state some branch needs at that hop. So a vertex's
state at an inner layer is whole wherever it is computed, and a relation that several shards need is computed by each
for its own vertices.
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
class RelPiece:
    """What a shard computes for a range of the targets.

    Attributes:
        own: its branches, and the types that their layers make and read.
        plan: what it draws.
        low, high, of: the targets from `low` to below `high` of `of`, by their position in a batch.
    """

    own: OwnBranches
    plan: SamplingPlan
    low: int = 0
    high: int = 1
    of: int = 1

    def span(self, share: int) -> slice:
        """Its targets among those of a place on `data`."""
        return slice(self.low * share // self.of, self.high * share // self.of)

    def seeds(self, share: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Its part of a share's seeds, int32 by type."""
        return {name: ids[self.span(len(ids))] for name, ids in share.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class RelShard:
    """One place on the axis `rel`.

    Attributes:
        pieces: for different ranges of targets; most often one for all of them.
    """

    pieces: tuple[RelPiece, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Its relations or metapaths, for any target."""
        return tuple(dict.fromkeys(name for piece in self.pieces for name in piece.own.names))

    @property
    def reads(self) -> tuple[str, ...]:
        """Types whose input rows are read."""
        return tuple(sorted({name for piece in self.pieces for name in piece.own.reads}))

    @property
    def own_row(self) -> bool:
        """Whether it adds the targets' own projection, for any target."""
        return any(piece.own.own_row for piece in self.pieces)


def relation_shards(problem: Problem, sampling: Sampling) -> tuple[RelShard, ...]:
    """The shards that the recipe asks for, from its plan or dealt out largest first.

    Raises:
        InputError: fewer than two shards, more shards than branches, or a plan that is of other relations, that cuts
            branches, or that divides the targets where a piece of them is not enough.
    """
    config = problem.config
    names = _branches(problem, sampling)
    own_row = problem.model.over == "relations" and config.model.self_loop
    branches = [*names, SELF] if own_row else names
    of = 1
    if config.distributed.plan:
        plan = read_plan(config.distributed.plan)
        of, owners = plan.batch_size, _of_plan(plan, problem, branches, sampling)
    else:
        owners = [{(0, 1): own} for own in _dealt(problem, sampling, branches)]
    reads_receivers = own_row or config.model.residual or problem.model.attends()
    everywhere = config.model.residual or problem.model.attends()

    def piece(names: Sequence[str], low: int, high: int) -> RelPiece:
        made = _piece(
            sampling,
            tuple(name for name in names if name != SELF),
            own_row=SELF in names,
            reads_receivers=reads_receivers,
            needs_targets=everywhere or SELF in names,
        )
        return dataclasses.replace(made, low=low, high=high, of=of)

    return tuple(RelShard(tuple(piece(names, *span) for span, names in sorted(own.items()))) for own in owners)


def _branches(problem: Problem, sampling: Sampling) -> list[str]:
    """The relations into the targets that are drawn at the first hop, or all metapaths."""
    (target,) = problem.task.targets
    return [draw.name for draw in sampling.plan.draws_at(0) if draw.target == target]


def _piece(
    sampling: Sampling, names: tuple[str, ...], *, own_row: bool, reads_receivers: bool, needs_targets: bool
) -> RelPiece:
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
    return RelPiece(OwnBranches(names, own_row, tuple(makes), tuple(sorted(needed))), own_plan)


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
            f" {problem.task.targets[0]!r}: {', '.join(names)}; use at most as many shards, or a plan"
            " of python -m jhgnn.partition --method meta --whole-branches"
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
    request = request_of(
        problem.graph,
        _settled(problem.config, sampling.num_layers),
        (),
        over=problem.model.over,
        reads_receivers=problem.model.reads_receivers(problem.config.model),
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


Owned = dict[tuple[int, int], list[str]]
"""Branches by the range of targets that they are for."""


def _of_plan(plan: MetaPlan, problem: Problem, branches: Sequence[str], sampling: Sampling) -> list[Owned]:
    """The branches of each shard of a plan."""
    shards = problem.config.distributed.relation_shards
    if shards not in (0, plan.num_shards):
        raise InputError(
            f"distributed.relation_shards = {shards}, but distributed.plan has {plan.num_shards} shards; leave it at 0"
        )
    tree = plan.tree
    children = set(tree.children(0))
    owners: list[Owned] = [{} for _ in plan.shards]
    for own, pieces in zip(owners, plan.shards, strict=True):
        for piece in pieces:
            path = tree.path(piece.node)
            if piece.node not in children or not piece.whole:
                raise InputError(
                    f"distributed.plan cuts below a branch, at {path!r}; training runs plans of whole branches: make it"
                    " with python -m jhgnn.partition --method meta --whole-branches"
                )
            if piece.targets != plan.batch_size:
                _check_divides(problem, plan, path)
            own.setdefault((piece.low, piece.high), []).append(tree.nodes[piece.node].name)
    if sampling.metapaths:
        whole = (0, plan.batch_size)
        found = _metapaths_of([own.get(whole, []) for own in owners], sampling.metapaths)
        owners = [{whole: own} for own in found]
    owners = [_without(own, {SELF} - set(branches)) for own in owners]
    planned = sorted({name for own in owners for names in own.values() for name in names})
    if planned != sorted(branches):
        raise InputError(
            f"distributed.plan is of other branches than this recipe's: {', '.join(planned)}; need"
            f" {', '.join(sorted(branches))}"
        )
    if not all(owners):
        raise InputError("distributed.plan has a shard without branches of this recipe; use fewer shards")
    return owners


def _check_divides(problem: Problem, plan: MetaPlan, path: str) -> None:
    """Refuses to divide the targets where a shard would need more than its piece of them."""
    config, what = problem.config, f"distributed.plan divides the targets of {path!r}"
    rest = "set distributed.relation_shards and leave the plan out"
    if problem.model.over != "relations":
        raise InputError(f"{what}, and {config.model.name!r} weighs metapaths by all targets of a batch: {rest}")
    if config.model.residual:
        raise InputError(f"{what}, and model.residual adds rows of all targets on every shard: {rest}, or leave it out")
    if plan.batch_size != config.sampling.batch_size:
        raise InputError(
            f"{what} for batches of {plan.batch_size}, and sampling.batch_size = {config.sampling.batch_size}; make the"
            " plan with this recipe"
        )


def _without(own: Owned, names: set[str]) -> Owned:
    kept = {span: [name for name in found if name not in names] for span, found in own.items()}
    return {span: found for span, found in kept.items() if found}


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
