"""`jhgnn.fit`: graphs and recipes, settings, what of it is one's own, and what is refused as a recipe would be."""

import dataclasses
import json
import re
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import jhgnn
from jhgnn import train
from jhgnn.config.recipe import to_toml
from jhgnn.config.settings import by_section
from jhgnn.errors import InputError
from jhgnn.tasks.class_counts import losses
from tests.commands import the_error
from tests.models.heterographs import academic
from tests.own_code import Gated, NoGradient, NumAuthors, cross_entropy

pytestmark = pytest.mark.usefixtures("compile_cache")

SMALL = {"hidden": 8, "heads": 2, "layers": 1, "epochs": 3, "cache_dir": "", "tensorboard": False, "progress": False}
"""A small model, and nothing outside the run's folder."""
IN_BATCHES = {"batch_size": 8, "fan_out": "3", "prefetch_threads": 0}


def small(source=None, /, **settings) -> jhgnn.Run:
    return jhgnn.fit(source, **(SMALL | settings))


def bits(params) -> dict[str, bytes]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in leaves}


def recipe_file(folder: Path, graph: Path, text: str = "") -> Path:
    """A recipe for a saved graph."""
    path = folder / "recipe_in.toml"
    own = "\n".join(["[data]", 'format = "jhgnn"', f'path = "{graph}"', "[sgb]", 'cache_dir = ""', text])
    path.write_text(own)
    return path


# What is trained on


def test_a_graph_in_memory_is_trained_and_keeps_nothing_behind():
    run = small(academic(), model="rgcn")
    assert (run.execution.graph.name, run.config.model.name, run.config.model.hidden) == ("academic", "rgcn", 8)
    folder = run.folder
    assert (folder / "recipe.toml").exists()
    assert (folder / "summary.json").exists()
    del run
    assert not folder.exists()


@pytest.mark.slow
def test_without_anything_a_small_synthetic_graph_is_trained():
    run = small(scale=0.02, epochs=1)
    assert (run.config.model.name, run.config.data.preset) == ("han", "acm")
    assert run.execution.graph.name.startswith("synthetic")


@pytest.mark.slow
def test_a_recipe_is_read_by_path_or_given_as_a_config(tmp_path, academic_path):
    path = recipe_file(tmp_path, academic_path, '[model]\nname = "rgcn"\nbases = 2\n')
    by_path = small(path)
    config = jhgnn.Config()
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, format="jhgnn", path=str(academic_path)),
        model=dataclasses.replace(config.model, name="rgcn", bases=2),
    )
    by_config = small(config)
    assert by_path.config.model == by_config.config.model
    assert by_path.config.model.bases == 2
    assert bits(by_path.params) == bits(by_config.params)
    assert by_path.scores == by_config.scores


