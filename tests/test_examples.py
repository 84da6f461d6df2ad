"""The examples: every script runs and says what it promises, notebooks equal scripts, the own model trains."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

import jhgnn
from jhgnn.nn import ModelConfig, whole_graph
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, bits, small

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISES = {
    "quick_start": [
        r"\d+ nodes of type paper",
        r"test micro-F1 0\.[6-9]",
        r"probabilities \(908, 3\)",
        r"embeddings \(908, 64\)",
        r"curves: \d{4,} bytes",
        r"the same scores: True",
    ],
    "own_model": [
        r"full-batch: test micro-F1 0\.[6-9]",
        r"mini-batches: test micro-F1 0\.[6-9]",
        r"own loop: loss .*, test accuracy 0\.[6-9]",
    ],
    "tables_to_predictions": [
        r"tables: customers\.csv, orders\.csv, products\.parquet\n",
        r"test micro-F1 0\.[7-9]",
        r"customer c7: (books|garden|sports) \(\d+%\)",
        r"right for 1\d\d of the 1\d\d",
        r"right for [34]\d of 40 new customers",
        r"c405 is (books|garden|sports), moved most by (product:rev_buys:customer|customer:buys:product); "
        r"a page of \d\d,\d{3} characters",
        r"the program gives the same: True",
    ],
    "where_the_time_goes": [
        r"FP +forward +\d",
        r"NA +backward +\d",
        r"PU +update +\d",
        r"takes most of the step: \w+, \d+%",
    ],
    "link_prediction": [
        r"full-graph: test MRR 0\.[0-9]*[1-9]",
        r"mini-batches: test MRR 0\.[0-9]*[1-9]",
        r"\d+ test links; best: .* at rank \d+",
    ],
}
"""What each script prints, as regular expressions."""


def load_by_path(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def own_model():
    """The module `own_model`, found by its name as a recipe would, in this process and its children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        patch.setenv("PYTHONPATH", str(EXAMPLES))
        yield importlib.import_module("own_model")
    sys.modules.pop("own_model", None)


def test_every_script_is_promised_and_listed():
    make = load_by_path(EXAMPLES / "notebooks" / "make.py")
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == set(PROMISES) == set(make.NAMES)
    listed = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| \[notebook\]\(notebooks/\1\.ipynb\)", readme(), re.MULTILINE)
    assert sorted(listed) == sorted(scripts)
    assert {path.stem for path in (EXAMPLES / "notebooks").glob("*.ipynb")} == scripts


def readme() -> str:
    return (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISES)
def test_a_script_runs_and_prints_what_it_promises(name, tmp_path, compile_cache):
    """In an empty folder, where it leaves nothing behind."""
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / f"{name}.py")]
    environment = os.environ | {"HOME": str(tmp_path / "home")}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    for promise in PROMISES[name]:
        assert re.search(promise, done.stdout), (promise, done.stdout)
    assert {path.name for path in tmp_path.iterdir()} <= {"home"}


