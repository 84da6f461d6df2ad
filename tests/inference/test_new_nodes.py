"""A trained model on graphs that have grown, in another order, or with less in them: as by a full forward pass."""

import dataclasses

import jax
import numpy as np
import pytest

import jhgnn
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.inference.new_rows import learnt_rows
from jhgnn.inference.trained_on import TrainedOn
from jhgnn.run import without_updates
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, small

pytestmark = pytest.mark.usefixtures("compile_cache")


def part(graph: HeteroGraph, keep: dict[str, np.ndarray], **changes) -> HeteroGraph:
    """The graph of some nodes of some types, in this order; splits as far as they are kept."""
    keep = {name: keep.get(name, np.arange(count)) for name, count in graph.num_nodes.items()}
    place = {name: np.full(count, -1) for name, count in graph.num_nodes.items()}
    for name, ids in keep.items():
        place[name][ids] = np.arange(len(ids))
    edges = {}
    for relation, own in graph.edges.items():
        ends = place[relation.source][own.senders], place[relation.target][own.receivers]
        both = (ends[0] >= 0) & (ends[1] >= 0)
        edges[relation] = (ends[0][both], ends[1][both])
    target = graph.target
    places = {split: place[target][ids] for split, ids in graph.splits.items()}
    arguments = {
        "name": graph.name,
        "num_nodes": {name: len(ids) for name, ids in keep.items()},
        "edges": edges,
        "features": {name: matrix[keep[name]] for name, matrix in graph.features.items()},
        "target": target,
        "labels": graph.labels[keep[target]],
        "num_classes": graph.num_classes,
        "splits": {split: np.sort(own[own >= 0]) for split, own in places.items() if (own >= 0).any()},
        "keys": {name: keys[keep[name]] for name, keys in graph.keys.items()},
        "class_names": graph.class_names,
    }
    return HeteroGraph.from_arrays(**arguments | changes)


def with_keys(graph: HeteroGraph) -> HeteroGraph:
    """Strings for papers and subjects, integers for authors."""
    keys = {"paper": [f"p{number}" for number in range(graph.num_nodes["paper"])], "subject": ["ai", "bio", "cs", "db"]}
    strings = {name: np.array(each, np.dtypes.StringDType()) for name, each in keys.items()}
    return dataclasses.replace(graph, keys=strings | {"author": 100 + np.arange(graph.num_nodes["author"])})


def forward(run: jhgnn.Run, graph: HeteroGraph, params=None) -> np.ndarray:
    """The full forward pass of a run's weights on a graph that fits them, by the execution that trains."""
    execution = execution_of(pose(graph, without_updates(run.config)))
    rows = execution.rows(run.params if params is None else params, run.config.run.seed)
    return execution.task.predict(execution.structure, run.params if params is None else params, rows)


GONE = np.arange(3, 40, 5)  # a fifth of the papers
KEPT = np.setdiff1d(np.arange(40), GONE)


WAYS = [
    ("rgcn", {}),
    ("han", {}),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in [("rgat", {}), ("gcn", {}), ("gat", {})]),
    *(
        pytest.param(name, {"sampling": IN_BATCHES}, marks=pytest.mark.slow)
        for name in ("rgcn", "rgat", "han", "gcn", "gat")
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "sampling"), WAYS)
def test_papers_left_out_of_training_are_predicted_as_by_the_full_forward_pass(model, sampling):
    graph = academic()
    run = small(part(graph, {"paper": KEPT}), model=model, layers=2, epochs=4, learning_rate=0.03, **sampling)
    wanted = forward(run, graph)
    assert np.ptp(wanted[:, 0]) > 1e-3  # it says something
    np.testing.assert_allclose(run.predict(graph), wanted, atol=1e-6)
    asked = [*GONE[::-1].tolist(), 0, int(GONE[0])]
    np.testing.assert_allclose(run.predict(graph, nodes=asked), wanted[asked], atol=1e-6)


@pytest.mark.slow
def test_nothing_beyond_the_receptive_field_is_read():
    graph = academic()
    run = small(graph, model="rgcn", layers=1)
    predictor = run.predictor(graph)
    field = predictor._needed.field(np.array([7], np.int32))
    writes = graph.edges[graph.schema.relations[0]]
    writers = set(writes.senders[writes.receivers == 7].tolist())
    assert set(field.hops[0]["author"].tolist()) == writers
    assert field.hops[0]["paper"].tolist() == [7]
    assert len(field.hops[0]["subject"]) == 1
    assert "_execution" not in vars(predictor)


