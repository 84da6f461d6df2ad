"""`training.memory_budget`: the fastest recomputation policy that fits, from compiled programs, before anything runs.

What has to fit is what lies on one device: what stays there (graphs, features, labels, the state and the best
parameters so far; of mini-batches the batch and those prepared ahead of it) and what the larger of step and evaluation
allocates beside it, as XLA's buffer assignment says.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.graph.memory_limit import readable_bytes
from jhgnn.nn.recompute import without_gradient
from jhgnn.planning.analysis import Analysis, analyse
from jhgnn.planning.time_model import predicted_s
from jhgnn.remat_text import POLICIES
from jhgnn.training.loop import lower_evaluation, lower_step
from jhgnn.training.minibatch_problem import MinibatchProblem
from jhgnn.training.minibatch_programs import (
    MinibatchLayout,
    abstract_share,
    abstract_state,
    lay_out,
    lower_update,
)
from jhgnn.training.minibatch_programs import lower_evaluation as lower_batch_evaluation
from jhgnn.training.parallel import Fleet
from jhgnn.training.problem import Problem
from jhgnn.training.remat import can_offload
from jhgnn.training.reporting import Say
from jhgnn.training.state import abstract_params


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to train, compiled.

    Attributes:
        remat, micro_batches: what the recipe would say.
        resident_bytes: what stays on the device.
        step, evaluation: the compiled programs.
        predicted_s: of a step; for ranking.
    """

    remat: str
    micro_batches: int
    resident_bytes: int
    step: Analysis
    evaluation: Analysis
    predicted_s: float

    @property
    def needed_bytes(self) -> int:
        """The smallest budget that it fits."""
        return self.resident_bytes + max(self.step.new_bytes, self.evaluation.new_bytes)

    @property
    def name(self) -> str:
        parts = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        return self.remat + parts


def policies() -> list[str]:
    """The policies that this backend can follow."""
    return [policy for policy in POLICIES if policy != "offload" or can_offload()]


def candidates(problem: Problem | MinibatchProblem, config: Config) -> list[Candidate]:
    """Every policy for the recipe's number of micro-batches, compiled; the recipe's budget and policy play no part."""
    return _each_policy(problem, _with(config, memory_budget=0))


def fastest_that_fits(found: list[Candidate], budget_bytes: int) -> Candidate | None:
    """The one with the least predicted time among those within the budget; of equals the one that keeps most."""
    fitting = [each for each in found if each.needed_bytes <= budget_bytes]
    return min(fitting, key=lambda each: each.predicted_s, default=None)


def within_budget(problem: Problem | MinibatchProblem, config: Config, say: Say) -> Config:
    """The recipe with its policy and micro-batches chosen for its budget, which is then 0; prints the candidates.

    More micro-batches come in only where no policy fits with fewer.

    Raises:
        InputError: nothing fits; the message has the smallest budget that would.
    """
    budget = config.training.memory_budget
    if not budget:
        return config
    found = candidates(problem, config)
    chosen = fastest_that_fits(found, budget)
    if chosen is None and isinstance(problem, MinibatchProblem):
        leanest = min(found, key=lambda each: each.needed_bytes).remat
        for parts in _cuts(config):
            cut = _with(config, memory_budget=0, micro_batches=parts)
            (lean,) = _each_policy(problem, cut, [leanest])
            found.append(lean)
            if lean.needed_bytes <= budget:
                found += _each_policy(problem, cut, [policy for policy in policies() if policy != leanest])
                chosen = fastest_that_fits(found, budget)
                break
    _print(say, found, chosen, budget)
    if chosen is None:
        raise InputError(_too_small(found, config))
    return _with(config, memory_budget=0, remat=chosen.remat, micro_batches=chosen.micro_batches)