def test_a_graph_takes_the_settings_of_a_recipe_and_not_its_data(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\nformat = "hgb"\npath = "/nowhere"\nreverse_relations = true\n[model]\nname = "rgcn"\n')
    run = small(academic(), recipe=path)
    assert (run.config.data.path, run.config.data.reverse_relations) == ("", True)
    assert run.config.model.name == "rgcn"
    with pytest.raises(InputError, match="fit: two recipes are given"):
        small(path, recipe=path)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    graph = academic()
    first, second, other = (small(graph, model="rgat", seed=seed) for seed in (5, 5, 6))
    assert bits(first.params) == bits(second.params)
    assert first.scores == second.scores
    assert bits(first.params) != bits(other.params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling", [{}, pytest.param({"sampling": IN_BATCHES}, marks=pytest.mark.slow)], ids=["full", "batches"]
)
def test_the_command_trains_the_same_parameters(tmp_path, academic_path, sampling):
    path = tmp_path / "both.toml"
    config = jhgnn.Config()
    config = dataclasses.replace(
        config,
        run=dataclasses.replace(config.run, tensorboard=False, dir=str(tmp_path / "command")),
        data=dataclasses.replace(config.data, format="jhgnn", path=str(academic_path)),
        model=dataclasses.replace(config.model, name="rgcn", hidden=8, layers=1),
        sgb=dataclasses.replace(config.sgb, cache_dir=""),
        training=dataclasses.replace(config.training, epochs=3),
        sampling=dataclasses.replace(config.sampling, **sampling.get("sampling", {})),
    )
    path.write_text(to_toml(config))
    assert train.main(["--config", str(path)]) == 0
    run = jhgnn.fit(path, folder=tmp_path / "python", progress=False)
    command = jhgnn.Run.open(tmp_path / "command", progress=False)
    assert bits(run.params) == bits(command.params)
    assert run.scores == command.scores
    with_folder = dataclasses.replace(command.config, run=run.config.run)
    assert (tmp_path / "python" / "recipe.toml").read_text() == to_toml(with_folder)


# Folders


@pytest.mark.slow
def test_the_folder_is_the_one_named_or_that_of_the_recipe(tmp_path):
    run = small(academic(), folder=tmp_path / "named", epochs=1)
    assert run.folder == tmp_path / "named"
    del run
    assert (tmp_path / "named" / "summary.json").exists()
    assert small(academic(), dir=str(tmp_path / "dir"), epochs=1).folder == tmp_path / "dir"
    with pytest.raises(InputError, match=r"holds a run already; name another folder, or open it with Run.open"):
        small(academic(), folder=tmp_path / "named")


def test_what_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(InputError):
        small(academic(), folder=tmp_path / "run", monitor="auc")
    assert not (tmp_path / "run").exists()

    class Broken(Gated):
        def encode(self, *arguments, **options):
            raise RuntimeError("a mistake of one's own")

    with pytest.raises(RuntimeError, match="a mistake of one's own"):
        small(academic(), folder=tmp_path / "run", model=Broken)
    assert not (tmp_path / "run").exists()  # so that the mended model can be tried in the same folder
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="Not a directory"):
        small(academic(), folder=tmp_path / "file" / "run")


# Settings


def test_settings_are_fields_by_name_or_sections():
    tables = by_section({"hidden": np.int64(8), "sampling": {"batch_size": 4}, "seed": 3, "path": Path("/x")}, "here")
    assert tables == {"model": {"hidden": 8}, "sampling": {"batch_size": 4}, "run": {"seed": 3}, "data": {"path": "/x"}}
    assert type(tables["model"]["hidden"]) is int
    sections = {"model": {"name": "rgcn", "hidden": 8, "layers": 1}, "training": {"epochs": 1}}
    settings = {"progress": False, "sgb": {"cache_dir": ""}, "run": {"tensorboard": False}}
    run = jhgnn.fit(academic(), **sections, **settings)
    assert (run.config.model.name, run.config.model.hidden, run.config.training.epochs) == ("rgcn", 8, 1)


