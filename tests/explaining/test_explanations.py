"""Explanations against what they claim: probabilities, derivatives, removed edges, attention, and what is refused."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

import jhgnn
from jhgnn import explain
from jhgnn.__main__ import COMMANDS
from jhgnn.config.options import ExplainConfig
from jhgnn.data import save_graph
from jhgnn.errors import InputError
from jhgnn.explaining.explainer import Explainer
from jhgnn.explaining.field_program import FieldProgram
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.nn.observed import observing, show
from tests.commands import run_train, the_error, train_arguments
from tests.inference.test_new_nodes import with_keys
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, small

pytestmark = pytest.mark.usefixtures("compile_cache")
NODES = (3, 39)  # the last paper has no author
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("rgat", "han")]
FEW = ExplainConfig(steps=0, top=4)


@pytest.fixture(scope="module", params=["rgcn", *SLOW])
def run(request, compile_cache) -> jhgnn.Run:
    return small(academic(), model=request.param, layers=2, epochs=5)


@pytest.fixture(scope="module")
def explainer(run) -> Explainer:
    return Explainer(run.predictor(), FEW)


def log_odds(logits: np.ndarray, of: int) -> float:
    others = np.delete(logits.astype(np.float64), of)
    return float(logits[of] - np.log(np.exp(others).sum()))


def test_a_field_gives_the_probabilities_of_the_whole_graph(run, explainer):
    expected = run.predict()
    for node in NODES:
        found = explainer.explain(node)
        assert found.probability == pytest.approx(expected[node].max(), abs=1e-6)
        assert found.predicted == str(expected[node].argmax())


def test_gradients_are_finite_differences(explainer):
    """Of edges and of gates; parallel edges each have their own."""
    field, placed = explainer.field(NODES[0])
    program: FieldProgram = explainer._program
    logits = program.logits(field, placed)[0]
    of = int(logits.argmax())
    found = program.gradients(field, placed, of)
    shapes = (field.counts(), field.num_weights)
    ones = np.ones(field.num_weights, np.float32), np.ones(np.shape(found.gates), np.float32)

    @jax.jit
    def score(weights, gates):
        values = program._plain(placed, shapes)[0]
        return program._score_rows(explainer._on.params, placed, shapes, values, weights, gates)

    def slope(which: int, place) -> float:
        ends = []
        for step in (1e-2, -1e-2):
            moved = [each.copy() for each in ones]
            moved[which][place] += step
            ends.append(log_odds(np.asarray(score(*moved)), of))
        return (ends[0] - ends[1]) / 2e-2

    strongest = np.argsort(-np.abs(np.asarray(found.edges)))[:4]
    for edge in strongest:
        assert float(found.edges[edge]) == pytest.approx(slope(0, edge), rel=0.05, abs=2e-3)
    layer = len(field.plans) - 1
    for relation in range(len(program.names)):
        if program.names[relation] in field.plans[layer].relations:
            assert float(found.gates[layer, relation]) == pytest.approx(slope(1, (layer, relation)), rel=0.05, abs=4e-3)


def test_gates_are_sums_over_their_edges(explainer):
    field, placed = explainer.field(NODES[0])
    of = int(explainer._program.logits(field, placed)[0].argmax())
    found = explainer._program.gradients(field, placed, of)
    for number, name in enumerate(field.edges.names):
        own = np.asarray(found.edges)[: len(field.edges)][field.edges.of(name)].sum()
        assert float(np.asarray(found.gates)[:, number].sum()) == pytest.approx(float(own), abs=1e-5)


@pytest.mark.parametrize("model", ["rgcn", SLOW[0]])
def test_a_removed_edge_is_one_that_was_never_there(model):
    graph = academic()
    run = small(graph, model=model, layers=2, epochs=5)
    explainer = Explainer(run.predictor(), FEW)
    field, placed = explainer.field(NODES[0])
    keep = np.arange(len(field.edges)) % 3 != 0
    edges = dict(graph.edges)
    for number, relation in enumerate(field.edges.names):
        own = next(each for each in edges if str(each) == relation)
        left = np.ones(edges[own].num_edges, bool)
        left[field.edges.places[(field.edges.relations == number) & ~keep]] = False
        edges[own] = edges[own].chosen(left)
        assert isinstance(edges[own], EdgeSet)
    expected = run.predict(dataclasses.replace(graph, edges=edges), nodes=[NODES[0]])[0]
    found = explainer._program.probabilities(field, placed, keep)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_one_more_derivative_is_a_difference_of_gates(explainer):
    """Contributions of chains are derivatives of derivatives."""
    field, placed = explainer.field(NODES[0])
    program = explainer._program
    of = int(program.logits(field, placed)[0].argmax())
    chains = {each.relations: each.contribution for each in explainer_walks(explainer, field, placed, of)}
    assert any(len(chain) == 2 for chain in chains)
    for chain in chains:
        assert {*chain} <= {*program.names}
    last = program.plans[-1]
    relation = program.names.index(next(iter(last.relations)))
    found = program.mixed(field, placed, of, ((1, relation),))
    for number in range(len(program.names)):  # the order of the derivatives does not matter
        other = program.mixed(field, placed, of, ((0, number),))
        assert float(found[0, number]) == pytest.approx(float(other[1, relation]), abs=1e-5)


def explainer_walks(explainer, field, placed, of):
    from jhgnn.explaining.walks import walks

    gates = np.asarray(explainer._program.gradients(field, placed, of).gates)
    return walks(explainer._program, field, placed, of, gates)


def test_attention_is_divided_whole(run, explainer):
    """A layer lets a flow of 1 into the node, less the share of metapaths that a node on the way has no edges of."""
    found = explainer.explain(NODES[0])
    if run.execution.model.aggregation == "neighbor_mean":
        assert {each.attention for each in found.relations} == {None}
        assert "attention" not in found.fidelity
        return
    flow, layers = sum(each.attention for each in found.relations), len(run.execution.builder()(jax_rngs()).layers)
    assert layers - 0.5 < flow <= layers + 1e-5
    if not run.execution.model.fuses_over_targets:
        assert flow == pytest.approx(layers, abs=1e-5)
    assert bool(found.semantic_attention) == run.execution.model.fuses_over_targets
    for weights in found.semantic_attention.values():
        assert sum(weights.values()) == pytest.approx(1.0, abs=1e-6)


def jax_rngs():
    from flax import nnx

    return nnx.Rngs(0)


def test_nothing_is_shown_where_nobody_observes():
    show("edge attention", 0, "r", lambda: pytest.fail("computed"))
    with observing() as found:
        show("edge attention", 0, "r", lambda: jax.numpy.ones(1))
    assert [each.name for each in found] == ["r"]


@pytest.mark.slow
def test_masks_keep_what_the_class_needs():
    run = small(academic(), model="rgcn", layers=1, epochs=20, learning_rate=0.05)
    own = Explainer(run.predictor(), ExplainConfig(steps=100, top=2))
    field, scores = own.scores(NODES[0])
    assert scores.masks.shape == (len(field.edges),)
    assert ((scores.masks > 0) & (scores.masks < 1)).all()
    best = scores.gradients.argmax()
    if scores.gradients[best] > 0.1:
        assert scores.masks[best] > scores.masks[scores.gradients.argmin()]


def test_fidelity_leaves_out_and_keeps(explainer):
    field, placed = explainer.field(NODES[0])
    found = explainer.explain(NODES[0])
    scores = explainer.scores(NODES[0])[1]
    top = np.zeros(len(field.edges), bool)
    top[np.argsort(-scores.gradients, kind="stable")[: FEW.top]] = True
    of = int(explainer._program.logits(field, placed)[0].argmax())
    without, alone = (explainer._program.probabilities(field, placed, each)[of] for each in (~top, top))
    own = found.fidelity["gradients"]
    assert own.plus == pytest.approx(found.probability - without, abs=1e-6)
    assert own.minus == pytest.approx(found.probability - alone, abs=1e-6)
    assert own.num_edges == FEW.top
    assert "random" in found.fidelity
    assert "masks" not in found.fidelity


@pytest.mark.slow
@pytest.mark.parametrize("model", ["han", "rgat"])
def test_runs_of_mini_batches_and_of_several_classes_are_explained(model, tmp_path):
    graph = academic(multi_label=True)
    run = small(graph, model=model, epochs=2, sampling=IN_BATCHES | {"evaluation": "layerwise"})
    (found,) = run.explain([5], steps=3, top=3, folder=tmp_path / "out")
    assert 0 <= found.probability <= 1
    expected = run.predict()[5] if model == "rgat" else None
    if expected is not None:
        assert found.probability == pytest.approx(expected.max(), abs=1e-5)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"explanations.html", "explanations.json"}


REFUSED = {
    "setting": ({"tops": 3}, "explain: unknown setting 'tops'; did you mean top?"),
    "value": ({"top": 0}, r"explain: top = 0 must be at least 1"),
    "too large": ({"most_edges": 2, "steps": 0}, r"'3': the receptive field of this paper has over 2 edges"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_one_line(case, run):
    settings, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as caught:
        run.explain([NODES[0]], **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_model_of_erased_types_is_refused():
    with pytest.raises(InputError, match="passes messages over one graph with its types erased"):
        small(academic(), model="gcn", epochs=1).explain([0])


def test_the_command_writes_json_and_a_page_without_a_network(tmp_path, capsys):
    data = save_graph(dataclasses.replace(with_keys(academic()), class_names=("a<b", "b", "c")), tmp_path / "graph")
    assert run_train(*train_arguments(data, tmp_path / "run", "--training.epochs", "3")) == 0
    capsys.readouterr()
    words = ["--run", str(tmp_path / "run"), "--nodes", "p3,p39", "--steps", "5", "--top", "3"]
    assert explain.main(words) == 0
    said = capsys.readouterr().out
    assert "p3: " in said
    assert "2 explanations: " in said
    folder = tmp_path / "run" / "explanations"
    content = json.loads((folder / "explanations.json").read_text())
    assert [each["node"] for each in content] == ["p3", "p39"]
    assert content[0]["settings"]["top"] == 3
    assert {each["sender"] for each in content[0]["edges"]} <= {"ai", "bio", "cs", "db", *map(str, range(100, 125))}
    html = (folder / "explanations.html").read_text()
    assert html.count("<svg") == 2
    assert "p39" in html
    assert "a<b" not in html.replace("<body", "")
    assert not re.search(r"(src|href)=[\"']?(https?:|//)", html)
    for wrong, expected in (
        (["--nodes", "zz"], "'zz' is no key of node type 'paper'"),
        (["--nodes", "p3", "--top", "x"], "command line: top = 'x' must be a whole number"),
        (["--nodes", "p3", "--most-edges", "1"], "raise --most-edges"),
        (["--nodes", "p3", "--learning-rate", "0"], "learning_rate = 0.0 must be above 0"),
        ([], "--nodes"),
    ):
        assert explain.main(["--run", str(tmp_path / "run"), *wrong]) == 2
        assert expected in the_error(capsys.readouterr().err)
    assert COMMANDS["explain"][0] == "jhgnn.explain"
