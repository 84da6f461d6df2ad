"""Vertices whose rows are reused draw nothing at the bottom hop but in their turn; all others what they drew before."""

import numpy as np
import pytest

from jhgnn.graph.schema import Metapath, Relation
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.hot import count_receivers, saved_draws
from jhgnn.sampling.plan import fan_out_plan, walk_plan
from jhgnn.sampling.reuse import TurnSampler, with_reuse

SEED, EVERY = 7, 3


def batches(count: int = 6, size: int = 12):
    rng = np.random.default_rng(3)
    return [({"paper": rng.integers(0, 300, size).astype(np.int32)}, step) for step in range(count)]


CITES, WRITES = Relation("paper", "cites", "paper"), Relation("author", "writes", "paper")
METAPATHS = (
    Metapath("PAP", (Relation("paper", "rev_writes", "author"), WRITES)),
    Metapath("PP", (CITES,)),
    Metapath("PPP", (CITES, CITES)),  # its second step is the relation that omits edges at its first
    Metapath("PAPP", (Relation("paper", "rev_writes", "author"), WRITES, CITES)),
)
PLANS = {
    "fan-outs": lambda graph: fan_out_plan(graph, [4, 3], 2),
    "walks": lambda graph: walk_plan(graph, METAPATHS, 6, 4, 2),
}


def chosen(graph, *, in_turn=True, share=0.2, plan="fan-outs"):
    plan = PLANS[plan](graph)
    visits = count_receivers(graph, plan, batches(), SEED, 1)
    return plan, *with_reuse(graph, plan, visits, share, every=EVERY, in_turn=in_turn)


def bottom_neighbors(blocks, plan):
    """(draw, vertex) -> the neighbours it drew at the last hop, by id."""
    found = {}
    for draw in plan.draws_at(1):
        table = blocks.hops[1][draw.name]
        for row, vertex in enumerate(blocks.frontier(1, draw.target)):
            senders = table.senders[row, : table.num_neighbors[row]]
            found[draw.name, draw.target, int(vertex)] = blocks.nodes[draw.source][senders].tolist()
    return {key: drawn for key, drawn in found.items() if key[2] >= 0}


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("in_turn", [True, False])
def test_only_those_that_are_due_draw(graph, in_turn, kind):
    plan, reuse, own_plan = chosen(graph, in_turn=in_turn, plan=kind)
    buckets = fixed(plan.bound_capacities({"paper": 12}))
    sampler, plain = TurnSampler(reuse.graphs, own_plan), HostSampler(graph, plan)
    slots = {(name, int(v)): slot for name, ids in reuse.ids.items() for slot, v in enumerate(ids)}
    omitted = 0
    for seeds, step in batches():
        found = bottom_neighbors(sampler.sample(seeds, SEED, step, buckets)[0], plan)
        before = bottom_neighbors(plain.sample(seeds, SEED, step, buckets)[0], plan)
        assert found.keys() == before.keys()
        for (name, target, vertex), drawn in found.items():
            slot = slots.get((target, vertex))
            due = slot is None or (in_turn and slot % EVERY == step % EVERY)
            assert drawn == (before[name, target, vertex] if due else [])
            omitted += not due and bool(before[name, target, vertex])
    assert omitted > 20


@pytest.mark.parametrize("kind", PLANS)
def test_the_bottom_hop_alone_draws_what_a_batch_would_have(graph, kind):
    plan, reuse, _ = chosen(graph, plan=kind)
    ids = {name: own[:5] for name, own in reuse.ids.items()}
    capacities = reuse.bottom.bound_capacities({name: len(own) for name, own in ids.items()})
    found, _ = HostSampler(graph, reuse.bottom).sample(ids, SEED, 4, fixed(capacities))
    drawn = bottom_neighbors(found, reuse.bottom)
    assert {(target, vertex) for _, target, vertex in drawn} == {(n, int(v)) for n, own in ids.items() for v in own}
    whole = HostSampler(graph, plan)
    seeds = {"paper": reuse.ids["paper"][:5]}
    blocks, _ = whole.sample(seeds, SEED, 4, fixed(plan.bound_capacities({"paper": 5})))
    wanted = bottom_neighbors(blocks, plan)
    assert all(drawn[key] == wanted[key] for key in drawn if key[1] == "paper")


def test_no_walk_draws_more_than_it_is_counted_for(graph):
    plan = PLANS["walks"](graph)
    counted = saved_draws(graph, plan, plan.draws_at(1), stays=0)["paper"]
    seeds, most = {"paper": np.arange(300, dtype=np.int32)}, np.zeros(300, np.int64)
    sampler, buckets = HostSampler(graph, plan), fixed(plan.bound_capacities({"paper": 300}))
    for step in range(8):
        own = np.zeros(300, np.int64)
        for (_, _, vertex), drawn in bottom_neighbors(sampler.sample(seeds, SEED, step, buckets)[0], plan).items():
            own[vertex] += len(drawn)
        most = np.maximum(most, own)
    assert (most <= counted).all()
    assert (most[counted > 0] > 0).all()  # a walk breaks off only where all paths do, or in some steps
    assert (most == counted).mean() > 0.5


def test_the_most_drawn_vertices_are_hot(graph):
    plan, reuse, _ = chosen(graph, share=0.05)
    visits = count_receivers(graph, plan, batches(), SEED, 1)
    gains = {name: np.zeros(count, np.int64) for name, count in plan.num_nodes.items}
    for draw in plan.draws_at(1):
        gains[draw.target] += visits[draw.target] * np.minimum(np.diff(graph.edges[draw.steps[0]].indptr), 3)
    coldest = min(gains[name][ids].min() for name, ids in reuse.ids.items())
    assert coldest > 0
    for name, own in gains.items():
        assert (np.delete(own, reuse.ids.get(name, np.zeros(0, np.int32))) <= coldest).all()