LINKS = {"name": "link_prediction", "relations": ["writes"]}
TOGETHER = {
    "distributed": {"coordinator": "localhost:1", "num_processes": 2, "process_id": 0},
    "sampling": {"batch_size": 4},
    "dir": "unused",
}
PYTHON_ONLY = {
    "neither data nor recipe": (lambda graph: small(3), "int is nothing to train on"),
    "misspelt key": (lambda graph: small(graph, hiden=3), "unknown key hiden; did you mean hidden?"),
    "key of two sections": (
        lambda graph: small(graph, batch_size=3),
        "batch_size is a key of task and sampling; give task={'batch_size': ...} or sampling={'batch_size': ...}",
    ),
    "key given twice": (lambda graph: small(graph, model={"hidden": 8}), "model.hidden is given twice"),
    "data beside a graph": (lambda graph: small(graph, path="x"), "data.path says what to read, but a graph is given"),
    "model of another kind": (lambda graph: small(graph, model=3), "model must be a name, a class, or a dictionary"),
    "class of something else": (lambda graph: small(graph, model=dict), "'builtins:dict' is no subclass of"),
    "task of another kind": (lambda graph: small(graph, task=3), "task must be a name, a class, or a dictionary"),
    "task that is none": (lambda graph: small(graph, task=lambda own: 3), "makes no jhgnn.Task from a graph, but int"),
    "loss that is no function": (lambda graph: small(graph, loss="binary"), "loss must be a function of logits and"),
    "loss of links": (
        lambda graph: small(graph, model="rgcn", loss=cross_entropy, task=LINKS),
        "task 'link_prediction' takes no loss and no metrics of your own",
    ),
    "metric that is no function": (lambda graph: small(graph, metrics={"x": 3}), "metric 'x' must be a function, not"),
    "metrics without names": (lambda graph: small(graph, metrics=[max]), "metrics must be a dictionary of functions"),
    "metric of a known name": (lambda graph: small(graph, metrics={"loss": max}), "metric 'loss' is a figure already"),
    "callback that is no function": (lambda graph: small(graph, callbacks=[3]), "callback 0 must be a function, not"),
    "callbacks that are none": (lambda graph: small(graph, callbacks=print), "callbacks must be a list of functions"),
    "recipe that is a graph": (lambda graph: small(graph, recipe=graph), "HeteroGraph is nothing to train on"),
    "folder that is a number": (lambda graph: small(graph, folder=3), "fit: folder must be a path, not int"),
    "section with a number as key": (lambda graph: small(graph, sampling={3: 4}), "unknown key sampling.3"),
    "words for a rate": (lambda graph: small(graph, learning_rate="fast"), "learning_rate = 'fast' must be a number"),
    "a rate that is not a number": (lambda graph: small(graph, learning_rate=float("nan")), "must be a finite number"),
    "negative epochs": (lambda graph: small(graph, epochs=-1), "training.epochs = -1 must be at least 1"),
    "array for a width": (lambda graph: small(graph, hidden=np.array([8, 8])), "must be a whole number"),
    "base of all models": (lambda graph: small(graph, model=jhgnn.Model), "jhgnn.Model is the base of models"),
    "model without a layer": (lambda graph: small(graph, model=jhgnn.RelationalModel), "names no layer; set"),
    "metric with a number as name": (lambda graph: small(graph, metrics={3: max}), "metric 3 needs a text as its name"),
    "metric without a number": (
        lambda graph: small(graph, model="rgcn", metrics={"m": lambda logits, labels: None}),
        "metric 'm' gave None; need one number",
    ),
    "metric of each row": (
        lambda graph: small(graph, model="rgcn", metrics={"m": lambda logits, labels: labels}),
        "metric 'm' gave shape [20]; need one number",
    ),
    "loss of all rows at once": (
        lambda graph: small(graph, model="rgcn", loss=lambda logits, labels: logits.sum()),
        "the loss gave shape [] for 20 rows; need an array with one loss a row",
    ),
    "loss of each class": (
        lambda graph: small(graph, model="rgcn", loss=lambda logits, labels: logits),
        "the loss gave shape [20, 3] for 20 rows",
    ),
    "loss that gives nothing": (
        lambda graph: small(graph, model="rgcn", loss=lambda logits, labels: None),
        "the loss gave NoneType for 20 rows",
    ),
    "loss of whole numbers": (
        lambda graph: small(graph, model="rgcn", loss=lambda logits, labels: labels),
        "the loss gave int32 numbers; need floating ones",
    ),
    "several processes": (lambda graph: small(graph, **TOGETHER), "trains in one process; start several with"),
}  # fmt: skip


@pytest.mark.parametrize("case", PYTHON_ONLY)
def test_wrong_arguments_of_python_are_one_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = PYTHON_ONLY[case]
    with pytest.raises(InputError) as caught:
        call(academic())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_a_callback_raises_is_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def mistaken(result):
        raise ValueError("a mistake of one's own")

    with pytest.raises(ValueError, match="a mistake of one's own"):
        small(academic(), model="rgcn", callbacks=[mistaken])
    assert not list(tmp_path.glob("jhgnn-run-*"))


