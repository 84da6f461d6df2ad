"""`python -m jhgnn.train`: bad input is one line and exit code 2, and nothing is lost."""

import fcntl
import gzip
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jhgnn import native
from jhgnn.data import save_graph
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.train import main
from tests.commands import finish, run_train, start, the_error, train_arguments
from tests.data import layouts

pytestmark = pytest.mark.usefixtures("compile_cache")

Arrange = Callable[[Path, Path], list[str]]
"""(an empty folder, the saved academic graph) -> arguments of a command that must be refused."""


def files(format: str, name: str = "", change: Callable[[bytes], bytes] | None = None) -> Arrange:
    """A tiny data set of a layout with one file changed."""

    def arrange(folder: Path, _: Path) -> list[str]:
        whole = {"arrays": lambda: {"x.npz": layouts.npz(**layouts.arrays())}}.get(format) or getattr(layouts, format)
        data = whole()
        if change is not None:
            assert data[name] != change(data[name])
            data[name] = change(data[name])
        layouts.write(data, folder / "data")
        return ["--data.format", format, "--data.path", str(folder / "data"), "--run.dir", str(folder / "run")]

    return arrange


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new, 1)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def truncated_zip(folder: Path, _: Path) -> list[str]:
    path = layouts.zipped(layouts.hgb(), folder / "hgb.zip")
    path.write_bytes(path.read_bytes()[:300])
    return ["--data.format", "hgb", "--data.path", str(path), "--run.dir", str(folder / "run")]


def options(*more: str, model: str = "rgcn") -> Arrange:
    return lambda folder, graph: train_arguments(graph, folder / "run", *more, model=model)


def recipe(text: str) -> Arrange:
    def arrange(folder: Path, graph: Path) -> list[str]:
        (folder / "recipe.toml").write_text(text)
        return train_arguments(graph, folder / "run", "--config", str(folder / "recipe.toml"))

    return arrange


def graph(change: Callable[[dict], object]) -> Arrange:
    """A small graph from arrays with something taken away, saved."""

    def arrange(folder: Path, _: Path) -> list[str]:
        arrays: dict = {
            "num_nodes": {"paper": 4, "author": 3},
            "edges": {("author", "writes", "paper"): (np.array([0, 1, 2]), np.array([0, 1, 3]))},
            "target": "paper",
            "labels": np.array([0, 1, 0, 1]),
            "splits": {"train": np.array([0, 1]), "test": np.array([2])},
        }
        change(arrays)
        path = save_graph(HeteroGraph.from_arrays(**arrays), folder / "graph")
        return train_arguments(path, folder / "run", model="han")

    return arrange


def below_a_file(folder: Path, graph: Path) -> list[str]:
    (folder / "file").write_text("precious")
    return train_arguments(graph, folder / "file" / "run")


def on_a_file(folder: Path, graph: Path) -> list[str]:
    (folder / "file").write_text("precious")
    return train_arguments(graph, folder / "file")


def path(*more: str) -> Arrange:
    return lambda folder, graph: [*more, "--run.dir", str(folder / "run")]


MEMORY = "1e-9"
OF_ONE_RELATION = ("--sgb.memory_limit_gib", "0.04")  # the largest of IMDB takes 22 MiB, and 107 in a mean
OF_WHOLE_GRAPH = ("--sgb.memory_limit_gib", "0.06")
OF_ONE_MEAN = ("--sgb.memory_limit_gib", "0.11")