def resident_bytes(problem: Problem | MinibatchProblem, config: Config, layout: MinibatchLayout | None = None) -> int:
    """What stays on a device beside a running program; `layout` is that of mini-batches where it is known."""
    params_bytes = _num_bytes(abstract_params(config.model, problem.spec))
    if isinstance(problem, Problem):
        field = () if problem.step_inputs is problem.inputs else problem.step_inputs
        state_bytes = params_bytes * (1 if config.training.optimizer == "sgd" else 3)
        return _num_bytes((problem.inputs, problem.labels, dict(problem.splits), field)) + state_bytes + params_bytes
    layout = layout or lay_out(problem, config)
    state = abstract_state(problem, config, layout.steps_per_epoch)
    share = _num_bytes(abstract_share(problem, layout.buckets.capacities[0], 1, config.training.micro_batches))
    sampling, ahead = config.sampling, 0
    if problem.side[0] == "host" and sampling.prefetch_threads:
        ahead = min(sampling.prefetch_depth * share, int(sampling.prefetch_memory_gib * 2**30))
    return _num_bytes((layout.resident, state)) + params_bytes + share + ahead


def _each_policy(
    problem: Problem | MinibatchProblem, config: Config, chosen: list[str] | None = None
) -> list[Candidate]:
    layout = lay_out(problem, config) if isinstance(problem, MinibatchProblem) else None
    staying = resident_bytes(problem, config, layout)
    remats = policies() if chosen is None else chosen
    configs = [_with(config, remat=remat) for remat in remats]
    forward = [without_gradient(remat) for remat in remats]  # an evaluation knows no more of its policy
    evaluated = dict(zip(forward, configs, strict=True))

    def programs() -> Iterator[jax.stages.Lowered]:
        if isinstance(problem, Problem):
            yield from (lower_step(problem, own) for own in configs)
            yield from (lower_evaluation(problem, own) for own in evaluated.values())
        else:
            assert layout is not None
            yield from (lower_update(problem, own, layout) for own in configs)
            yield from (lower_batch_evaluation(problem, own, layout) for own in evaluated.values())

    analyses = analyse(programs())
    evaluations = dict(zip(evaluated, analyses[len(configs) :], strict=True))
    found = []
    for remat, key, step in zip(remats, forward, analyses, strict=False):
        evaluation = evaluations[key]
        seconds = predicted_s(step.work, step.temp_bytes, jax.default_backend())
        found.append(Candidate(remat, config.training.micro_batches, staying, step, evaluation, seconds))
    return found


def _cuts(config: Config) -> Iterator[int]:
    """Numbers of micro-batches to try: powers of two that divide the batch."""
    parts, devices = 2, Fleet(config.distributed.devices).size
    while config.sampling.batch_size % (parts * devices) == 0:
        yield parts
        parts *= 2


def _num_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _with(config: Config, **training: Any) -> Config:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **training))


def _print(say: Say, found: list[Candidate], chosen: Candidate | None, budget: int) -> None:
    rows = []
    for each in found:
        verdict = "chosen" if each is chosen else "fits" if each.needed_bytes <= budget else "too large"
        row = (each.name, readable_bytes(each.needed_bytes), readable_bytes(each.step.temp_bytes))
        more = each.step.work.total_flops / max(1.0, found[0].step.work.total_flops)
        rows.append((*row, f"{more:.2f}x", f"{each.predicted_s * 1e3:,.1f} ms", verdict))
    header = ("training.remat", "needs", "of it step's temporaries", "FLOPs", "predicted step", "")
    say.table(f"training.memory_budget of {readable_bytes(budget)}", header, rows)


def _too_small(found: list[Candidate], config: Config) -> str:
    least = min(found, key=lambda each: each.needed_bytes)
    way_out = (
        "lower sampling.fan_out or model.hidden"
        if config.sampling.batch_size
        else "lower model.hidden, or set sampling.batch_size: a full batch cannot be cut"
    )
    return (
        f"training.memory_budget = {config.training.memory_budget} is too small: the smallest possible one is"
        f" {least.needed_bytes} bytes ({readable_bytes(least.needed_bytes)}, with {least.name}); raise it, or {way_out}"
    )
