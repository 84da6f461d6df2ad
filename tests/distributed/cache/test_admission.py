"""Which rows a cache keeps: the knapsack optimum against every baseline, and against all choices there are."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.data import load
from jhgnn.distributed.cache.baselines import heta_shares, hotness_alone, uniform_shares
from jhgnn.distributed.cache.knapsack import knapsack
from jhgnn.distributed.cache.lru import lru_saved_s
from jhgnn.distributed.cache.rows import Rows, TypeRows, miss_cost_s, total_bytes
from jhgnn.distributed.cache.visits import count_visits, epoch_accesses
from jhgnn.errors import InputError
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan
from tests.distributed.graphs import sampled_from

BASELINES = (heta_shares, hotness_alone, uniform_shares)
SHARES = (0.2, 0.4, 0.6)
"""Budgets over all bytes at which the knapsack has to save strictly more than Heta's shares."""
COSTS = {False: 2e-10, True: 3.5e-10}
"""Seconds a byte of fixed rows and of learnable ones, as `WorkCosts` states them."""


@st.composite
def types(draw: st.DrawFn, most_rows: int = 40, most_units: int = 6) -> dict[str, TypeRows]:
    """Up to four types of rows of a few units, rarely visited or often, some never, at costs of their own."""
    rows = {}
    unit = draw(st.sampled_from([1, 4, 256]))
    for number in range(draw(st.integers(0, 4))):
        rng = np.random.default_rng(draw(st.integers(0, 9999)))
        visits = np.floor(rng.pareto(1.0, draw(st.integers(0, most_rows)))).clip(0, 10_000)
        cost = draw(st.sampled_from([0.0, 1.0, 2.5, 7.0]))
        rows[f"t{number}"] = TypeRows(visits, unit * draw(st.integers(1, most_units)), cost)
    return rows


