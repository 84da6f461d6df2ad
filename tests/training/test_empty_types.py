"""Types without nodes and relations without edges change no run: they leave the graph before a model sees it."""

import dataclasses

import numpy as np
import pytest

import jhgnn
from jhgnn.graph.hetero_graph import EdgeSet
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation, Schema
from jhgnn.models import names
from jhgnn.train import main
from tests.commands import run_train, the_error, train_arguments
from tests.graph.empties import NOTHING, with_empties
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, bits, small

pytestmark = pytest.mark.usefixtures("compile_cache")

WAYS = {
    "full": {},
    "batches": {"sampling": IN_BATCHES},
    "layerwise": {"sampling": IN_BATCHES | {"evaluation": "layerwise"}},
}
IN_DEFAULT_SUITE = [("rgcn", "full"), ("rgcn", "batches")]
ALL = [(model, way) for model in names() for way in ("full", "batches")] + [("han", "layerwise")]
CASES = [case if case in IN_DEFAULT_SUITE else pytest.param(*case, marks=pytest.mark.slow) for case in ALL]


def assert_same(first: jhgnn.Run, second: jhgnn.Run) -> None:
    assert bits(first.params) == bits(second.params)
    assert first.metrics[-1] | {"step_ms": 0} == second.metrics[-1] | {"step_ms": 0}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "way"), CASES)
def test_every_model_learns_the_same_with_empty_types(model, way):
    graph = academic()
    first, second = (small(each, model=model, epochs=2, **WAYS[way]) for each in (graph, with_empties(graph)))
    assert_same(first, second)
    assert first.predict().tobytes() == second.predict().tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(("model", "way"), [("rgcn", {}), ("rgat", {"sampling": IN_BATCHES})])
def test_links_are_learnt_the_same_with_empty_types(model, way):
    graph = academic()
    task = {"name": "link_prediction", "relations": ["writes"], "negatives": 4}
    assert_same(*(small(each, model=model, task=task, epochs=2, **way) for each in (graph, with_empties(graph))))


def losing() -> jhgnn.HeteroGraph:
    """The only edge of a relation is a test link, so that no messages pass over it any more."""
    graph = academic()
    part_of = Relation("subject", "part_of", "subject")
    edges = {**graph.edges, part_of: EdgeSet.from_pairs(np.int32([0]), np.int32([1]), 4)}
    writes = next(relation for relation in graph.edges if relation.name == "writes")
    wrote = graph.edges[writes]
    triples = np.stack([wrote.senders, np.zeros(wrote.num_edges), wrote.receivers], axis=1).astype(np.int32)
    links = LinkTriples((writes, part_of), {"train": triples[:-9], "val": triples[-9:], "test": np.int32([[0, 1, 1]])})
    return dataclasses.replace(graph, schema=Schema(graph.schema.node_types, tuple(edges)), edges=edges, links=links)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rgcn", pytest.param("rgat", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "way", [{}, pytest.param({"sampling": IN_BATCHES}, marks=pytest.mark.slow)], ids=["full", "batches"]
)
def test_a_relation_whose_edges_are_all_held_out_is_survived(model, way):
    task = {"name": "link_prediction", "negatives": 4}
    run = small(losing(), model=model, task=task, layers=2, epochs=1, reverse_relations=True, **way)
    edges = {str(relation): own.num_edges for relation, own in run.execution.graph.edges.items()}
    assert edges["subject:part_of:subject"] == 0
    assert run.predict()["relation"].tolist()[-1] == "subject:part_of:subject"
    assert 0 < run.scores["test_mrr"] <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--model.metapaths", f"paper,{NOTHING},paper"],
            f"needs 'paper:never_{NOTHING}:{NOTHING}', which has no edges",
        ),
        (["--model.metapaths", "never_again"], "needs 'paper:never_again:paper', which has no edges in 'academic'"),
    ],
)
def test_a_metapath_through_nothing_is_refused_by_name(arguments, message, tmp_path, capsys):
    data = jhgnn.save_graph(with_empties(academic()), tmp_path / "graph")
    assert main(train_arguments(data, tmp_path / "run", *arguments, model="han")) == 2
    assert message in the_error(capsys.readouterr().err)


def test_links_of_nothing_are_refused_by_name(tmp_path, capsys):
    data = jhgnn.save_graph(with_empties(academic()), tmp_path / "graph")
    links = ["--task.name", "link_prediction", "--task.relations", "never_again"]
    assert main(train_arguments(data, tmp_path / "run", *links)) == 2
    assert "task.relations: 'never_again' needs 'paper:never_again:paper'" in the_error(capsys.readouterr().err)


@pytest.mark.slow
def test_the_command_trains_on_a_saved_graph_with_empty_types(tmp_path, academic_path):
    data = jhgnn.save_graph(with_empties(academic()), tmp_path / "graph")
    for number, path in enumerate((data, academic_path)):
        assert run_train(*train_arguments(path, tmp_path / f"run{number}", "--training.epochs", "2")) == 0
    runs = [jhgnn.Run.open(tmp_path / f"run{number}", progress=False) for number in range(2)]
    assert_same(*runs)
