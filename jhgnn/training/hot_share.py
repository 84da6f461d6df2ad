"""How many vertices are hot (`sampling.hot_share = "auto"`): a model of their costs, fed by measured batches.

Measured are a batch without hot vertices and one with the largest share, in turn, each sampled, gathered and trained
on with nothing beside it, and the seconds that hot vertices' own rows take. What smaller shares save follows from the
draws of the bottom hop that they leave out, which counting receivers tells without drawing.

Source: Ai et al., NeutronOrch (PVLDB 17(8)), whose shares are fixed numbers; here none at all may be the best.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.runtime.platform import target_platform
from jhgnn.sampling.hot import bottom_draws, largest_gains, saved_draws
from jhgnn.sampling.plan import Draw
from jhgnn.training.batch_times import round_s
from jhgnn.training.execution import Programs
from jhgnn.training.problem import Problem
from jhgnn.training.reuse import REUSING
from jhgnn.training.sampled import Sampled
from jhgnn.training.super_batches import SuperBatches

SHARES = (0.02, 0.05, 0.1, 0.2)
"""What is chosen among, and 0."""
LEAST_GAIN = 0.03
"""Part of a batch's time that hot vertices must save: below it, rounds of measuring differ as much."""
BATCHES = 6
ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class HotCosts:
    """What was measured and counted.

    Attributes:
        plain_s: a batch without hot vertices.
        spared_s: a batch with the largest share, without the computation of hot vertices' rows.
        saved: share -> part of the bottom hop's draws that are left out.
        hot_s: share -> computing hot vertices' rows, over the batches that read them.
        beside: whether this computation meets processors that training leaves idle: the host's beside an accelerator.
    """

    plain_s: float
    spared_s: float
    saved: Mapping[float, float]
    hot_s: Mapping[float, float]
    beside: bool

    def batch_s(self, share: float) -> float:
        """A batch with a share of hot vertices: time falls in proportion to the draws that are left out."""
        if not share:
            return self.plain_s
        most = max(self.saved)
        part = self.saved[share] / self.saved[most] if self.saved[most] else 0.0
        own = self.plain_s - part * (self.plain_s - self.spared_s)
        return max(own, self.hot_s[share]) if self.beside else own + self.hot_s[share]

    @property
    def bottom(self) -> float:
        """The bottom layer's part of a batch: what would be saved if no vertex drew there."""
        most = self.saved[max(self.saved)]
        return min(1.0, max(0.0, (1 - self.spared_s / self.plain_s) / most)) if most else 0.0

    def choose(self) -> float:
        """The share of the shortest batch, the smallest of equals; 0 where none saves `LEAST_GAIN`."""
        best = min(sorted(self.saved), key=self.batch_s)
        return best if self.batch_s(best) <= (1 - LEAST_GAIN) * self.plain_s else 0.0

    def describe(self) -> str:
        """The choice and what it comes from, in one line, for a person."""
        share, best = self.choose(), min(sorted(self.saved), key=self.batch_s)
        line = f"hot share: {share:g} (auto); a batch takes {_ms(self.plain_s)} without hot vertices, {self.bottom:.0%}"
        line += f" of it the bottom layer; {best:g} of them leave out {self.saved[best]:.0%} of its draws, cost"
        line += f" {_ms(self.hot_s[best])} and make it {_ms(self.batch_s(best))}"
        return line if share else line + f": less than {LEAST_GAIN:.0%} saved, so none are hot"


def measured(problem: Problem) -> Sampled:
    """The execution with the share that this machine's costs say, in the place of "auto"."""
    costs = measure(problem)
    execution = Sampled(_with_share(problem, costs.choose()))
    execution.share_chosen = costs.describe()
    return execution


def _with_share(problem: Problem, share: float, **more: object) -> Problem:
    sampling = dataclasses.replace(problem.config.sampling, hot_share=share, **more)  # type: ignore[arg-type]
    return dataclasses.replace(problem, config=dataclasses.replace(problem.config, sampling=sampling))


def measure(problem: Problem) -> HotCosts:
    """Costs of a problem's batches; what overlaps in training is done in turn here."""
    plain = Sampled(_with_share(problem, 0.0, prefetch_threads=0))
    saved, hot = _saved(plain)
    if not saved[SHARES[-1]]:
        return HotCosts(1.0, 1.0, saved, dict.fromkeys(SHARES, 0.0), beside=False)
    largest = Sampled(_with_share(problem, SHARES[-1], prefetch_threads=0))
    timed = [_Timed(execution.compile()) for execution in (plain, largest)]
    seconds: list[list[float]] = [[], []]
    for number in range(ROUNDS + 1):
        for own, each in zip(seconds, timed, strict=True):
            took = each.round()
            own += [took] if number else []  # the first one warms up
    hot_s = _hot_s(largest, timed[1].helper, hot)
    return HotCosts(min(seconds[0]), min(seconds[1]), saved, hot_s, target_platform() != "cpu")


class _Timed:
    """Runs a program's first batches again and again."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self.helper: SuperBatches | None = getattr(programs, "super_batches", None)

    def round(self) -> float:
        """Seconds of a batch, without those of hot vertices' rows."""
        began, seconds = self._helper_s, round_s(self._programs, BATCHES)
        batches = min(BATCHES, self._programs.execution.steps_per_epoch)
        return seconds - (self._helper_s - began) / batches

    @property
    def _helper_s(self) -> float:
        return 0.0 if self.helper is None else self.helper.busy_s


def _saved(plain: Sampled) -> tuple[dict[float, float], dict[float, dict[str, np.ndarray]]]:
    """By share: the part of the bottom hop's draws that is left out, and the hot vertices."""
    graph, plan = plain.plain.sampled, plain.plain.plan
    bottom, reuses = plan.draws_at(plan.num_hops - 1), plain.config.sampling.hot in REUSING
    spared, stays = (bottom, 0) if reuses else (bottom_draws(plan, plain.sampling.features.tables), 1)

    def draws_of(draws: Sequence[Draw], stays: int) -> dict[str, np.ndarray]:
        return {name: plain.visits[name] * own for name, own in saved_draws(graph, plan, draws, stays=stays).items()}

    every = sum(float(own.sum()) for own in draws_of(bottom, 0).values())
    gains = draws_of(spared, stays)
    hot = {share: largest_gains(gains, share) for share in SHARES}
    left_out = {share: sum(float(gains[name][ids].sum()) for name, ids in own.items()) for share, own in hot.items()}
    return {share: own / max(every, 1.0) for share, own in left_out.items()}, hot


def _hot_s(
    largest: Sampled, helper: SuperBatches | None, hot: Mapping[float, Mapping[str, np.ndarray]]
) -> dict[float, float]:
    """Seconds a batch of computing hot vertices' rows: of those that a super-batch meets, or once for all batches."""
    settings = largest.config.sampling
    if helper is not None:
        row_s = helper.busy_s / max(1, helper.vertices)
        return {share: row_s * helper.met_of(ids) / settings.super_batch for share, ids in hot.items()}
    steps = largest.config.training.epochs * largest.steps_per_epoch
    steps = min(steps, settings.max_steps) if settings.max_steps else steps
    count = {share: sum(map(len, ids.values())) for share, ids in hot.items()}
    return {share: largest.hot_s * own / count[SHARES[-1]] / max(1, steps) for share, own in count.items()}


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