REFUSED: dict[str, tuple[Arrange, str]] = {
    "truncated zip": (truncated_zip, "is not a complete zip"),
    "wrong counts": (
        files("ogb_mag", "raw/relations/paper___cites___paper/num-edge-list.csv.gz", lambda _: gzip.compress(b"5\n")),
        "says 5",
    ),
    "id out of range": (files("hgb", "link.dat", replaced(b"3\t5\t", b"3\t77\t")), "target 77"),
    "NaN features": (files("hgb", "node.dat", replaced(b"-1e-3", b"nan")), "attribute 1 is 'nan'"),
    "label out of range": (files("hgb", "label.dat", replaced(b"0,2", b"0,3")), "label 3"),
    "empty split in a file": (files("hgb", "label.dat.test", lambda _: b""), "has no labels"),
    "pickle for labels": (files("magnn", "labels.npy", lambda _: b"\x80\x04]."), "is a pickle"),
    "truncated array": (files("magnn", "adjM.npz", cut), "is damaged or truncated"),
    "truncated gzip": (files("rdf", "people_stripped.nt.gz", cut), "is damaged or truncated"),
    "truncated .mat": (files("acm_mat", "ACM3025.mat", cut), "not a readable .mat file"),
    "format of another layout": (
        lambda folder, graph: ["--data.format", "hgb", "--data.path", str(graph), "--run.dir", str(folder / "run")],
        "holds no node.dat",
    ),
    "no such path": (path("--data.format", "hgb", "--data.path", "/nowhere/at/all"), "does not exist"),
    "no path": (path("--data.format", "hgb", "--data.preset", ""), "data.path is empty"),
    "unknown preset": (path("--data.preset", "acmm"), "acmm"),
    "scale of real data": (options("--data.scale", "0.5"), "only synthetic data can be scaled"),
    "unknown target": (options("--data.target", "venue"), "'venue'"),
    "unknown format": (path("--data.format", "hgbb"), "data.format = 'hgbb' is not one of"),
    "no labels": (graph(lambda arrays: [arrays.pop(key) for key in ("labels", "splits")]), "has no labels"),
    "empty train split": (graph(lambda arrays: arrays["splits"].pop("train")), "the train split of 'paper' is empty"),
    "one class": (graph(lambda arrays: arrays.update(labels=np.zeros(4, int))), "classification needs two or more"),
    "HAN where no metapath is possible": (graph(lambda arrays: None), "no metapath leads from 'paper' back to itself"),
    "unknown type in a metapath": (options("--model.metapaths", "paper,venue,paper", model="han"), "venue"),
    "unknown initials in a metapath": (options("--model.metapaths", "PXP", model="han"), "PXP"),
    "unknown relation in a metapath": (options("--model.metapaths", "written_by,edits", model="han"), "edits"),
    "metapath that does not join": (
        options("--model.metapaths", "paper:written_by:author,subject:covers:paper", model="han"),
        "subject",
    ),
    "metapath that ends elsewhere": (options("--model.metapaths", "PA", model="han"), "HAN needs metapaths from"),
    "metapaths of R-GCN": (options("--model.metapaths", "PAP"), "model.metapaths are HAN's"),
    "semantic graphs over the memory limit": (
        options("--sgb.memory_limit_gib", MEMORY, "--model.metapaths", "PAP", model="han"),
        "limit",
    ),
    "dense attention over the memory limit": (
        options("--kernels.attention", "dense", "--sgb.memory_limit_gib", "1e-6", model="gat"),
        "kernels.attention = 'dense' needs",
    ),
    "dense mean over the memory limit": (
        options("--kernels.mean", "dense", "--sgb.memory_limit_gib", "1e-6", model="gcn"),
        "kernels.mean = 'dense' needs",
    ),
    "dense attention over the memory limit by all relations together": (
        path("--data.preset", "imdb", "--model.name", "rgat", "--kernels.attention", "dense", *OF_ONE_RELATION),
        "kernels.attention = 'dense' needs 59.9 MiB for '4 graphs together', over the limit of 41.0 MiB",
    ),
    "dense attention over the memory limit with the edges that training reads": (
        path("--data.preset", "imdb", "--model.name", "rgat", "--kernels.attention", "dense", *OF_WHOLE_GRAPH),
        "kernels.attention = 'dense' needs 84.9 MiB for '14 graphs together', over the limit of 61.4 MiB",
    ),
    "dense means over the memory limit by all relations together": (
        path("--data.preset", "imdb", "--model.name", "rgcn", "--kernels.mean", "dense", *OF_ONE_MEAN),
        "kernels.mean = 'dense' needs 145.7 MiB for '4 graphs together', over the limit of 112.6 MiB",
    ),
    "dense features over the memory limit": (
        options("--kernels.projection", "dense", "--sgb.memory_limit_gib", "1.5e-6", model="gcn"),
        "kernels.projection = 'dense' needs 1.9 KiB for 'paper'",
    ),
    "unknown implementation": (options("--kernels.mean", "fast"), "kernels.mean = 'fast' is not one of"),
    "kernels of tables without a GPU": (
        options("--kernels.tables", "native", "--sampling.batch_size", "2", "--sampling.fan_out", "2"),
        "kernels.tables = 'native': read_rows has no implementation 'native' on cpu; choose of 'xla'",
    ),
    "kernels of tables in full batches": (options("--kernels.tables", "xla"), "set sampling.batch_size, or use 'auto'"),
    "unknown recomputation policy": (options("--training.remat", "stages"), "did you mean stage?"),
    "unknown tensor to keep": (options("--training.remat", "fp_out,na_outt"), "did you mean na_out?"),
    "offload on the CPU": (options("--training.remat", "offload"), "does not work on the backend 'cpu'"),
    "budget that is no number": (options("--training.memory_budget", "plenty"), "text such as '12GiB'"),
    "budget and policy": (options("--training.memory_budget", "1GiB", "--training.remat", "na"), "leave one of them"),
    "parts of a full batch": (options("--training.micro_batches", "2"), "sampling.batch_size is 0"),
    "heads do not divide": (options("--model.heads", "3", model="han"), "not a multiple of model.heads = 3"),
    "unknown option": (options("--training.epoch", "3"), "did you mean --training.epochs?"),
    "option without its value": (options("--training.epochs"), "expected one argument"),
    "word for a number": (options("--training.epochs", "many"), "must be a whole number"),
    "infinite learning rate": (options("--training.learning_rate", "inf"), "must be a finite number"),
    "no seeds": (options("--seeds", "0"), "--seeds 0 must be at least 1"),
    "missing recipe": (options("--config", "/nowhere/x.toml"), "No such file"),
    "recipe is a folder": (options("--config", "/"), "recipe /: Is a directory"),
    "recipe is not TOML": (recipe("[model\n"), "not TOML"),
    "misspelt key": (recipe("[model]\nheds = 8\n"), "unknown key model.heds; did you mean heads?"),
    "value of the wrong type": (recipe('[training]\nepochs = "ten"\n'), "training.epochs = 'ten' must be a whole"),
    "run folder below a file": (below_a_file, "Not a directory"),
    "run folder is a file": (on_a_file, "run.dir"),
    "nothing to resume": (options("--resume"), "holds no run"),
}  # fmt: skip