SAME_MISTAKE: dict[str, dict[str, dict]] = {
    "unknown model": {"model": {"name": "rgatt"}},
    "misspelt key": {"model": {"hiden": 3}},
    "misspelt section": {"samplng": {"batch_size": 4}},
    "word for a number": {"model": {"hidden": "many"}},
    "number for a word": {"training": {"optimizer": 3}},
    "out of bounds": {"model": {"dropout": 1.5}},
    "infinite": {"training": {"learning_rate": float("inf")}},
    "list for a word": {"training": {"monitor": ["loss"]}},
    "heads do not divide": {"model": {"name": "rgat", "hidden": 8, "heads": 3}},
    "bases of another model": {"model": {"name": "rgat", "bases": 2}},
    "metapath that does not join": {"model": {"name": "han", "metapaths": ["PXP"]}},
    "metapath that ends elsewhere": {"model": {"name": "han", "metapaths": ["PA"]}},
    "unknown monitor": {"training": {"monitor": "auc"}},
    "unknown kernel": {"kernels": {"mean": "fast"}},
    "kernel that does not fit": {"kernels": {"projection": "rows"}, "model": {"name": "rgcn"}},
    "unknown policy": {"training": {"remat": "stages"}},
    "policy of other devices": {"training": {"remat": "offload"}},
    "budget that is too small": {"training": {"memory_budget": "1KB"}, "model": {"name": "rgcn", "layers": 1}},
    "budget and policy": {"training": {"memory_budget": "1GiB", "remat": "na"}},
    "parts of a full batch": {"training": {"micro_batches": 2}},
    "batch that does not divide": {"sampling": {"batch_size": 9}, "training": {"micro_batches": 2}},
    "fan-out": {"sampling": {"batch_size": 8, "fan_out": "3,x"}},
    "walks of another model": {"sampling": {"batch_size": 8, "walks": 3}, "model": {"name": "rgcn"}},
    "rows of HAN": {"training": {"rows": "needed"}},
    "unknown task": {"task": {"name": "node_regression"}},
    "settings of another task": {"task": {"negatives": 3}},
    "unknown relation": {"task": {"name": "link_prediction", "relations": ["edits"]}, "model": {"name": "rgcn"}},
    "links without a relation": {"task": {"name": "link_prediction"}, "model": {"name": "rgcn"}},
    "links of HAN": {"task": {"name": "link_prediction", "relations": ["writes"]}},
    "module that is not there": {"model": {"name": "no_such_module:Model"}},
    "class that is not there": {"model": {"name": "tests.own_code:Gatedd"}},
    "loss that is not there": {"training": {"loss": "tests.own_code:entropy"}},
    "task that is not there": {"task": {"name": "tests.own_code:Nothing"}},
    "weights that are none": {"training": {"class_weights": "balance"}},
    "weight of a class that is not there": {"training": {"class_weights": "7=2"}},
    "weight of nothing": {"training": {"class_weights": "0=0"}},
    "weights and a loss of one's own": {
        "training": {"class_weights": "balanced", "loss": "tests.own_code:cross_entropy"},
    },
    "smoothing of a task of one's own": {
        "task": {"name": "tests.own_code:NumAuthors"},
        "training": {"label_smoothing": 0.1},
    },
}


def toml(tables: dict[str, dict]) -> str:
    def value(x):
        return "inf" if x == float("inf") else json.dumps(x)

    return "\n".join(
        f"[{name}]\n" + "\n".join(f"{k} = {value(v)}" for k, v in own.items()) for name, own in tables.items()
    )


@pytest.mark.parametrize("case", SAME_MISTAKE)
def test_a_mistake_is_refused_in_the_words_of_a_recipe(case, tmp_path, academic_path, capsys):
    tables = SAME_MISTAKE[case]
    path = recipe_file(tmp_path, academic_path, toml(tables))
    run_dir = ["--run.dir", str(tmp_path / "command")]
    assert train.main(["--config", str(path), *run_dir]) == 2
    error = the_error(capsys.readouterr().err).removeprefix("error: ").removeprefix(f"recipe {path}: ")
    more = {key: own for key, own in {"sgb": {"cache_dir": ""}}.items() if key not in tables}
    with pytest.raises(InputError) as caught:
        jhgnn.fit(academic(), **tables, **more, progress=False, folder=tmp_path / "python")
    assert str(caught.value).removeprefix("fit: ") == error
    assert not (tmp_path / "python").exists()


def without_labels(graph):
    return dataclasses.replace(graph, labels=None, splits={})


