"""Hot vertices draw their mean alone, all others what they drew before; on the host and on the device."""

import jax
import numpy as np
import pytest

from jhgnn.graph.schema import Relation
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.device import device_edges
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.hot import choose_hot, count_receivers, with_hot
from jhgnn.sampling.plan import fan_out_plan
from tests.sampling.conftest import sample_jit
from tests.sampling.reference import frontiers, in_neighbors

CITES = Relation("paper", "cites", "paper")
WRITTEN = Relation("paper", "rev_writes", "author")
SEED = 7


def batches(count: int = 4, size: int = 12):
    rng = np.random.default_rng(3)
    return [({"paper": rng.integers(0, 300, size).astype(np.int32)}, step) for step in range(count)]


def chosen(graph, fan_out=(4, 3), share=0.2):
    plan = fan_out_plan(graph, list(fan_out), len(fan_out))
    visits = count_receivers(graph, plan, batches(), SEED, 1)
    return plan, visits, choose_hot(graph, plan, {"paper"}, visits, share)


def test_receivers_of_the_bottom_hop_are_counted_batch_by_batch(graph):
    plan, visits, _ = chosen(graph)
    expected = {name: np.zeros(count, np.int64) for name, count in plan.num_nodes.items}
    for seeds, step in batches():
        ((_, new),) = frontiers(graph, plan, seeds, SEED, step)[:1]
        for name, ids in new.items():
            expected[name][sorted({*ids, *seeds.get(name, np.zeros(0, np.int32)).tolist()})] += 1
    for name, counts in expected.items():
        np.testing.assert_array_equal(visits[name], counts)
    assert expected["paper"].max() > 1


def test_the_vertices_that_save_most_draws_are_hot(graph):
    _, visits, hot = chosen(graph)
    gains = {}
    for name, relation in (("paper", CITES), ("author", WRITTEN)):
        for vertex in range(graph.num_nodes[name]):
            drawn = min(len(in_neighbors(graph, relation, vertex)), 3)
            gains[name, vertex] = int(visits[name][vertex]) * max(drawn - 1, 0)
    count = int(0.2 * (300 + 200))
    hot_set = {(name, int(vertex)) for name, ids in hot.ids.items() for vertex in ids}
    assert len(hot_set) == min(count, sum(gain > 0 for gain in gains.values()))
    coldest = min(gains[each] for each in hot_set)
    assert all(gain <= coldest for each, gain in gains.items() if each not in hot_set)
    assert set(hot.ids) == {"paper", "author"}  # topics and venues have no rows: nothing they send is kept
    for each in hot.relations:
        assert all(len(in_neighbors(graph, each.relation, int(vertex))) > 1 for vertex in each.receivers)


def sampled_rows(blocks, plan, hop):
    """(relation, receiver) -> the ids of its neighbours in one hop's tables."""
    found = {}
    for draw in plan.draws_at(hop):
        table = blocks.hops[hop][draw.name]
        receivers, senders = blocks.frontier(hop, draw.target), blocks.nodes[draw.source]
        for row in np.flatnonzero(receivers >= 0):
            ids = senders[table.senders[row][: table.num_neighbors[row]]]
            found[draw.name, int(receivers[row])] = ids.tolist()
    return found


@pytest.mark.parametrize("fan_out", [(4, 3), (3,), (2, -1)])
def test_hot_receivers_draw_their_mean_and_all_others_what_they_drew_before(graph, seeds, fan_out):
    plan, _, hot = chosen(graph, fan_out)
    sampled, hot_plan = with_hot(graph, plan, hot)
    capacities = hot_plan.bound_capacities({"paper": 10})
    plain, _ = HostSampler(graph, plan).sample(seeds, SEED, 2, fixed(plan.bound_capacities({"paper": 10})))
    blocks, _ = HostSampler(sampled, hot_plan).sample(seeds, SEED, 2, fixed(capacities))
    last = plan.num_hops - 1
    for hop in range(last):
        assert sampled_rows(blocks, hot_plan, hop) == sampled_rows(plain, plan, hop)
    rows = {
        (each.name, int(v)): int(row)
        for each in hot.relations
        for v, row in zip(each.receivers, each.rows, strict=True)
    }
    bottom, before = sampled_rows(blocks, hot_plan, last), sampled_rows(plain, plan, last)
    assert bottom.keys() == before.keys()
    met = 0
    for each, ids in bottom.items():
        met += each in rows
        assert ids == ([rows[each]] if each in rows else before[each])
    assert met


def test_the_devices_draw_the_same(graph, seeds):
    plan, _, hot = chosen(graph)
    sampled, hot_plan = with_hot(graph, plan, hot)
    capacities = hot_plan.bound_capacities({"paper": 10})
    expected, _ = HostSampler(sampled, hot_plan).sample(seeds, SEED, 5, fixed(capacities))
    found = sample_jit(
        hot_plan, capacities, device_edges(sampled, hot_plan), seeds, jax.numpy.uint32(SEED), jax.numpy.uint32(5)
    )
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, found), expected)


def test_a_bottom_hop_whose_receivers_are_all_hot_has_one_column(graph):
    plan, _, _ = chosen(graph)
    everywhere = {name: np.ones(count, np.int64) for name, count in plan.num_nodes.items}
    hot = choose_hot(graph, plan, {"paper"}, everywhere, 1.0)
    _, hot_plan = with_hot(graph, plan, hot)
    widths = {draw.name: draw.widths[1] for draw in hot_plan.draws_at(1)}
    assert widths[str(CITES)] == widths[str(WRITTEN)] == 1
    assert widths["topic:in:paper"] == 3
    assert hot.num_nodes["paper"] == 300 + hot.num_rows
    ids = np.concatenate([each.rows for each in hot.relations])
    np.testing.assert_array_equal(np.sort(ids), np.arange(300, 300 + hot.num_rows))