def tree(folder: Path) -> dict[str, bytes]:
    """Every file and its bytes; folders as well."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line_and_leaves_everything_as_it_was(case, tmp_path, academic_path, capsys):
    arrange, expected = REFUSED[case]
    arguments = arrange(tmp_path, academic_path)
    before = tree(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert expected in the_error(captured.err)
    assert captured.out == ""
    assert tree(tmp_path) == before


def test_kernels_that_are_not_built_are_refused_by_name(tmp_path, academic_path, capsys, monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    assert main(train_arguments(academic_path, tmp_path / "run", "--kernels.mean", "native")) == 2
    assert "kernels.mean = 'native': the native CPU kernels are not built" in the_error(capsys.readouterr().err)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, academic_path, compile_cache) -> Path:
    """A run of three epochs; tests copy it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run_train(*train_arguments(academic_path, folder, "--training.epochs", "3")) == 0
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


RESUMES: dict[str, tuple[list[str], str]] = {
    "a run is there already": ([], "holds a run already; add --resume to continue it"),
    "another model": (["--resume", "--model.hidden", "32"], "resume: model.hidden is 32, but the run in"),
    "another seed": (["--resume", "--run.seed", "5"], "resume: run.seed is 5"),
    "another learning rate": (["--resume", "--training.learning_rate", "0.1"], "resume: training.learning_rate is 0.1"),
    "several seeds": (["--resume", "--seeds", "2"], "holds a run of one seed; leave --seeds out"),
}


