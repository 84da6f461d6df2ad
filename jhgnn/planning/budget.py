"""`training.memory_budget`: the fastest recomputation policy that fits, from compiled programs, before anything runs.

Two things have to fit on a device. One is what stays there: graphs, features, labels, the state and the best parameters
so far, and in mini-batch training the batch and those prepared ahead of it. The other is what a program allocates
beside that, by XLA's buffer assignment, where the larger of step and evaluation counts.
"""

import dataclasses
from collections.abc import Iterator

import jax

from jhgnn.config.remat import POLICIES
from jhgnn.errors import InputError
from jhgnn.nn.recompute import without_gradient
from jhgnn.planning.analysis import Analysis, analyse, analyse_compiled
from jhgnn.planning.time_model import RATIO_ERRORS, predicted_s
from jhgnn.runtime.console import Say
from jhgnn.runtime.memory_limit import readable_bytes
from jhgnn.training.execution import Execution, Programs
from jhgnn.training.remat import can_offload
from jhgnn.training.sampled import cuts


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to train, compiled.

    Attributes:
        remat, micro_batches: what the recipe would say.
        resident_bytes: what stays on the device.
        step, evaluation: the compiled programs; None where evaluation is a layer at a time, in chunks.
        predicted_s: of a step; for ranking.
    """

    remat: str
    micro_batches: int
    resident_bytes: int
    step: Analysis
    evaluation: Analysis | None
    predicted_s: float

    @property
    def needed_bytes(self) -> int:
        """The smallest budget that it fits."""
        programs = [self.step] if self.evaluation is None else [self.step, self.evaluation]
        return self.resident_bytes + max(each.new_bytes for each in programs)

    @property
    def name(self) -> str:
        parts = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        return self.remat + parts


def policies() -> list[str]:
    """The policies that this backend can follow."""
    return [policy for policy in POLICIES if policy != "offload" or can_offload()]


def candidates(execution: Execution) -> list[Candidate]:
    """Every policy, compiled, for the recipe's number of micro-batches, whatever budget and policy the recipe names."""
    return _each_policy(execution.with_training(memory_budget=0))


def fastest_that_fits(found: list[Candidate], budget_bytes: int) -> Candidate | None:
    """The one with the least predicted time among those within the budget; of equals the one that keeps most."""
    fitting = [each for each in found if each.needed_bytes <= budget_bytes]
    return min(fitting, key=lambda each: each.predicted_s, default=None)


def within_budget(execution: Execution, say: Say) -> Execution:
    """The execution with the policy and micro-batches that are fastest within its budget; prints the candidates.

    The recipe of the execution that comes back has no budget any more. More micro-batches are tried only where no
    policy fits with fewer.

    Raises:
        InputError: nothing fits; the message has the smallest budget that would.
    """
    budget = execution.config.training.memory_budget
    if not budget:
        return execution
    found = candidates(execution)
    chosen = fastest_that_fits(found, budget)
    if chosen is None and execution.config.sampling.batch_size:
        leanest = min(found, key=lambda each: each.needed_bytes).remat
        for parts in cuts(execution.config, execution.mesh):
            cut = execution.with_training(memory_budget=0, micro_batches=parts)
            (lean,) = _each_policy(cut, [leanest])
            found.append(lean)
            if lean.needed_bytes <= budget:
                found += _each_policy(cut, [policy for policy in policies() if policy != leanest])
                chosen = fastest_that_fits(found, budget)
                break
    _print(say, found, chosen, budget)
    if chosen is None:
        raise InputError(_too_small(found, execution))
    if told := told_of_times(found, chosen, budget, execution.mesh.platform):
        say(told)
    return execution.with_training(memory_budget=0, remat=chosen.remat, micro_batches=chosen.micro_batches)


def candidate_of(programs: Programs) -> Candidate:
    """The candidate that programs compiled already make."""
    evaluation = analyse_compiled(programs.evaluations[0].call) if programs.evaluations else None
    return _candidate(programs.execution, analyse_compiled(programs.step.call), evaluation)


def _candidate(execution: Execution, step: Analysis, evaluation: Analysis | None) -> Candidate:
    training = execution.config.training
    seconds = predicted_s(step.work, step.temp_bytes, execution.mesh.platform)
    return Candidate(training.remat, training.micro_batches, execution.resident_bytes(), step, evaluation, seconds)


def _each_policy(execution: Execution, chosen: list[str] | None = None) -> list[Candidate]:
    remats = policies() if chosen is None else chosen
    ways = [execution.with_training(remat=remat) for remat in remats]
    forward = [without_gradient(remat) for remat in remats]  # an evaluation has no gradient
    evaluated = dict(zip(forward, ways, strict=True))

    def programs() -> Iterator[jax.stages.Lowered]:
        yield from (own.lower_update() for own in ways)
        if execution.has_evaluation_program:
            yield from (own.lower_evaluation() for own in evaluated.values())

    analyses = analyse(programs())
    evaluations = dict(zip(evaluated, analyses[len(ways) :], strict=execution.has_evaluation_program))
    return [
        _candidate(own, step, evaluations.get(key)) for own, key, step in zip(ways, forward, analyses, strict=False)
    ]


def _print(say: Say, found: list[Candidate], chosen: Candidate | None, budget: int) -> None:
    rows = []
    for each in found:
        verdict = "chosen" if each is chosen else "fits" if each.needed_bytes <= budget else "too large"
        row = (each.name, readable_bytes(each.needed_bytes), readable_bytes(each.step.temp_bytes))
        more = each.step.work.total_flops / max(1.0, found[0].step.work.total_flops)
        rows.append((*row, f"{more:.2f}x", f"{each.predicted_s * 1e3:,.1f} ms", verdict))
    header = ("training.remat", "needs", "of it step's temporaries", "FLOPs", "predicted step", "")
    say.table(f"training.memory_budget of {readable_bytes(budget)}", header, rows)


def told_of_times(found: list[Candidate], chosen: Candidate, budget_bytes: int, platform: str) -> str:
    """A line about what the predicted times leave open; empty where they tell the chosen one from all that fit."""
    others = [each for each in found if each is not chosen and each.needed_bytes <= budget_bytes]
    others = [each for each in others if each.step != chosen.step]  # the same program has the same time
    error = RATIO_ERRORS.get(platform)
    if not others:
        return ""
    if error is None:
        return (
            f"predicted times are by rates that were assumed for this device, not measured: which of {chosen.name} and"
            f" {', '.join(each.name for each in others)} is fastest is a guess"
        )
    alike = [each.name for each in others if each.predicted_s <= (1.0 + error) * chosen.predicted_s]
    if not alike:
        return ""
    return (
        f"predicted times cannot tell {chosen.name} from {', '.join(alike)}: in one of ten pairs of policies their"
        f" ratio is off by over {error:.0%}; time them where it matters"
    )


def _too_small(found: list[Candidate], execution: Execution) -> str:
    least, config = min(found, key=lambda each: each.needed_bytes), execution.config
    way_out = (
        "lower sampling.fan_out or model.hidden"
        if config.sampling.batch_size
        else "lower model.hidden, or set sampling.batch_size: a full batch cannot be cut"
    )
    return (
        f"training.memory_budget = {config.training.memory_budget} is too small: the smallest possible one is"
        f" {least.needed_bytes} bytes ({readable_bytes(least.needed_bytes)}, with {least.name}); raise it, or {way_out}"
    )
