"""`python -m bench.explaining`: do explanations find the metapath that was planted? Precision at k for three models.

In the graph of papers, authors, venues and terms every paper has three neighbours of each type. An author's papers
share a class; the papers of a venue or a term do not. The features of a paper say little of its class, so that those of
its authors' other papers are needed: what carries the predictions is the metapath PAP.
"""

import argparse
import json
from typing import Any

import numpy as np

import jhgnn
from jhgnn.config.options import ExplainConfig
from jhgnn.explaining.explainer import Explainer
from jhgnn.explaining.explanation import highest
from jhgnn.graph.hetero_graph import HeteroGraph

MODELS = ("rgcn", "rgat", "han")
CLASSES, EACH, K = 3, 3, 5


def planted(papers: int = 600, seed: int = 0) -> HeteroGraph:
    """The graph; a fifth of the papers trains and a fifth validates."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, CLASSES, papers)
    others = papers // 5
    of_author = np.arange(others) % CLASSES
    edges: dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]] = {}
    receivers = np.repeat(np.arange(papers), EACH)
    for node_type in ("author", "term", "venue"):
        senders = draw.integers(0, others, len(receivers))
        if node_type == "author":
            senders = np.array([draw.choice(np.flatnonzero(of_author == labels[paper])) for paper in receivers])
        edges[node_type, "of", "paper"] = senders, receivers
        edges["paper", "has", node_type] = receivers, senders
    features = draw.normal(size=(papers, 8))
    features[np.arange(papers), labels] += 0.7
    order = draw.permutation(papers)
    return HeteroGraph.from_arrays(
        name="planted PAP",
        num_nodes={"paper": papers, "author": others, "term": others, "venue": others},
        edges=edges,
        features={"paper": features} | {name: np.ones((others, 1)) for name in ("author", "term", "venue")},
        target="paper",
        labels=labels,
        splits=dict(zip(("train", "val", "test"), np.split(order, [papers // 5, 2 * papers // 5]), strict=True)),
    )


def measured(model: str, nodes: int, seed: int = 0) -> dict[str, float]:
    """Shares over test papers whose class was predicted: of a way's K highest edges that are of the planted metapath,
    and of papers whose longest chain with the highest contribution is the planted one."""
    graph = planted(seed=seed)
    settings: dict[str, Any] = {
        "hidden": 32,
        "heads": 4,
        "layers": 1 if model == "han" else 2,
        "epochs": 100,
        "learning_rate": 0.01,
    }
    run = jhgnn.fit(graph, model=model, seed=seed, cache_dir="", tensorboard=False, progress=False, **settings)
    assert graph.labels is not None
    right = run.predict().argmax(axis=1) == graph.labels
    chosen = [int(node) for node in graph.splits["test"] if right[node]][:nodes]
    explainer, found = Explainer(run.predictor(), ExplainConfig(top=K)), []
    for node in chosen:
        field, scores = explainer.scores(node)
        own = {way: [_is_planted(field.edges.names[field.edges.relations[e]]) for e in highest(each, K)]
               for way, each in scores.by_way().items()}  # fmt: skip
        walks = explainer.explain(node).metapaths
        longest = max(each.metapath.count(",") for each in walks)
        first = next(each.metapath for each in walks if each.metapath.count(",") == longest)
        own["metapaths"] = [all(map(_is_planted, first.split(",")))]
        found.append({way: float(np.mean(each)) for way, each in own.items()})
    return {"test_micro_f1": run.scores["test_micro_f1"], "papers": len(found)} | {
        way: float(np.mean([each[way] for each in found])) for way in found[0]
    }


def _is_planted(name: str) -> bool:
    return name == "PAP" or "author" in name


def main() -> None:
    """Prints a line of JSON for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="(default: all)")
    parser.add_argument("--papers", type=int, default=100, help="test papers that are explained (default 100)")
    options = parser.parse_args()
    for model in options.models:
        found = {name: round(value, 3) for name, value in measured(model, options.papers).items()}
        print(json.dumps({"model": model} | found), flush=True)


if __name__ == "__main__":
    main()
