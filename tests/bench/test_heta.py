"""What `bench.heta` counts is what devices read of each other, what caches leave of it, and what the program sends."""

import json

import numpy as np
import pytest

from bench.heta import cluster, moved, policies
from bench.heta.__main__ import PAGE, PARTS, STORED, write_page
from bench.heta.ways import ByRelations, OverData
from jhgnn.distributed.meta.work import WorkCosts, shape_of
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.sampling.capacities import presampled
from jhgnn.stores.exchange import Pairwise
from tests.training.rel_equality import mag_like
from tests.training.test_relation_cuts import CUT
from tests.training.test_relation_plans import execution as plan_execution
from tests.training.test_relation_plans import plan_of
from tests.training.test_relations_first import first


def _count(way, problem, batches):
    shape = shape_of(problem.graph, problem.config.model.hidden)
    return moved.count(way, shape, problem.graph.num_nodes, batches)


def test_learnable_rows_are_counted_from_the_draws_and_from_the_compiled_update():
    execution = first(mag_like(), sampling={"batch_size": 8})
    batches, hidden, steps = execution.batches(0), execution.config.model.hidden, 2
    drawn = [(step, batches.batch(batches.order(0), step)) for step in range(steps)]
    way = ByRelations(execution)
    found = _count(way, execution.problem, drawn).moved(0, WorkCosts())
    placement, remote = execution.parts.placement, 0
    for step, ids in drawn:
        for number, (sampler,) in enumerate(execution.rel_source.samplers):
            blocks, _ = sampler.sample({"paper": ids}, 0, step, execution._branch_buckets[number][0])
            for name in set(placement.homes) & set(execution.shards[number].reads):
                own = blocks.nodes.get(name, np.zeros(0, np.int32))
                remote += int((placement.places(name, own[own >= 0]) != number).sum())
    assert remote > 0
    assert found.learnable_rows == remote * hidden * 4 * 2
    assert found.fixed_rows == 0
    assert found.partials == 2 * steps * 8 * hidden * 4
    exchange = Pairwise(execution.rel_source.requests[0], execution.mesh.axes)
    senders = sum(len(pairs) for _, pairs in exchange.distances)
    # A number, a row and its gradient; and in each of three permutations a word that keeps them in order.
    assert way.permuted_bytes() == 4 * (exchange.num_rows * (1 + 2 * hidden) + 3 * senders)
    assert found.learnable_rows < way.permuted_bytes() * steps


def test_the_sum_of_a_frontier_is_sent_once_and_its_gradient_returned(tmp_path):
    """By the shard that computes below the branch that is cut, to the one that has the branch."""
    execution = plan_execution(plan=plan_of(tmp_path / "plan.json", *CUT))
    batch = execution.batches(0).batch(execution.batches(0).order(0), 0)
    way = ByRelations(execution)
    found = _count(way, execution.problem, [(0, batch)]).moved(0, WorkCosts())
    ((frontier, slots),) = execution.frontier_meetings()[0].rows.items()
    piece, sampler = execution.shards[0].pieces[1], execution._branch_samplers[0][1]
    assert piece.into == frontier
    blocks, _ = sampler.sample({"paper": batch}, 0, 0, execution._branch_buckets[0][1])
    met, hidden = int((blocks.frontier(1, "author") >= 0).sum()), execution.config.model.hidden
    assert 0 < met <= slots
    assert found.frontiers == 2 * met * hidden * 4
    assert way.meetings == 3


@pytest.fixture(scope="module")
def over_data():
    """Two random parts, and what their devices read in three steps."""
    execution = first(mag_like(), sampling={"batch_size": 8})
    batches = execution.batches(0)
    drawn = [(step, batches.batch(batches.order(0), step)) for step in range(3)]
    way = OverData(execution.problem, execution.sampling, random_assignment(execution.problem.graph, 2))
    return way, drawn, _count(way, execution.problem, drawn)


def test_over_data_a_device_fetches_what_other_parts_own(over_data):
    way, drawn, counted = over_data
    fixed = learnable = 0
    for step, batch in drawn:
        for part in range(2):
            own = {"paper": batch[way.cut.parts["paper"][batch] == part]}
            enough = presampled(way._sampler, 0, [own] * 8, quantiles=(1.0,))
            blocks, _ = way._sampler.sample(own, 0, step, enough)
            for name, ids in blocks.nodes.items():
                remote = int((way.cut.parts[name][ids[ids >= 0]] != part).sum())
                fixed, learnable = fixed + remote * (name == "paper"), learnable + remote * (name != "paper")
    found = counted.moved(0, WorkCosts())
    assert fixed > 0
    assert learnable > 0
    assert found.fixed_rows == fixed * 7 * 4
    assert found.learnable_rows == learnable * counted.shape.hidden * 4 * 2
    assert found.partials == 0


def test_a_cache_saves_fixed_rows_and_never_a_learnable_row_of_another_device(over_data):
    _, _, counted = over_data
    plain = counted.moved(0, WorkCosts())
    before = plain
    for budget in (100, 400, 1000):
        cached = counted.moved(0, WorkCosts(), budget)
        assert cached.from_host <= before.from_host
        assert cached.fixed_rows <= before.fixed_rows
        assert cached.learnable_rows == plain.learnable_rows
        before = cached
    everything = counted.moved(0, WorkCosts(), 10**9)
    assert (everything.fixed_rows, everything.from_host, everything.hits) == (0, 0, 1)
    assert plain.from_host > cached.from_host > 0


def test_policies_leave_the_least_with_the_knapsack_and_tell_kinds_apart():
    execution = first(mag_like(), sampling={"batch_size": 4})
    result = policies.compare(execution, WorkCosts(), None)
    by_budget = {}
    for entry in result["entries"]:
        by_budget.setdefault(entry["budget"], {})[entry["policy"]] = entry
        assert sum(entry["cost_left_by_kind"].values()) == pytest.approx(entry["cost_left"])
        assert all(0 <= rate <= 1 for rate in entry["hit_rate"].values())
    for own in by_budget.values():
        planned = [own[policy]["cost_left"] for policy in policies.PLANNED]
        assert planned[0] <= min(planned) + 1e-12
    headings, rows = policies.table(result)
    assert [len(row) for row in rows] == [len(headings)] * len(policies.BUDGETS)


def test_the_cluster_model_adds_what_its_formula_says():
    machine = cluster.Machine(draw_s=2.0, host_byte_s=3.0, flop_s=5.0, network_byte_s=7.0, rendezvous_s=11.0)
    sent = {"partials": 2.0, "frontiers": 0.0, "fixed_rows": 4.0, "learnable_rows": 6.0, "weights": 8.0}
    entry = {"shards": 2, "meetings": 1, "draws": [1.0, 2.0], "flops": [4.0, 1.0]}
    own = sent | {"fixed_from_host": [1.0, 0.0], "learnable_from_host": [1.0, 1.0]}
    # The first machine: 2 of draws, 6 from the host, 20 of products; the second has 4, 3 and 5.
    assert cluster.step_s(entry, own, machine) == 28.0 + 10.0 * 7.0 + 2 * 11.0


def test_the_page_has_the_tables_of_what_is_stored(tmp_path):
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert set(stored) == set(PARTS)
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_page(stored, page)
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