def budgets(rows: Rows) -> list[int]:
    """Every budget where there are few, and else 60 of them, none and all included."""
    total = total_bytes(rows)
    return sorted({*range(min(total, 30)), *(total * step // 30 for step in range(31)), total + 1})


@settings(max_examples=60)
@given(types())
def test_no_baseline_saves_more_at_any_budget(rows):
    for budget in budgets(rows):
        best = knapsack(rows, budget)
        assert best.exact
        assert best.used_bytes(rows) <= budget
        for baseline in BASELINES:
            other = baseline(rows, budget)
            assert other.used_bytes(rows) <= budget
            assert best.saved_s(rows) >= other.saved_s(rows) * (1 - 1e-12)


@settings(max_examples=20)
@given(
    st.integers(0, 9999), st.sampled_from([16, 64]), st.sampled_from([1, 2, 3]), st.floats(0.1, 30), st.integers(1, 40)
)
def test_learnable_rows_with_their_moments_compete_with_fixed_ones(seed, hidden, parts, ratio, most):
    """A learnable row takes its moments' bytes as well (none, those of SGD or of Adam), and its miss the way back."""
    rng = np.random.default_rng(seed)

    def visits() -> np.ndarray:
        return np.floor(rng.pareto(1.0, most)).clip(0, 10_000)

    rows = {
        "paper": TypeRows(visits(), 128 * 4, 1e-10),
        "author": TypeRows(visits(), parts * hidden * 4, ratio * 1e-10),
        "field": TypeRows(visits(), parts * hidden * 4, ratio * 1e-10),
    }
    for budget in budgets(rows):
        best = knapsack(rows, budget)
        assert best.exact
        assert best.used_bytes(rows) <= budget
        assert all(best.saved_s(rows) >= other(rows, budget).saved_s(rows) * (1 - 1e-12) for other in BASELINES)


@given(types(most_rows=4), st.integers(0, 60))
def test_no_other_choice_saves_more(rows, budget):
    """All ways to keep or leave each row."""
    values = np.concatenate([np.zeros(0), *(each.values for each in rows.values())])
    sizes = np.concatenate([np.zeros(0), *(np.full(len(each.visits), each.row_bytes) for each in rows.values())])
    best = 0.0
    for kept in itertools.product((False, True), repeat=min(len(values), 12)):
        mask = np.array([*kept, *[False] * (len(values) - len(kept))], bool)
        if sizes[mask].sum() <= budget:
            best = max(best, float(values[mask].sum()))
    found = knapsack(rows, budget).saved_s(rows)
    assert found >= best * (1 - 1e-12)
    if len(values) <= 12:
        assert found <= best * (1 + 1e-12)


def test_more_budget_never_saves_less():
    rng = np.random.default_rng(0)
    rows = {name: TypeRows(rng.pareto(1.0, 50), size, 1.0) for name, size in (("a", 3), ("b", 4), ("c", 5))}
    saved = [knapsack(rows, budget).saved_s(rows) for budget in range(0, 620, 7)]
    assert saved == sorted(saved)
    assert saved[-1] == pytest.approx(miss_cost_s(rows))


def test_sizes_too_many_for_all_trades_lose_less_than_a_row():
    """Three sizes of thousands of units: the rows that fit are kept, and the admission does not claim to be optimal."""
    rng = np.random.default_rng(0)
    rows = {name: TypeRows(rng.pareto(1.0, 8000), size, 1.0) for name, size in (("a", 4231), ("b", 334), ("c", 53))}
    budget = total_bytes(rows) // 3
    found = knapsack(rows, budget)
    assert not found.exact
    assert found.used_bytes(rows) <= budget
    values = np.sort(np.concatenate([each.visits for each in rows.values()]))[::-1]  # worth a byte
    sizes = np.concatenate([np.full(8000, each.row_bytes) for each in rows.values()])
    order = np.argsort(-np.concatenate([each.visits for each in rows.values()]), kind="stable")
    fitting = int(np.searchsorted(np.cumsum(sizes[order]), budget))
    bound = float((values[: fitting + 1] * sizes[order][: fitting + 1]).sum())
    assert bound - found.saved_s(rows) <= values[fitting] * sizes[order][fitting]


def test_heta_leaves_the_rest_of_a_small_type_unused():
    rows = {"small": TypeRows(np.full(2, 100.0), 10, 1.0), "large": TypeRows(np.ones(100), 10, 1.0)}
    admission = heta_shares(rows, 500)
    assert {name: len(ids) for name, ids in admission.ids.items()} == {"small": 2, "large": 16}
    assert admission.used_bytes(rows) == 180
    assert knapsack(rows, 500).used_bytes(rows) == 500
    assert {name: len(ids) for name, ids in uniform_shares(rows, 100).ids.items()} == {"small": 2, "large": 5}
    assert hotness_alone(rows, 25).ids["small"].tolist() == [0, 1]


def test_ties_go_by_type_and_id():
    rows = {"b": TypeRows(np.ones(3), 8, 1.0), "a": TypeRows(np.ones(3), 8, 1.0)}
    assert {name: ids.tolist() for name, ids in knapsack(rows, 32).ids.items()} == {"b": [0, 1, 2], "a": [0]}


@given(st.integers(0, 9999), st.integers(1, 200))
def test_lru_is_the_one_that_everybody_knows(seed, budget):
    """Against a list that is kept by hand."""
    rng = np.random.default_rng(seed)
    rows = {"a": TypeRows(np.zeros(12), 7, 1.0), "b": TypeRows(np.zeros(9), 10, 2.0)}
    steps = [
        {name: np.flatnonzero(rng.random(len(each.visits)) < 0.3) for name, each in rows.items() if rng.random() < 0.9}
        for _ in range(12)
    ]
    kept: list[tuple[str, int]] = []
    saved = 0.0
    for step, accesses in enumerate(steps):
        now = [(name, int(row)) for name in rows if name in accesses for row in accesses[name]]
        saved += sum(rows[name].row_bytes * rows[name].byte_s for name, row in now if (name, row) in kept) * (step > 3)
        kept = [*now[::-1], *(entry for entry in kept if entry not in now)]
        sizes = np.cumsum([rows[name].row_bytes for name, _ in kept])
        kept = kept[: int((sizes <= budget).sum())]
    assert lru_saved_s(rows, steps, [budget], count_from=4)[0] == pytest.approx(saved)


def test_lru_can_save_more_than_any_fixed_choice():
    """Where what is hot changes half-way, which shuffled batches do not do: no fixed choice is best for every trace."""
    steps = [{"a": np.array([0])}] * 5 + [{"a": np.array([1])}] * 5
    rows = {"a": TypeRows(count_visits(steps, {"a": 2})["a"].astype(float), 4, 1.0)}
    assert lru_saved_s(rows, steps, [4])[0] == 8 * 4
    assert knapsack(rows, 4).saved_s(rows) == 5 * 4


def test_visits_are_those_of_the_epoch():
    """Counted before, and met by the sampler when the epoch is drawn with other buckets."""
    graph = sampled_from()
    plan = fan_out_plan(graph, [4, 3], 2)
    sampler = HostSampler(graph, plan)
    batches = EpochBatches(graph.splits["train"], 16, 3)
    accesses = list(epoch_accesses(sampler, batches, seed=3, epoch=1))
    assert len(accesses) == batches.steps_per_epoch
    for step in (0, 2, batches.steps_per_epoch - 1):
        seeds = {"paper": batches.batch(batches.order(1), step)}
        slots = sampler.count(seeds, 3, batches.steps_per_epoch + step).sum(axis=0)
        slots[plan.node_types.index("paper")] -= (seeds["paper"] < 0).sum()
        assert [len(accesses[step].get(node_type, ())) for node_type in plan.node_types] == slots.tolist()
    visits = count_visits(accesses, graph.num_nodes)
    assert sum(int(counts.sum()) for counts in visits.values()) == sum(
        len(ids) for step in accesses for ids in step.values()
    )
    assert visits["paper"].max() <= batches.steps_per_epoch
    assert len(list(epoch_accesses(sampler, batches, 3, 1, steps=2))) == 2


def check_mag(scale: float, batch_size: int, steps: int | None) -> None:
    """Strictly more than Heta's shares at 20, 40 and 60 %, at least as much as every baseline at every budget."""
    graph = load("synthetic", "mag", scale=scale, progress=False).with_reverse_relations()
    sampler = HostSampler(graph, fan_out_plan(graph, [25, 20], 2), 2)
    batches = EpochBatches(graph.splits["train"], batch_size, 0)
    accesses = list(epoch_accesses(sampler, batches, 0, 0, steps))
    visits = count_visits(accesses, graph.num_nodes)
    rows = {}
    for node_type, counts in visits.items():
        learnable = node_type not in graph.features
        rows[node_type] = TypeRows(counts.astype(np.float64), 3 * 64 * 4 if learnable else 128 * 4, COSTS[learnable])
    total = total_bytes(rows)
    for share in (0.01, 0.05, 0.1, *SHARES, 0.8, 1.0):
        best = knapsack(rows, int(share * total))
        assert best.exact
        for baseline in BASELINES:
            assert best.saved_s(rows) >= baseline(rows, int(share * total)).saved_s(rows) * (1 - 1e-12)
        if share in SHARES:
            assert best.saved_s(rows) > 1.02 * heta_shares(rows, int(share * total)).saved_s(rows)
    half = len(accesses) // 2  # an LRU cache starts empty: the first half of the epoch fills it
    later = count_visits(accesses[half:], graph.num_nodes)
    after = {name: TypeRows(later[name].astype(float), each.row_bytes, each.byte_s) for name, each in rows.items()}
    least_recent = lru_saved_s(rows, accesses, [int(share * total) for share in SHARES], half)
    for share, saved in zip(SHARES, least_recent, strict=True):
        assert knapsack(after, int(share * total)).saved_s(after) > saved


def test_mag_keeps_more_than_heta():
    check_mag(0.03, 32, 60)


@pytest.mark.long
@pytest.mark.slow
def test_full_size_mag_keeps_more_than_heta():
    check_mag(1.0, 1024, 120)


def test_rows_that_cannot_be():
    with pytest.raises(InputError, match=r"visits of a cache have shape \(2, 1\); need one count of at least 0 a row"):
        TypeRows(np.zeros((2, 1)), 4, 1.0)
    with pytest.raises(InputError, match="need one count of at least 0 a row"):
        TypeRows(np.array([-1.0]), 4, 1.0)
    with pytest.raises(InputError, match=r"rows of 0 bytes at 1.0 s a byte; need at least 1 byte and 0 s"):
        TypeRows(np.zeros(2), 0, 1.0)
    for policy in (knapsack, *BASELINES):
        with pytest.raises(InputError, match="a cache got a budget of -1 bytes"):
            policy({}, -1)
    with pytest.raises(InputError, match="a cache got a budget of -1 bytes"):
        lru_saved_s({}, [], [-1])