def without_training_nodes(graph):
    return dataclasses.replace(graph, splits={"test": graph.splits["test"]})


def of_one_class(graph):
    return dataclasses.replace(graph, labels=np.zeros_like(graph.labels), num_classes=1)


@pytest.mark.parametrize("change", [without_labels, without_training_nodes, of_one_class])
def test_a_graph_that_cannot_be_learnt_from_is_refused_in_the_words_of_a_recipe(change, tmp_path, capsys):
    graph = change(academic())
    path = recipe_file(tmp_path, jhgnn.save_graph(graph, tmp_path / "graph"))
    assert train.main(["--config", str(path), "--run.dir", str(tmp_path / "run")]) == 2
    error = the_error(capsys.readouterr().err).removeprefix("error: ")
    with pytest.raises(InputError) as caught:
        small(graph)
    assert str(caught.value) == re.sub(r"^data '.*?'", "data academic", error)


# Code of one's own


@pytest.mark.slow
def test_a_loss_of_ones_own_is_what_is_minimised():
    graph, own = academic(), {"model": "rgcn", "dropout": 0.0}
    plain, same = small(graph, **own), small(graph, loss=cross_entropy, **own)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), same.params, plain.params)
    nothing = small(graph, loss=lambda logits, labels: 0.0 * losses(logits, labels), weight_decay=0.0, **own)
    initial = nothing.execution.initial_params(0)
    assert bits(nothing.params) == bits(initial)
    # The figure keeps its meaning, so that runs can be compared.
    probabilities, test = nothing.predict(), graph.splits["test"]
    expected = -np.log(probabilities[test, graph.labels[test]]).mean()
    assert nothing.scores["test_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_loss_is_recorded_and_found_again_by_name(tmp_path):
    graph = academic()
    run = small(graph, model="rgcn", loss=cross_entropy, folder=tmp_path / "run")
    assert run.config.training.loss == "tests.own_code:cross_entropy"
    by_name = small(graph, model="rgcn", training={"loss": "tests.own_code:cross_entropy"})
    assert bits(run.params) == bits(by_name.params)
    data = jhgnn.save_graph(graph, tmp_path / "graph")
    where = ["--data.path", str(data), "--run.dir", str(run.folder)]
    recipe = (run.folder / "recipe.toml").read_text()
    (run.folder / "recipe.toml").write_text(recipe.replace('path = ""', f'path = "{data}"'))
    assert train.main([*where, "--resume", "--training.epochs", "5"]) == 0
    longer = small(graph, model="rgcn", loss=cross_entropy, epochs=5)
    assert bits(jhgnn.Run.open(run.folder, progress=False).params) == bits(longer.params)


def share_right(logits: np.ndarray, labels: np.ndarray) -> float:
    return float((logits.argmax(axis=1) == labels).mean())


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [{}, pytest.param(IN_BATCHES, marks=pytest.mark.slow)], ids=["full", "batches"])
def test_a_metric_of_ones_own_is_reported_and_may_pick_the_epoch(sampling, tmp_path):
    metrics = {"right": share_right, "worst_first": lambda logits, labels: -share_right(logits, labels)}
    more = {"sampling": sampling | {"evaluation": "layerwise"}} if sampling else {}
    run = small(
        academic(), model="rgcn", metrics=metrics, monitor="worst_first", epochs=8, learning_rate=0.05,
        folder=tmp_path / "run", **more,
    )  # fmt: skip
    for split in ("train", "val", "test"):
        assert run.scores[f"{split}_right"] == pytest.approx(run.scores[f"{split}_micro_f1"])
    found = [line["val_worst_first"] for line in run.metrics]
    assert len(set(found)) > 1
    assert run.best_epoch == 1 + int(np.argmax(found))
    opened = jhgnn.Run.open(tmp_path / "run", graph=academic(), progress=False)
    assert opened.scores == run.scores
    assert opened.config.training.monitor == "worst_first"


