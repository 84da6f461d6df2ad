"""What `bench.heta` counts of relations first is what shards read of each other, and what the program sends."""

import numpy as np

from bench.heta import permuted_bytes, relations_first
from jhgnn.stores.exchange import Pairwise
from tests.training.rel_equality import mag_like
from tests.training.test_relation_cuts import CUT
from tests.training.test_relation_plans import execution as plan_execution
from tests.training.test_relation_plans import plan_of
from tests.training.test_relations_first import first


def test_learnable_rows_are_counted_from_the_draws_and_from_the_compiled_update():
    execution = first(mag_like(), sampling={"batch_size": 8})
    batches, hidden, steps = execution.batches(0), execution.config.model.hidden, 2
    drawn = [(step, batches.batch(batches.order(0), step)) for step in range(steps)]
    moved = relations_first(execution, drawn, weights=0)
    placement, remote = execution.parts.placement, 0
    for step, ids in drawn:
        for number, (sampler,) in enumerate(execution.rel_source.samplers):
            blocks, _ = sampler.sample({"paper": ids}, 0, step, execution._branch_buckets[number][0])
            for name in set(placement.homes) & set(execution.shards[number].reads):
                own = blocks.nodes.get(name, np.zeros(0, np.int32))
                remote += int((placement.places(name, own[own >= 0]) != number).sum())
    assert remote > 0
    assert moved.learnable_rows == remote * hidden * 4 * 2
    exchange = Pairwise(execution.rel_source.requests[0], execution.mesh.axes)
    senders = sum(len(pairs) for _, pairs in exchange.distances)
    # A number, a row and its gradient; and in each of three permutations a word that keeps them in order.
    assert permuted_bytes(execution) == 4 * (exchange.num_rows * (1 + 2 * hidden) + 3 * senders)
    assert moved.learnable_rows < moved.permuted_compiled == permuted_bytes(execution) * steps


def test_the_sum_of_a_frontier_is_sent_once_and_its_gradient_returned(tmp_path):
    """By the shard that computes below the branch that is cut, to the one that has the branch."""
    execution = plan_execution(plan=plan_of(tmp_path / "plan.json", *CUT))
    batch = execution.batches(0).batch(execution.batches(0).order(0), 0)
    moved = relations_first(execution, [(0, batch)], weights=0)
    ((frontier, slots),) = execution.frontier_meetings()[0].rows.items()
    piece, sampler = execution.shards[0].pieces[1], execution._branch_samplers[0][1]
    assert piece.into == frontier
    blocks, _ = sampler.sample({"paper": batch}, 0, 0, execution._branch_buckets[0][1])
    met, hidden = int((blocks.frontier(1, "author") >= 0).sum()), execution.config.model.hidden
    assert 0 < met <= slots
    assert moved.frontiers == 2 * met * hidden * 4
    assert moved.meetings == 3
