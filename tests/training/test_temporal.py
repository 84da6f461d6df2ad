"""`sampling.temporal`: what comes after a node's time changes nothing of it, and answers planted there stay unfound."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jhgnn
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.models import find
from jhgnn.training.checks import check
from tests.training.minibatches import recipe, sampled

PAPERS = 240
LATER = 1_000
"""Times of papers are below; what gives their labels away comes so much later, so that it is after all papers."""


def planted(leak: str, seed: int = 0) -> HeteroGraph:
    """Papers with random labels, which nothing tells until after each paper's time.

    Then a label stands beside the paper (`edge`), or two hops away (`two hops`): by an edge with a time, from a topic
    that was always there, or by a node that is created then (`node`); `paper` is such a node of the papers' own type.
    """
    rng = np.random.default_rng(seed)
    papers = np.arange(PAPERS)
    labels, times = rng.integers(0, 2, PAPERS), rng.permutation(PAPERS)
    nodes = {"paper": PAPERS, "author": PAPERS, "topic": 2, "note": PAPERS}
    features = {
        "paper": rng.normal(size=(PAPERS, 4)),
        "author": rng.normal(size=(PAPERS, 4)),
        "topic": np.eye(2),
        "note": np.zeros((PAPERS, 2)),
    }
    node_times = {"paper": times}

    def edges(senders, receivers, at, num_targets=PAPERS):
        return EdgeSet.from_pairs(senders, receivers, num_targets, times=at)

    own = {
        ("author", "writes", "paper"): edges(papers, papers, times),
        ("paper", "cites", "paper"): edges(rng.integers(0, PAPERS, 300), rng.integers(0, PAPERS, 300), np.zeros(300)),
    }
    after = times + rng.integers(1, LATER, PAPERS)
    if leak == "edge":
        own["topic", "of", "paper"] = edges(labels, papers, after)
    elif leak == "two hops":
        own["topic", "known_for", "author"] = edges(labels, papers, after)
    elif leak == "node":
        features["note"] = np.eye(2)[labels]
        node_times["note"] = after
        own["note", "on", "paper"] = (papers, papers)
    else:
        nodes["paper"] = 2 * PAPERS
        told = np.concatenate([np.eye(2)[labels], np.zeros((PAPERS, 2))], axis=1)
        features["paper"] = np.concatenate([features["paper"], 9 * told])
        node_times["paper"] = np.concatenate([times, after])
        own = {("paper", "cites", "paper"): (PAPERS + papers, papers)}
    graph = HeteroGraph.from_arrays(
        num_nodes=nodes,
        edges={each: own[each] for each in own},
        features=features,
        target="paper",
        labels=np.concatenate([labels, np.full(nodes["paper"] - PAPERS, -1)]),
        node_times=node_times,
        splits={
            "train": papers[times < 120],
            "val": papers[(times >= 120) & (times < 140)],
            "test": papers[times >= 140],
        },
    )
    return graph.with_reverse_relations() if leak == "two hops" else graph


def score(graph: HeteroGraph, model: str, leak: str, temporal: str) -> float:
    """Test accuracy."""
    hops = {"fan_out": "5"} | ({"walks": 8} if model == "han" else {})
    own = {"metapaths": ["cites"]} if model == "han" else {"layers": 2 if leak == "two hops" else 1}
    run = jhgnn.fit(
        graph,
        model={"name": model, "hidden": 16, "heads": 2, "dropout": 0.0, **own},
        training={"epochs": 20, "evaluate_every": 5, "patience": 0, "learning_rate": 0.03, "weight_decay": 0.0},
        sampling={"batch_size": 60, "temporal": temporal, "prefetch_threads": 0, **hops},
        tensorboard=False,
        progress=False,
    )
    return run.scores["test_micro_f1"]


LEAKS = [
    ("rgcn", "two hops"),
    ("rgcn", "edge"),
    ("rgcn", "node"),
    ("rgat", "two hops"),
    ("rgat", "node"),
    ("han", "paper"),
]


@pytest.mark.parametrize(
    ("model", "leak"),
    [
        pytest.param(*each, marks=() if each == ("rgcn", "edge") else (pytest.mark.slow, pytest.mark.long))
        for each in LEAKS
    ],
)
def test_an_answer_planted_after_each_papers_time_is_found_only_without_times(model, leak):
    graph = planted(leak)
    assert score(graph, model, leak, "none") > 0.97
    for rule in ("until",) if (model, leak) == ("rgcn", "edge") else ("until", "before"):
        assert score(graph, model, leak, rule) < 0.65  # of 100 papers in two classes


def rewired(graph: HeteroGraph, moment: int, rng: np.random.Generator) -> HeteroGraph:
    """The graph with other senders, more edges and other features after a moment."""
    edges = {}
    for relation, own in graph.edges.items():
        later = own.times > moment
        count = int(later.sum())
        senders, receivers = own.senders.copy(), own.receivers
        senders[later] = rng.integers(0, graph.num_nodes[relation.source], count)
        more = rng.integers(0, 5)
        edges[relation] = EdgeSet.from_pairs(
            np.concatenate([senders, rng.integers(0, graph.num_nodes[relation.source], more)]),
            np.concatenate([receivers, rng.integers(0, graph.num_nodes[relation.target], more)]),
            own.num_targets,
            times=np.concatenate([own.times, rng.integers(moment + 1, 99, more)]),
        )
    features = {
        name: np.where((graph.node_times[name] > moment)[:, None], rng.normal(size=matrix.shape), matrix)
        for name, matrix in graph.features.items()
    }
    return dataclasses.replace(
        graph, edges=edges, features={name: x.astype(np.float32) for name, x in features.items()}
    )


@pytest.mark.parametrize(
    "name", ["rgcn", *(pytest.param(name, marks=(pytest.mark.slow, pytest.mark.long)) for name in ("rgat", "han"))]
)
@given(seed=st.integers(0, 1000), moment=st.integers(0, 6))
@settings(max_examples=2, deadline=None)
def test_what_comes_later_changes_no_row(name, seed, moment):
    rng = np.random.default_rng(seed)
    count = {"paper": 14, "author": 9}

    def edges(source, target):
        ends = rng.integers(0, count[source], 40), rng.integers(0, count[target], 40)
        return EdgeSet.from_pairs(*ends, count[target], times=rng.integers(0, 8, 40))

    graph = HeteroGraph.from_arrays(
        num_nodes=count,
        edges={
            ("author", "writes", "paper"): edges("author", "paper"),
            ("paper", "of", "author"): edges("paper", "author"),
            ("paper", "cites", "paper"): edges("paper", "paper"),
        },
        features={name: rng.normal(size=(own, 3)) for name, own in count.items()},
        target="paper",
        labels=np.arange(14) % 2,
        splits={"train": np.arange(14)},
        node_times={name: rng.integers(0, 8, own) for name, own in count.items()},
    )
    own = {"metapaths": ("PAP", "cites")} if name == "han" else {}
    config = recipe(name, sampling={"temporal": "until", "fan_out": "2", "walks": 3 if name == "han" else 0}, **own)
    if name == "han":  # fuses over all targets of a batch, of whom there is then one
        config = override(config, {"sampling": {"batch_size": 1}}, where="test")
    first = sampled(graph, config)
    params = first.initial_params(1)
    before = np.flatnonzero(graph.node_times["paper"] <= moment)
    expected = first.rows(params, 3)["paper"]
    found = sampled(rewired(graph, moment, rng), config).rows(params, 3)["paper"]
    np.testing.assert_allclose(found[before], expected[before], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_predictions_of_a_run_and_of_its_graph_are_the_same():
    graph = planted("edge")
    run = jhgnn.fit(
        graph, model={"name": "rgcn", "layers": 1, "hidden": 8}, epochs=1, tensorboard=False, progress=False,
        sampling={"batch_size": 60, "fan_out": "all", "temporal": "until"},
    )  # fmt: skip
    own = run.predict()
    np.testing.assert_allclose(run.predict(graph), own, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run.predict(nodes=[7, 3]), own[[7, 3]], rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match=r"use predict, which neither explains nor exports"):
        run.explain([0])
    with pytest.raises(InputError, match=r"takes neighbours of all times"):
        run.predict(graph, new_nodes="mean")


REFUSED = {
    "full batch": ({}, "a full batch gives all the same; set sampling.batch_size"),
    "device": ({"sampling": {"batch_size": 4, "side": "device"}}, "leave sampling.side out"),
    "layer by layer": ({"sampling": {"batch_size": 4, "evaluation": "layerwise"}}, "gives each node one row"),
    "hot": ({"sampling": {"batch_size": 4, "hot": "exact"}}, "keeps one row for all times"),
    "cache": ({"sampling": {"batch_size": 4, "cache": 1000}}, "does not go with sampling.cache"),
    "parts": (
        {"sampling": {"batch_size": 4}, "distributed": {"strategy": "owner", "method": "random"}},
        "does not go with distributed.strategy = 'owner'",
    ),
    "built metapaths": ({"sampling": {"batch_size": 4}, "model": {"name": "han"}}, "walk the metapaths"),
    "erased": ({"sampling": {"batch_size": 4}, "model": {"name": "gcn"}}, "'gcn' erases types"),
    "links": (
        {"sampling": {"batch_size": 4}, "task": {"name": "link_prediction", "negatives": 3}},
        "for links use task.until_training",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_see_other_times_is_refused(case):
    tables = {"model": {"name": "rgcn"}} | REFUSED[case][0]
    tables["sampling"] = tables.get("sampling", {}) | {"temporal": "until"}
    config = override(Config(), tables, where="test")
    with pytest.raises(InputError) as caught:
        check(config, find(config.model.name))
    assert REFUSED[case][1] in str(caught.value)
    assert "\n" not in str(caught.value)
