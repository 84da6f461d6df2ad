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
from typing import NamedTuple

import numpy as np

from jhgnn.config import Config
from jhgnn.distributed.meta.assign import largest_first
from jhgnn.distributed.meta.plan import MetaPlan, read_plan
from jhgnn.distributed.meta.ranges import with_equal_ranges
from jhgnn.distributed.meta.request import request_of
from jhgnn.distributed.meta.work import tree_work
from jhgnn.errors import InputError
from jhgnn.graph.schema import Metapath
from jhgnn.nn.branches import OwnBranches
from jhgnn.sampling.plan import Draw, SamplingPlan
from jhgnn.training.frontier_meeting import Frontier
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
        way: from the targets to the frontier that its branches lead into; none: they lead into the targets.
    """

    own: OwnBranches
    plan: SamplingPlan
    low: int = 0
    high: int = 1
    of: int = 1
    way: tuple[str, ...] = ()

    @property
    def branches(self) -> tuple[str, ...]:
        """By relations from the targets outwards, without the own row."""
        return tuple(" / ".join((*self.way, name)) for name in self.own.names)

    @property
    def into(self) -> Frontier | None:
        """The frontier whose sums it makes; None: it makes those of the targets."""
        return Frontier(self.way, self.low, self.high) if self.way else None

    @property
    def given(self) -> Frontier | None:
        """The frontier whose sum it is given, of a branch that is cut."""
        step = self.own.names or (SELF,)
        return Frontier((*self.way, *step), self.low, self.high) if self.own.given else None

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
        """Its relations or metapaths, for any target; below a branch that is cut with the way there."""
        return tuple(dict.fromkeys(name for piece in self.pieces for name in piece.branches))

    @property
    def reads(self) -> tuple[str, ...]:
        """Types whose input rows are read."""
        return tuple(sorted({name for piece in self.pieces for name in piece.own.reads}))

    @property
    def own_row(self) -> bool:
        """Whether it adds the targets' own projection, for any target."""
        return any(piece.own.own_row for piece in self.pieces if not piece.way)


class At(NamedTuple):
    """What branches of one piece share.

    Attributes:
        low, high: the targets that they are for.
        way: from the targets to what they lead into.
        cut: the piece's one branch, if others compute what is below it; else "".
    """

    low: int
    high: int
    way: tuple[str, ...] = ()
    cut: str = ""


Owned = dict[At, list[str]]
"""A shard's branches, piece by piece."""


