"""Filtered ranks, hits and ROC-AUC against their definitions, one link at a time in NumPy."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation
from jhgnn.tasks import link_ranking
from jhgnn.tasks.link_prediction import EvaluationSet, LinkPrediction
from jhgnn.tasks.link_scorer import LinkRows

HEADS, TAILS, RELATIONS = 11, 8, 2
NAMES = tuple(Relation("a", f"r{i}", "b") for i in range(RELATIONS))


def problem(seed: int, *, whole_numbers: bool) -> tuple[link_ranking.KnownFacts, np.ndarray, LinkRows, np.ndarray]:
    """Facts, some of them as test triples, and rows; whole numbers make ties."""
    rng = np.random.default_rng(seed)
    edges, facts = {}, []
    for number, relation in enumerate(NAMES):
        senders, receivers = rng.integers(0, HEADS, 25), rng.integers(0, TAILS, 25)
        edges[relation] = senders, receivers
        facts += [(h, number, t) for h, t in zip(senders.tolist(), receivers.tolist(), strict=True)]
    facts = np.unique(np.array(facts, np.int32), axis=0)
    test = facts[rng.permutation(len(facts))[:9]]
    graph = HeteroGraph.from_arrays(num_nodes={"a": HEADS, "b": TAILS}, edges=edges)
    known = link_ranking.KnownFacts.of(graph, LinkTriples(NAMES, {"test": test}))
    draw = (lambda *shape: rng.integers(-1, 2, shape)) if whole_numbers else (lambda *shape: rng.normal(size=shape))
    heads, tails, relations = (np.asarray(draw(count, 4), np.float32) for count in (HEADS, TAILS, RELATIONS))
    rows = LinkRows({"a": heads, "b": tails}, relations)
    return known, test, rows, facts


def reference_rank(rows: LinkRows, facts: np.ndarray, triple: np.ndarray, side: str) -> float:
    head, relation, tail = triple.tolist()
    known = {tuple(fact) for fact in facts.tolist()}

    def score(node: int) -> np.float32:
        h, t = (head, node) if side == "tail" else (node, tail)
        return np.sum(rows.nodes["a"][h].astype(np.float64) * rows.relation[relation] * rows.nodes["b"][t])

    true = tail if side == "tail" else head
    better = equal = 0
    for node in range(TAILS if side == "tail" else HEADS):
        fact = (head, relation, node) if side == "tail" else (node, relation, tail)
        if node != true and fact not in known:
            better += score(node) > score(true)
            equal += score(node) == score(true)
    return 1.0 + better + 0.5 * equal


def evaluation(known, test, num_tails=TAILS) -> EvaluationSet:
    negative, found = link_ranking.negative_triples(known, test, np.full(len(test), num_tails), seed=5)
    return EvaluationSet(link_ranking.ranking_chunks(known, NAMES, test), test, negative, found)


def task_over() -> LinkPrediction:
    """A task that only ranks."""
    task = object.__new__(LinkPrediction)
    task.ends = link_ranking.by_ends(NAMES)
    return task


@pytest.mark.parametrize("whole_numbers", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("block", [64, 3], ids=["at once", "in blocks"])
@pytest.mark.parametrize("seed", range(2))
def test_ranks_are_those_of_the_definition(seed, whole_numbers, block, monkeypatch):
    monkeypatch.setattr(link_ranking, "CHUNK", 4)  # several chunks, the last one padded
    monkeypatch.setattr(link_ranking, "BLOCK", block)
    known, test, rows, facts = problem(seed, whole_numbers=whole_numbers)
    jax.clear_caches()
    task = task_over()
    ranks, scores = task.ranks(rows, evaluation(known, test))
    for side in ("head", "tail"):
        expected = [reference_rank(rows, facts, triple, side) for triple in test]
        np.testing.assert_allclose(ranks[side], expected)
    np.testing.assert_allclose(
        scores,
        (rows.nodes["a"][test[:, 0]] * rows.relation[test[:, 1]] * rows.nodes["b"][test[:, 2]]).sum(axis=1),
        rtol=1e-5,
    )
    found = task._scores(rows, evaluation(known, test))
    joined = np.concatenate([ranks["head"], ranks["tail"]])
    assert found["mrr"] == pytest.approx(np.mean(1 / joined))
    for k in (1, 3, 10):
        assert found[f"hits@{k}"] == pytest.approx(np.mean(joined <= k))


def test_a_score_that_is_not_a_number_ranks_last():
    known, test, rows, _ = problem(0, whole_numbers=False)
    broken = rows._replace(nodes=dict(rows.nodes) | {"b": np.full_like(rows.nodes["b"], np.nan)})
    ranks, _ = task_over().ranks(broken, evaluation(known, test))
    assert (ranks["tail"] == TAILS).all()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_auc_is_the_share_of_ordered_pairs(positive, negative):
    pairs = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
    found = link_ranking.roc_auc(np.array(positive, float), np.array(negative, float))
    assert found == pytest.approx(np.mean(pairs))


def test_auc_of_nothing_is_no_number():
    assert np.isnan(link_ranking.roc_auc(np.zeros(0), np.ones(2)))


@given(st.integers(0, 500))
def test_negatives_are_no_known_facts(seed):
    known, test, _, facts = problem(seed, whole_numbers=False)
    negative, found = link_ranking.negative_triples(known, test, np.full(len(test), TAILS), seed=seed)
    everything = {tuple(fact) for fact in facts.tolist()}
    assert not any(tuple(triple) in everything for triple in negative[found].tolist())
    np.testing.assert_array_equal(negative[:, :2], test[:, :2])
    np.testing.assert_array_equal(known.contains(facts), np.ones(len(facts), bool))


def test_a_query_that_every_node_answers_gets_no_negative():
    relation = Relation("a", "r", "b")
    graph = HeteroGraph.from_arrays(num_nodes={"a": 1, "b": 2}, edges={relation: (np.zeros(2, int), np.arange(2))})
    test = np.array([[0, 0, 1]], np.int32)
    known = link_ranking.KnownFacts.of(graph, LinkTriples((relation,), {"test": test}))
    assert not link_ranking.negative_triples(known, test, np.array([2]), seed=0)[1].any()