@pytest.mark.parametrize("case", RESUMES)
def test_a_run_that_is_there_is_never_overwritten(case, run, tmp_path, academic_path, capsys):
    more, expected = RESUMES[case]
    before = tree(tmp_path)
    assert main(train_arguments(academic_path, run, "--training.epochs", "3", *more)) == 2
    assert expected in the_error(capsys.readouterr().err)
    assert tree(tmp_path) == before


def test_damaged_checkpoint_is_one_line(run, capsys):
    (checkpoint,) = (run / "checkpoints").iterdir()
    victim = max((path for path in checkpoint.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    victim.write_bytes(cut(victim.read_bytes()))
    assert main(["--resume", "--run.dir", str(run), "--training.epochs", "5"]) == 2
    assert "is damaged or missing" in the_error(capsys.readouterr().err)


def test_two_processes_cannot_share_a_run_folder(run, capsys):
    before = tree(run)
    handle = os.open(run, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        assert main(["--resume", "--run.dir", str(run), "--training.epochs", "5"]) == 2
    finally:
        os.close(handle)
    assert "another process trains in it" in the_error(capsys.readouterr().err)
    assert tree(run) == before


def test_decaying_schedule_keeps_its_length_on_resume(tmp_path, academic_path, capsys):
    arguments = train_arguments(academic_path, tmp_path / "run", "--training.schedule", "cosine")
    assert main([*arguments, "--training.epochs", "2"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--training.epochs", "3", "--resume"]) == 2
    assert "the cosine schedule of the run in" in the_error(capsys.readouterr().err)


def test_full_disk_is_one_line(tmp_path, academic_path, capsys, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "metrics.jsonl")

    monkeypatch.setattr("jhgnn.training.loop.Metrics", fail)
    run = tmp_path / "run"
    assert main(train_arguments(academic_path, run)) == 3
    assert the_error(capsys.readouterr().err) == (
        "error: metrics.jsonl: No space left on device; no checkpoint is left, so what was trained is lost; once that"
        f" is mended, continue with --resume --run.dir {run}"
    )


OUT_OF_MEMORY = [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 9 bytes")]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["host", "device"])
def test_lack_of_memory_is_one_line_with_ways_out(error, tmp_path, academic_path, capsys, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("jhgnn.training.whole_graph.WholeGraph.compile", fail)
    assert main(train_arguments(academic_path, tmp_path / "run")) == 1
    message = the_error(capsys.readouterr().err)
    assert message.startswith("error: out of memory: ")
    assert "training.memory_budget" in message


@pytest.mark.slow
def test_impossible_budget_is_one_line_with_the_smallest_possible_one(tmp_path, academic_path, capsys):
    command = train_arguments(academic_path, tmp_path / "run", "--training.epochs", "2", model="han")
    assert main([*command, "--training.memory_budget", "1KB"]) == 2
    found = re.search(r"the smallest possible one is (\d+) bytes", the_error(capsys.readouterr().err))
    assert found is not None
    assert not (tmp_path / "run").exists()
    assert main([*command, "--training.memory_budget", str(int(found[1]) - 1)]) == 2
    capsys.readouterr()
    assert main([*command, "--training.memory_budget", found[1]]) == 0
    assert "chosen" in capsys.readouterr().out


def test_faults_of_the_program_are_not_hidden(tmp_path, academic_path, monkeypatch):
    monkeypatch.setattr("jhgnn.training.whole_graph.WholeGraph.compile", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(train_arguments(academic_path, tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["truncated zip", "misspelt key", "unknown option", "run folder below a file", "metapath that ends elsewhere"],
)
def test_bad_input_of_a_real_process(case, tmp_path, academic_path):
    arrange, expected = REFUSED[case]
    code, stdout, stderr = finish(start("jhgnn.train", *arrange(tmp_path, academic_path)))
    assert (code, stdout) == (2, "")
    assert expected in the_error(stderr)