@pytest.mark.slow
def test_large_fields_are_computed_in_chunks(monkeypatch):
    graph = academic()
    run = small(graph, model="rgat", epochs=1)
    whole = run.predict(nodes=np.arange(40))
    monkeypatch.setattr("jhgnn.inference.needed_rows.CHUNK_EDGES", 5)
    monkeypatch.setattr("jhgnn.inference.needed_rows.CHUNK_ROWS", 3)
    np.testing.assert_allclose(run.predict(nodes=np.arange(40)), whole, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param("rgcn", marks=pytest.mark.slow), "rgat"])
def test_nodes_are_known_by_their_keys_in_any_order(model):
    graph = with_keys(academic())
    run = small(graph, model=model, layers=2)
    order = {"paper": np.random.default_rng(1).permutation(40), "subject": np.array([2, 0, 3, 1])}
    other = part(graph, order)
    wanted = run.predict()
    np.testing.assert_allclose(run.predict(other), wanted[order["paper"]], atol=1e-6)
    np.testing.assert_allclose(run.predict(other, nodes=["p9", "p0"]), wanted[[9, 0]], atol=1e-6)
    with pytest.raises(InputError, match=r"'p77' is no key of node type 'paper'"):
        run.predict(other, nodes=["p77"])


def test_a_new_node_of_a_learnable_type_is_refused_where_it_is_read():
    graph = with_keys(academic())
    run = small(part(graph, {"subject": np.array([0, 1, 3])}), model="rgcn", layers=1)
    with pytest.raises(InputError, match=r"'cs' of 'subject' is new \(one of 1 that are read\); .*--new-nodes mean"):
        run.predict(graph)
    covers = next(own for relation, own in graph.edges.items() if relation.name == "covers")
    joined = np.unique(covers.receivers[covers.senders == 2])
    others = np.setdiff1d(np.arange(40), joined)
    with pytest.raises(InputError, match="'cs' of 'subject' is new"):
        run.predict(graph, nodes=[f"p{joined[0]}"])
    known = forward(run, part(graph, {"subject": np.array([0, 1, 3])}))
    np.testing.assert_allclose(run.predict(graph, nodes=[f"p{each}" for each in others]), known[others], atol=1e-6)


