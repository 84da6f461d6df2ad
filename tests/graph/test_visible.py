"""Links split by time: messages pass over what was there until the last training link, and over all of it."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.config import TaskConfig
from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation
from jhgnn.graph.visible import end_of_training, until, visible_from
from jhgnn.tasks.link_prediction import LinkPrediction

BUYS, SEES = Relation("user", "buys", "item"), Relation("user", "sees", "item")
USERS, ITEMS = 60, 60


def shop(seed: int, *, leak: bool = False) -> tuple[HeteroGraph, int]:
    """Purchases of moments 0 to 9, split by time, and views; the last moment of training.

    With `leak` each user buys once, and views the same item when all purchases are done.
    """
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(USERS * ITEMS)[:120]
    if leak:
        pairs = np.arange(USERS) * ITEMS + rng.integers(0, ITEMS, USERS)
    users, items, times = pairs // ITEMS, pairs % ITEMS, rng.integers(0, 10, len(pairs))
    links = np.stack([users, np.zeros_like(users), items], axis=1).astype(np.int32)
    last = int(rng.integers(4, 7))
    parts = {"train": times <= last, "val": times == last + 1, "test": times > last + 1}
    if leak:
        views, seen_at = (users, items), times + 10
    else:
        views, seen_at = (rng.integers(0, USERS, 80), rng.integers(0, ITEMS, 80)), rng.integers(0, 10, 80)
    graph = HeteroGraph.from_arrays(
        num_nodes={"user": USERS, "item": ITEMS},
        edges={
            BUYS: EdgeSet.from_pairs(users, items, ITEMS, times=times),
            SEES: EdgeSet.from_pairs(*views, ITEMS, times=seen_at),
        },
        links=LinkTriples((BUYS,), {name: links[own] for name, own in parts.items()}),
        node_times={} if leak else {"user": rng.integers(0, 10, USERS)},
    )
    return graph, last


def told(graph: HeteroGraph, relation: Relation) -> list[tuple[int, int, int]]:
    edges = graph.edges.get(relation)
    if edges is None:
        return []
    return sorted(zip(edges.senders.tolist(), edges.receivers.tolist(), edges.times.tolist(), strict=True))


@given(st.integers(0, 10**6))
def test_messages_pass_over_all_that_is_not_later_than_training(seed):
    graph, last = shop(seed)
    assert graph.links is not None
    assert end_of_training(graph, graph.links) == graph.edges[BUYS].times[graph.edges[BUYS].times <= last].max()
    config = TaskConfig(name="link_prediction", until_training=True)
    seen = LinkPrediction(graph, config, seed=0, reverse_relations=True).graph
    end, of_users = end_of_training(graph, graph.links), graph.node_times["user"]
    for relation in (BUYS, SEES):
        back = [(t, h, at) for h, t, at in told(seen, relation.reversed())]
        assert told(seen, relation) == sorted(back)
        assert told(seen, relation) == [each for each in told(graph, relation) if each[2] <= end >= of_users[each[0]]]


@given(st.integers(0, 10**6), st.integers(-1, 11))
def test_a_graph_until_a_moment_keeps_what_was_visible(seed, moment):
    graph, _ = shop(seed)
    before = until(graph, moment)
    for relation in (BUYS, SEES):
        times = visible_from(graph, relation)
        assert before.edges[relation].num_edges == int((times <= moment).sum())
    assert until(graph.with_reverse_relations(), moment).num_edges == 2 * before.num_edges


def reciprocal_rank(graph: HeteroGraph, links: np.ndarray) -> float:
    """Mean over links of the tail's, by whether any message passes between both ends; ties count half."""
    between = np.zeros((USERS, ITEMS), bool)
    for relation, edges in graph.edges.items():
        ends = (edges.senders, edges.receivers) if relation.source == "user" else (edges.receivers, edges.senders)
        between[ends] = True
    ranks = []
    for user, _, item in links:
        scores = between[user]
        better, equal = (scores > scores[item]).sum(), (scores == scores[item]).sum() - 1
        ranks.append(1 + better + equal / 2)
    return float(np.mean(1 / np.array(ranks)))


@given(st.integers(0, 10**6))
def test_views_planted_after_purchases_tell_them_only_without_the_cut(seed):
    """A scorer that asks whether any message passes between user and item."""
    graph = shop(seed, leak=True)[0]
    found = {}
    for cut in (False, True):
        config = TaskConfig(name="link_prediction", until_training=cut)
        task = LinkPrediction(graph, config, seed=0, reverse_relations=True)
        found[cut] = reciprocal_rank(task.graph, task.links.triples["test"])
    assert found == {False: 1.0, True: pytest.approx(1 / 30.5)}  # all 60 items tie


def test_splits_that_do_not_go_by_time_are_refused():
    graph, _ = shop(0)
    assert graph.links is not None
    mixed = {"train": graph.links.triples["test"], "test": graph.links.triples["train"]}
    with pytest.raises(InputError, match="a link that is held out has time 0, and training links go on until 9"):
        end_of_training(graph, LinkTriples((BUYS,), mixed))
    edges = graph.edges | {BUYS: dataclasses.replace(graph.edges[BUYS], times=None)}
    with pytest.raises(InputError, match="edges of 'user:buys:item' have no times"):
        end_of_training(dataclasses.replace(graph, edges=edges), graph.links)