@pytest.mark.parametrize("name", PROMISES)
def test_a_notebook_is_what_its_script_makes(name):
    make = load_by_path(EXAMPLES / "notebooks" / "make.py")
    written = (EXAMPLES / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert written == make.text_of(name), "run `python examples/notebooks/make.py`"
    cells = json.loads(written)["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    script = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    lines = [line for line in script.split('"""', 2)[2].splitlines() if line.strip()]
    outside = {line for line in lines if not line.startswith("#")}
    assert [line for line in code.splitlines() if line.strip() and not line.startswith("#")] == [
        line for line in lines if line in outside
    ]
    assert cells[0]["cell_type"] == "markdown"
    compile(code, name, "exec")


def test_the_maker_of_notebooks_keeps_comments_within_code():
    make = load_by_path(EXAMPLES / "notebooks" / "make.py")
    script = '"""Title.\n\nMore.\n"""\n\nimport os\n\n# %% One\n# Said.\nx = 1\n# kept\ny = 2\n\n# %% Two\nz = 3\n'
    assert make.cells(script) == [
        ("markdown", "# Title.\n\nMore."),
        ("code", "import os"),
        ("markdown", "## One\n\nSaid."),
        ("code", "x = 1\n# kept\ny = 2"),
        ("markdown", "## Two"),
        ("code", "z = 3"),
    ]


# The model of `own_model.py` (none of this touches the package)


@pytest.mark.usefixtures("compile_cache")
@pytest.mark.parametrize(
    "sampling", [{}, pytest.param({"sampling": IN_BATCHES}, marks=pytest.mark.slow)], ids=["full", "batches"]
)
def test_the_own_model_trains_by_class_and_by_name(own_model, sampling):
    graph = academic()
    by_class = small(graph, model=own_model.Choosing, **sampling)
    assert by_class.config.model.name == "own_model:Choosing"
    assert np.isfinite(by_class.scores["test_loss"])
    start = by_class.execution.initial_params(0)
    moved = {name for name, value in bits(by_class.params).items() if value != bits(start)[name]}
    assert any("gates" in name for name in moved)
    by_name = small(graph, model="own_model:Choosing", **sampling)
    assert bits(by_name.params) == bits(by_class.params)


def test_the_own_model_computes_its_formula(own_model):
    """One layer against NumPy in float64."""
    graph = academic()
    spec, inputs = whole_graph(graph)
    config = ModelConfig(hidden=6, layers=1, activation="none")
    model = own_model.Choosing(config, spec, rngs=nnx.Rngs(0))
    structure, params = nnx.split(model)
    found = jax.jit(lambda params, inputs: nnx.merge(structure, params).encode(inputs)["paper"])(params, inputs)
    (layer,) = model.layers
    features = {"paper": graph.features["paper"].toarray(), "author": graph.features["author"]}
    features["subject"] = np.asarray(model.embeddings.tables["subject"][...])
    x = {node_type: np.asarray(own, np.float64) for node_type, own in features.items()}

    def weight(projection, name):
        return np.asarray(projection.w_rio[...], np.float64)[projection.names.index(name)]

    expected = x["paper"] @ weight(layer.projections["paper"], "self")
    for relation, edges in graph.edges.items():
        if relation.target == "paper":
            gate = 1 / (1 + np.exp(-(x["paper"] @ weight(layer.gates["paper"], str(relation)) + 2)))
            sent = x[relation.source] @ weight(layer.projections[relation.source], str(relation))
            for node in range(graph.num_nodes["paper"]):
                senders = edges.senders[edges.indptr[node] : edges.indptr[node + 1]]
                if len(senders):
                    expected[node] += gate[node] * sent[senders].mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


FOUR_DEVICES = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 4)
import jhgnn
run = jhgnn.fit(
    jhgnn.load("jhgnn", sys.argv[1], progress=False), model="own_model:Choosing", hidden=8, layers=1, epochs=3,
    cache_dir="", sampling={"batch_size": 8, "fan_out": "3", "prefetch_threads": 0}, progress=False,
)
print(run.summary["devices"], run.scores["test_micro_f1"])
"""


@pytest.mark.slow
def test_the_own_model_trains_on_four_devices(own_model, academic_path, compile_cache):
    command = [sys.executable, "-c", FOUR_DEVICES, str(academic_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    devices, score = done.stdout.split()
    assert devices == "4"
    assert 0 <= float(score) <= 1


@pytest.mark.slow
def test_the_own_model_is_profiled_by_the_command(own_model, academic_path, tmp_path, compile_cache):
    arguments = ["--model.name", "own_model:Choosing", "--model.hidden", "8", "--model.layers", "2"]
    arguments += ["--data.format", "jhgnn", "--data.path", str(academic_path), "--run.dir", str(tmp_path / "profile")]
    command = [sys.executable, "-m", "jhgnn.profile", "--warm-up", "1", "--steps", "2", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    profile = json.loads((tmp_path / "profile" / "profile.json").read_text())
    found = {(row["stage"], row["direction"]) for row in profile["stages"]}
    assert {
        ("FP", "forward"),
        ("FP", "backward"),
        ("NA", "forward"),
        ("NA", "backward"),
        ("SF", "forward"),
        ("LC", "forward"),
        ("PU", "update"),
    } <= found


# `jhgnn.nn.whole_graph`, on which the loop of one's own stands


@pytest.mark.slow
@pytest.mark.usefixtures("compile_cache")
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_a_whole_graph_for_ones_own_loop_is_what_fit_reads(name):
    graph = academic()
    run = small(graph, model=name, rows="all")
    aggregation = run.execution.model.aggregation
    spec, inputs = whole_graph(graph, aggregation=aggregation)
    model = run.execution.model(run.execution.config.model, spec, rngs=nnx.Rngs(0))
    structure = nnx.split(model)[0]
    params = {key: value for key, value in run.params.items() if key != "classifier"}
    rows = jax.jit(lambda params, inputs: nnx.merge(structure, params).encode(inputs)["paper"])(params, inputs)
    np.testing.assert_allclose(rows, run.embeddings("paper"), rtol=1e-5, atol=1e-6)


def test_what_is_no_target_or_op_is_one_line():
    graph = academic()
    with pytest.raises(jhgnn.InputError, match="target 'venue' is not a node type of 'academic'; known: paper"):
        whole_graph(graph, target="venue")
    with pytest.raises(jhgnn.InputError, match="aggregation is 'mean'; need"):
        whole_graph(graph, aggregation="mean")
    bare = jhgnn.HeteroGraph.from_arrays(num_nodes={"a": 2}, edges={("a", "r", "a"): (np.array([0]), np.array([1]))})
    with pytest.raises(jhgnn.InputError, match="has no labelled node type; name the target"):
        whole_graph(bare)
    assert whole_graph(bare, target="a")[0].targets == ("a",)