def mean_row(graph: HeteroGraph, node_type: str, node: int, rows: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The rule in loops and float64."""
    found = []
    for relation, own in graph.edges.items():
        pairs = list(zip(own.senders.tolist(), own.receivers.tolist(), strict=True))
        if relation.source == relation.target == node_type:
            found += [rows[s] for s, r in pairs if r == node and old[s]]
            found += [rows[r] for s, r in pairs if s == node and old[r]]
            continue
        if relation.source == node_type:
            pairs = [(r, s) for s, r in pairs]
        elif relation.target != node_type:
            continue
        for other, own_end in pairs:
            if own_end == node:
                peers = [rows[each] for u, each in pairs if u == other and old[each]]
                found += [np.mean(np.array(peers, np.float64), axis=0)] if peers else []
    return np.mean(found, axis=0)


@pytest.mark.parametrize("model", ["rgcn", pytest.param("gat", marks=pytest.mark.slow)])
def test_new_nodes_of_learnable_types_get_the_mean_of_nodes_they_share_neighbours_with(model):
    graph = with_keys(academic())
    graph = dataclasses.replace(graph, features={"paper": graph.features["paper"]})  # authors and subjects are learnt
    cites = (np.array([0, 1, 1, 4]), np.array([1, 1, 5, 0]))
    edges = {relation: (own.senders, own.receivers) for relation, own in graph.edges.items()}
    graph = part(graph, {}, edges=edges | {("author", "knows", "author"): cites})
    kept = {"author": np.setdiff1d(np.arange(25), [0, 5, 24])}
    run = small(part(graph, kept), model=model, layers=1, epochs=4)
    tables = {name: np.asarray(table) for name, table in run.params["embeddings"]["tables"].items()}
    made = learnt_rows(run.predictor(graph).graph, run.trained_on, tables, "mean")
    for node_type, ids in kept.items():
        if node_type not in tables:
            continue
        old = np.zeros(graph.num_nodes[node_type], bool)
        old[ids] = True
        np.testing.assert_array_equal(made.tables[node_type][ids], tables[node_type])
        for node in np.flatnonzero(~old):
            if node_type == "author" and node == 24:  # isolated
                assert made.missing["author"].tolist() == [False] * 24 + [True]
                continue
            wanted = mean_row(graph, node_type, node, made.tables[node_type], old)
            np.testing.assert_allclose(made.tables[node_type][node], wanted, atol=1e-6)
    params = run.params | {"embeddings": {"tables": jax.device_put(dict(made.tables))}}
    wanted = forward(run, graph, params)
    np.testing.assert_allclose(run.predict(graph, new_nodes="mean"), wanted, atol=1e-6)
    np.testing.assert_allclose(run.predict(graph, new_nodes="mean", nodes=["p5", "p1"]), wanted[[5, 1]], atol=1e-6)


def test_a_new_node_without_neighbours_has_no_mean():
    graph = with_keys(academic())
    graph = dataclasses.replace(graph, features={"author": graph.features["author"]})  # papers are learnt
    run = small(part(graph, {"paper": np.arange(39)}), model="rgcn", layers=1)
    alone = {}
    for relation, own in graph.edges.items():
        stays = (own.senders if relation.source == "paper" else own.receivers) != 39
        alone[relation] = (own.senders[stays], own.receivers[stays])
    other = part(graph, {}, edges=alone)
    with pytest.raises(InputError, match=r"new node 'p39' of 'paper' shares no neighbour"):
        run.predict(other, new_nodes="mean", nodes=["p39"])
    with pytest.raises(InputError, match="new node 'p39'"):
        run.predict(other, new_nodes="mean")
    assert run.predict(graph, new_nodes="mean", nodes=["p39"]).shape == (1, 3)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("rgcn", "han", "gcn", "gat")]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rgat", *SLOW])
def test_relations_and_types_that_another_graph_lacks_change_nothing_elsewhere(model):
    """Subjects reach the first ten papers alone; without subjects, or their edges, the others are as they were."""
    graph = academic()
    few = {
        relation: ((own.senders, own.receivers) if "subject" not in (relation.source, relation.target) else None)
        for relation, own in graph.edges.items()
    }
    about = (np.arange(10) % 4, np.arange(10))
    edges = {
        relation: pairs or (about if relation.source == "subject" else about[::-1]) for relation, pairs in few.items()
    }
    with_some = part(graph, {}, edges=edges)
    run = small(with_some, model=model, layers=1)
    no_edges = part(graph, {}, edges={relation: pairs or ([], []) for relation, pairs in few.items()})
    counts = {name: count for name, count in graph.num_nodes.items() if name != "subject"}
    no_type = part(graph, {}, num_nodes=counts, edges={r: pairs for r, pairs in few.items() if pairs})
    found = [run.predict(other) for other in (no_edges, no_type)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    for other in (no_edges, no_type):
        np.testing.assert_allclose(run.predict(other, nodes=[3, 25]), run.predict(other)[[3, 25]], atol=1e-6)
    if model in ("rgcn", "rgat"):  # HAN and the erased graph mix in more
        np.testing.assert_allclose(found[0][10:], run.predict()[10:], atol=1e-6)


@pytest.mark.slow
def test_reverse_relations_of_training_are_made_of_the_other_graph():
    graph = academic()
    edges = {r: (own.senders, own.receivers) for r, own in graph.edges.items() if r.name in ("writes", "covers")}
    one_way = part(graph, {}, edges=edges)
    run = small(part(one_way, {"paper": KEPT}), model="rgcn", layers=2, reverse_relations=True)
    wanted = forward(run, one_way)
    np.testing.assert_allclose(run.predict(one_way), wanted, atol=1e-6)
    np.testing.assert_allclose(run.predict(one_way, nodes=GONE), wanted[GONE], atol=1e-6)


@pytest.mark.slow
def test_one_hot_inputs_know_nodes_by_key_and_refuse_new_ones():
    graph = with_keys(dataclasses.replace(academic(), features={}))
    run = small(graph, model="rgcn", one_hot=True)
    order = np.random.default_rng(1).permutation(40)
    np.testing.assert_allclose(run.predict(part(graph, {"paper": order})), run.predict()[order], atol=1e-6)
    other = small(part(graph, {"subject": np.arange(3)}), model="rgcn", one_hot=True)
    with pytest.raises(InputError, match=r"'db' of 'subject' is new, but with data.one_hot"):
        other.predict(graph)


@pytest.mark.slow
def test_several_classes_and_unlabelled_graphs_are_predicted():
    graph = academic(multi_label=True)
    run = small(part(graph, {"paper": KEPT}), model="rgcn")
    bare = part(graph, {}, target=None, labels=None, num_classes=None, splits=None)
    np.testing.assert_allclose(run.predict(bare), run.predict(graph), atol=0)
    table = run.predictor(bare).files(np.array([3, 0]))["predictions.csv"].splitlines()
    assert [line.split(",")[0] for line in table] == ["node", "3", "0"]
    assert table[1].endswith(",,")


def other_width(graph):
    return part(graph, {}, features={"paper": np.ones((40, 3)), "author": np.ones((25, 5))})


def new_relation(graph):
    edges = {relation: (own.senders, own.receivers) for relation, own in graph.edges.items()}
    return part(graph, {}, edges=edges | {("paper", "cites", "paper"): ([0], [1])})


REFUSED = {
    "width": (other_width, {}, r"features of 'paper' have 3 columns; training had 12"),
    "no features": (
        lambda graph: part(graph, {}, features={"paper": graph.features["paper"]}),
        {},
        r"'author' has no features, but training had 5 columns",
    ),
    "features of a learnt type": (
        lambda graph: part(graph, {}, features=dict(graph.features) | {"subject": np.ones((4, 2))}),
        {},
        r"'subject' has features, but training had none",
    ),
    "relation": (new_relation, {}, r"relation 'paper:cites:paper' has edges, but no weights"),
    "no targets": (
        lambda graph: part(graph, {"paper": np.zeros(0, int)}, splits=None),
        {},
        "has no nodes of type 'paper'",
    ),
    "fewer by position": (
        lambda graph: part(graph, {"subject": np.arange(3)}),
        {},
        r"has 3 nodes of 'subject', training had 4: without keys",
    ),
    "classes": (
        lambda graph: part(graph, {}, labels=np.arange(40) % 5, num_classes=5),
        {},
        r"has 5 classes; training had 3",
    ),
    "rule": (lambda graph: graph, {"new_nodes": "zeros"}, r"new_nodes is 'zeros'; need one of refuse, mean"),
    "number": (lambda graph: graph, {"nodes": [40]}, r"'40' is no key of node type 'paper'"),
}


@pytest.fixture(scope="module")
def trained(compile_cache) -> jhgnn.Run:
    return small(academic(), model="rgcn")


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_that_does_not_fit_is_refused_in_one_line(case, trained):
    make, arguments, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as caught:
        trained.predict(make(academic()), **arguments)
    assert "\n" not in str(caught.value)


def test_keys_that_training_had_must_be_there():
    run = small(with_keys(academic()), model="rgcn")
    with pytest.raises(InputError, match=r"nodes of 'subject' have no keys, by which training knew them"):
        run.predict(academic())


@pytest.mark.slow
def test_links_of_another_graph_are_refused():
    graph = academic()
    run = small(graph, model="rgcn", task={"name": "link_prediction", "relations": ["writes"]}, epochs=1)
    with pytest.raises(InputError, match=r"task.name = 'link_prediction': another graph"):
        run.predict(graph)
    assert TrainedOn.read(run.folder) is None


def test_what_a_run_remembers_is_read_as_it_was_written(tmp_path):
    from jhgnn.graph.feature_columns import FeatureColumn

    columns = {"paper": (FeatureColumn("words", "vector", 12, {"missing": False}),)}
    graph = dataclasses.replace(with_keys(academic()), columns=columns, class_names=("a", "b", "c"))
    trained = TrainedOn.of(graph, one_hot=False)
    trained.write(tmp_path)
    found = TrainedOn.read(tmp_path)
    for field in dataclasses.fields(trained):
        if field.name != "keys":
            assert getattr(found, field.name) == getattr(trained, field.name), field.name
    assert list(found.keys) == ["subject"]  # the others are known by their features
    assert found.keys["subject"].tolist() == ["ai", "bio", "cs", "db"]
    (tmp_path / "trained_on" / "graph.json").write_text('{"version": 1}')
    with pytest.raises(InputError, match="is damaged"):
        TrainedOn.read(tmp_path)