def relation_shards(problem: Problem, sampling: Sampling) -> tuple[RelShard, ...]:
    """The shards that the recipe asks for, from its plan or dealt out largest first.

    Raises:
        InputError: fewer than two shards, more shards than branches, or a plan that is of other relations, or that cuts
            branches or divides the targets where that cannot be computed.
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
        owners = [{At(0, 1): own} for own in _dealt(problem, sampling, branches)]
    reads_receivers = own_row or config.model.residual or problem.model.attends()
    everywhere = config.model.residual or problem.model.attends()

    def piece(names: Sequence[str], at: At) -> RelPiece:
        if at.cut and not _branches_into(sampling, (*at.way, at.cut), branches):
            at = at._replace(cut="")  # nobody computes anything below it
        made = _piece(
            sampling,
            tuple(name for name in names if name != SELF),
            at,
            own_row=SELF in names,
            reads_receivers=reads_receivers,
            needs_own=everywhere or SELF in names,
        )
        return dataclasses.replace(made, low=at.low, high=at.high, of=of, way=at.way)

    return tuple(RelShard(tuple(piece(names, at) for at, names in sorted(own.items()))) for own in owners)


def _branches(problem: Problem, sampling: Sampling) -> list[str]:
    """The relations into the targets that are drawn at the first hop, or all metapaths."""
    (target,) = problem.task.targets
    return [draw.name for draw in sampling.plan.draws_at(0) if draw.target == target]


def _piece(
    sampling: Sampling, names: tuple[str, ...], at: At, *, own_row: bool, reads_receivers: bool, needs_own: bool
) -> RelPiece:
    plan = sampling.plan
    (node_type,) = plan.seed_types
    makes: list[tuple[str, ...]] = []
    drawn: list[set[str]] = []
    for step in at.way:
        makes.append(())
        drawn.append({step})
        node_type = _source(sampling, step, node_type)
    needed, given, hop_of_own = {node_type}, "", len(at.way)
    for hop in range(hop_of_own, plan.num_hops):
        makes.append(tuple(sorted(needed)))
        own = [draw for draw in plan.draws_at(hop) if draw.target in needed]
        own = [draw for draw in own if hop > hop_of_own or draw.name in names]
        drawn.append({draw.name for draw in own})
        stays = needs_own if hop == hop_of_own else reads_receivers
        needed = {draw.source for draw in own} | (needed if stays else set())
        if hop == hop_of_own and at.cut:
            given = _source(sampling, at.cut, node_type)
            needed -= {given}

    def restricted(draw: Draw) -> Draw:
        widths = tuple(width if draw.name in drawn[hop] else 0 for hop, width in enumerate(draw.widths))
        fan_outs = tuple(count if widths[hop] else 0 for hop, count in enumerate(draw.fan_outs))
        return dataclasses.replace(draw, widths=widths, fan_outs=fan_outs)

    own_plan = dataclasses.replace(plan, draws=tuple(restricted(draw) for draw in plan.draws))
    reads = tuple(sorted(needed))
    return RelPiece(OwnBranches(names, own_row, tuple(makes), reads, node_type, hop_of_own, given), own_plan)


def _source(sampling: Sampling, step: str, target: str) -> str:
    """The type that a step of a way leads to from `target`."""
    sources = {draw.name: draw.source for draw in sampling.plan.draws}
    return target if step == SELF else sources[step]


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
            " of python -m jhgnn.partition --method meta"
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


def _of_plan(plan: MetaPlan, problem: Problem, branches: Sequence[str], sampling: Sampling) -> list[Owned]:
    """The branches of each shard of a plan."""
    shards = problem.config.distributed.relation_shards
    if shards not in (0, plan.num_shards):
        raise InputError(
            f"distributed.relation_shards = {shards}, but distributed.plan has {plan.num_shards} shards; leave it at 0"
        )
    tree = plan.tree
    owners: list[Owned] = [{} for _ in plan.shards]
    for own, pieces in zip(owners, with_equal_ranges(tree, plan.shards), strict=True):
        for piece in pieces:
            *way, name = tree.steps(piece.node)
            cut = name if piece.is_cut(tree) else ""
            if cut:
                _check_cuts(problem, plan, sampling, tree.path(piece.node))
            if piece.targets != plan.batch_size:
                _check_divides(problem, plan, tree.path(piece.node))
            own.setdefault(At(piece.low, piece.high, tuple(way), cut), []).append(name)
    if sampling.metapaths:
        whole = At(0, plan.batch_size)
        metapaths = _metapaths_of([own.get(whole, []) for own in owners], sampling.metapaths)
        owners = [{whole: own} for own in metapaths]
    owners = [_without(own, {SELF} - set(branches)) for own in owners]
    planned: dict[tuple[str, ...], set[str]] = {}
    for own in owners:
        for at, names in own.items():
            planned.setdefault(at.way, set()).update(names)
            if at.cut:
                planned.setdefault((*at.way, at.cut), set())
    for to, found in sorted(planned.items()):
        if found != (needed := set(_branches_into(sampling, to, branches))):
            where = f" below {' / '.join(to)!r}" if to else ""
            raise InputError(
                f"distributed.plan is of other branches than this recipe's{where}: {', '.join(sorted(found))}; need"
                f" {', '.join(sorted(needed))}"
            )
    if not all(owners):
        raise InputError("distributed.plan has a shard without branches of this recipe; use fewer shards")
    return owners


def _branches_into(sampling: Sampling, way: Sequence[str], branches: Sequence[str]) -> list[str]:
    """The branches into what a way leads to; `branches` are those into the targets."""
    if not way:
        return list(branches)
    (node_type,) = sampling.plan.seed_types
    for step in way:
        node_type = _source(sampling, step, node_type)
    names = [draw.name for draw in sampling.plan.draws_at(len(way)) if draw.target == node_type]
    return [*names, *({SELF} & set(branches))]


def _check_cuts(problem: Problem, plan: MetaPlan, sampling: Sampling, path: str) -> None:
    """Refuses to cut a branch deeper where its frontier's sums are not all that shards would have to exchange."""
    config, what = problem.config, f"distributed.plan cuts below {path!r}"
    whole = "make the plan with python -m jhgnn.partition --method meta --whole-branches"
    if problem.model.over != "relations":
        raise InputError(f"{what}, and {config.model.name!r} aggregates each metapath at once: {whole}")
    if config.model.residual:
        raise InputError(f"{what}, and model.residual adds rows that other shards have: {whole}, or leave it out")
    if plan.tree.num_hops != sampling.plan.num_hops:
        raise InputError(
            f"{what} of {plan.tree.num_hops} layers, and the model has {sampling.plan.num_hops}: make the plan with"
            " this recipe"
        )


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
    """Without branches of these names, and what is below them."""
    kept = {at: [name for name in found if name not in names] for at, found in own.items() if not names & set(at.way)}
    return {at: found for at, found in kept.items() if found}


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