def test_callbacks_are_told_of_each_epoch_and_may_end_the_training():
    seen: list[jhgnn.EpochResult] = []
    norms: list[float] = []

    def stop_after_four(result):
        seen.append(result)
        return result.epoch == 4

    def norm(result):  # after the one that says stop, and still called
        norms.append(float(optax.tree.norm(result.params)))

    run = small(academic(), model="rgcn", epochs=50, evaluate_every=2, callbacks=[stop_after_four, norm])
    assert [result.epoch for result in seen] == [1, 2, 3, 4]
    assert len(norms) == 4
    assert len(set(norms)) == 4
    assert (run.summary["stopped_by"], run.summary["epochs"]) == ("callback", 4)
    assert [bool(result.scores) for result in seen] == [False, True, False, True]
    assert seen[1].scores["val"]["loss"] == run.metrics[0]["val_loss"]
    assert run.best_epoch == max(result.epoch for result in seen if result.is_best)


@pytest.mark.parametrize(
    "sampling", [{}, pytest.param({"sampling": IN_BATCHES}, marks=pytest.mark.slow)], ids=["full", "batches"]
)
def test_a_model_of_ones_own_trains_and_learns_its_own_parameters(sampling, tmp_path):
    graph = academic()
    run = small(graph, model=Gated, folder=tmp_path / "run", **sampling)
    assert run.config.model.name == "tests.own_code:Gated"
    gates = run.params["layers"][0]["gates"]
    assert set(gates) == {"author:writes:paper", "subject:covers:paper"}
    assert all(float(gate) != 0 for gate in gates.values())
    again = jhgnn.Run.open(tmp_path / "run", graph=graph, progress=False)
    np.testing.assert_array_equal(again.predict(), run.predict())
    by_name = small(graph, model="tests.own_code:Gated", **sampling)
    assert bits(by_name.params) == bits(run.params)


@pytest.mark.slow
def test_a_local_class_is_given_again_to_open_its_run(tmp_path):
    class Local(Gated):
        pass

    graph = academic()
    run = small(graph, model=Local, folder=tmp_path / "run")
    with pytest.raises(InputError, match=r"'tests.test_fit' has no 'test_a_local_class.*Local'"):
        jhgnn.Run.open(tmp_path / "run", graph=graph)
    again = jhgnn.Run.open(tmp_path / "run", graph=graph, model=Local, progress=False)
    np.testing.assert_array_equal(again.predict(), run.predict())


def test_a_task_may_change_what_the_package_has():
    run = small(academic(), model="rgcn", task=NoGradient, weight_decay=0.0)
    assert run.config.task.name == "tests.own_code:NoGradient"
    assert bits(run.params) == bits(run.execution.initial_params(0))
    assert run.scores["test_micro_f1"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling", [{}, pytest.param({"sampling": IN_BATCHES}, marks=pytest.mark.slow)], ids=["full", "batches"]
)
def test_a_task_of_ones_own_trains_is_evaluated_and_predicts(sampling, tmp_path, capsys):
    graph = academic()
    run = small(
        graph, model="rgcn", task=NumAuthors, epochs=40, learning_rate=0.05, folder=tmp_path / "run", **sampling
    )
    wanted = run.execution.task.wanted
    assert run.metrics[-1]["train_mae"] < 0.7 * run.metrics[0]["train_mae"]
    test = graph.splits["test"]
    assert run.scores["test_mae"] == pytest.approx(np.abs(run.predict()[test] - wanted[test]).mean(), rel=1e-4)
    again = jhgnn.Run.open(tmp_path / "run", graph=graph, progress=False)
    np.testing.assert_allclose(again.prediction_files()["authors.npy"], run.predict(), rtol=1e-6)
    assert run.plot().axes[1].get_title() == "mae"


@pytest.mark.slow
def test_a_task_of_ones_own_is_trained_by_the_command(tmp_path, academic_path, capsys):
    path = recipe_file(
        tmp_path,
        academic_path,
        toml({"task": {"name": "tests.own_code:NumAuthors"}, "model": {"name": "rgcn", "layers": 1, "hidden": 8}}),
    )
    arguments = ["--run.dir", str(tmp_path / "run"), "--training.epochs", "2", "--run.tensorboard", "false"]
    assert train.main(["--config", str(path), *arguments]) == 0
    assert "test mae" in capsys.readouterr().out
