"""The command of the comparison: checking, budgets, being killed, a whole run with stand-ins."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import compare
from bench.compare import cut_off
from bench.comparison import measure
from bench.comparison.cases import CASES, MOLECULE_CASES
from bench.comparison.environment import peers_python
from bench.comparison.protocol import Worker
from bench.comparison.report import BEGIN, END
from bench.record import ROOT
from tests.models.heterographs import academic


def bench_compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.compare", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def code_of(monkeypatch, *arguments: str) -> int:
    """The same in this process, which has imported everything: its exit code."""
    monkeypatch.setattr(sys, "argv", ["bench.compare", *arguments])
    return compare.main()


def test_a_case_cut_off_by_the_budget_is_not_kept():
    done, timed_out = {"epoch_ms": 1.0}, {"missing": "time budget spent"}
    absent = {"dgl": "no wheel", "pyg": ""}
    assert cut_off({"jhgnn": done, "pyg": timed_out}, absent, 0.0)
    assert not cut_off({"jhgnn": done, "pyg": done, "dgl": {"missing": "no wheel"}}, absent, 0.0)
    assert not cut_off({"jhgnn": done, "pyg": {"missing": "out of memory"}}, absent, 60.0)


CELL = {"variant": "auto", "epoch_ms": 1.0, "spread": 0.0, "first_epoch_s": 1.0}


@pytest.mark.parametrize(("now_ms", "code"), [(1.02, 0), (2.0, 1)])
def test_check_ends_with_1_where_a_cell_became_slower(now_ms, code, tmp_path, monkeypatch, capsys):
    before, now = tmp_path / "before.json", tmp_path / "now.json"
    before.write_text(json.dumps({"cells": {"han-acm": {"jhgnn": CELL}}, "complete": True}))
    now.write_text(json.dumps({"cells": {"han-acm": {"jhgnn": CELL | {"epoch_ms": now_ms}}}, "complete": True}))
    assert code_of(monkeypatch, "--check", "--output", str(now), "--against", str(before)) == code
    assert ("han-acm jhgnn: 2.00 ms an epoch, 1.00 before" in capsys.readouterr().out) == (code == 1)


def test_check_without_an_earlier_run(tmp_path, monkeypatch, capsys):
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"cells": {"han-acm": {"jhgnn": CELL}}, "complete": True}))
    assert code_of(monkeypatch, "--check", "--output", str(path)) == 2
    assert "no earlier run to compare with" in capsys.readouterr().err


def test_an_unknown_case(tmp_path, monkeypatch, capsys):
    assert code_of(monkeypatch, "--cases", "han-cora", "--output", str(tmp_path / "r.json")) == 2
    assert "han-cora: unknown" in capsys.readouterr().err


def test_a_broken_file_ends_with_one_line_and_stays_as_it_was(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("{")
    done = bench_compare("--output", str(path), "--quick")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {path}: not a stored comparison")
    assert path.read_text() == "{"


def test_the_budget_counts_what_came_before(tmp_path, monkeypatch, capsys):
    """`make compare` installs first: where that took all the time, the next run measures."""
    monkeypatch.setattr(compare, "create_peers", list)
    monkeypatch.setattr(compare, "missing", lambda peer: "")
    monkeypatch.setattr(compare, "is_real", lambda dataset: True)
    started = str(time.time() - compare.QUICK_BUDGET_S)
    assert code_of(monkeypatch, "--quick", "--output", str(tmp_path / "r.json"), "--started", started) == 0
    lines = capsys.readouterr().out.splitlines()
    spent = "not measured, the time budget is spent; run the same command again"
    assert lines[:-1] == [f"{case.name}: {spent}" for case in compare.TIMED]
    assert "nothing measured" in lines[-1]


@pytest.mark.slow
def test_killed_half_way_it_resumes_and_keeps_what_it_had(tmp_path):
    """A real SIGKILL after the first of two cases; the second run measures only the other one."""
    if not peers_python().exists():
        pytest.skip("no peers; `make compare` creates them")
    output, page = tmp_path / "r.json", tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"{BEGIN}\n{END}\n")
    arguments = ["--quick", "--cases", "rgcn-acm", "rgcn-imdb", "--output", str(output), "--page", str(page)]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.compare", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 400
    while time.monotonic() < end and process.poll() is None:
        if output.exists() and json.loads(output.read_text())["cells"]:
            break
        time.sleep(0.2)
    process.kill()
    process.wait(30)
    first = json.loads(output.read_text())
    assert list(first["cells"]) == ["rgcn-acm"]
    assert not first["complete"]
    done = bench_compare(*arguments)
    assert done.returncode == 0, done.stderr
    assert "resumed: 1 of 2 cases are done" in done.stdout
    second = json.loads(output.read_text())
    assert second["cells"]["rgcn-acm"] == first["cells"]["rgcn-acm"]
    assert list(second["cells"]) == ["rgcn-acm", "rgcn-imdb"]
    assert second["complete"]
    assert "| rgcn-imdb |" in page.read_text()


STAND_IN = """
import sys
from bench.comparison.protocol import serve

def batch(**_):
    return {"batch_s": 1e-3, "wait_s": 2e-4, "loss": 1.0, "targets": 8}

serve({
    "open": lambda framework, settings, **_: {
        "import_s": 0.1, "read_s": 0.1, "versions": {framework: "1"}, "device": "cpu", "features": FEATURES,
        "variants": ["in turn", "ahead"] if settings["batch_size"] else list(FEATURES)},
    "first_weights": lambda folder, seed: {"weights": {"default": f"{folder}/{seed}.npz"}},
    "build": lambda **_: {"sgb_s": 0.1, "params": 1, "peak_before_bytes": 1},
    "epochs": lambda count: {"epochs": [
        {"epoch_s": 1e-3, "forward_s": 4e-4, "backward_s": 5e-4, "update_s": 1e-4}] * count},
    "forward": lambda count: {"forward_s": [4e-4] * count},
    "build_minibatches": lambda seed: {"build_s": 0.1, "params": 1, "peak_before_bytes": 1},
    "load_batches": lambda variant: {},
    "batches": lambda count: {"batches": [batch() for _ in range(count)]},
    "train": lambda target_f1: {"test_micro_f1": 0.9, "test_macro_f1": 0.9, "best_epoch": 3, "epochs": 9,
                                "epochs_to_target": 2},
    "memory": lambda: {"process_peak_bytes": 2**20, "device_peak_bytes": 0},
})
"""


DEFAULTS = (measure.DEFAULT_VARIANTS["dgl", "rgcn"], measure.DEFAULT_VARIANTS["pyg", "rgcn"])


FEATURES = dict.fromkeys(("auto", "all rows", "in turn", "ahead", *DEFAULTS), "sparse") | {"dense features": "dense"}


def test_a_whole_run_fills_every_table(tmp_path, monkeypatch):
    """Stand-ins for all frameworks: every kind of cell is measured, stored, resumed and drawn."""
    monkeypatch.setattr(measure, "read_dataset", lambda dataset: academic())
    monkeypatch.setattr(measure, "export", lambda graph, config, folder: folder.mkdir(parents=True))
    monkeypatch.setattr(measure, "peers_python", lambda: Path(sys.executable))
    monkeypatch.setattr(compare, "create_peers", list)
    monkeypatch.setattr(compare, "missing", lambda peer: "")
    monkeypatch.setattr(compare, "is_real", lambda dataset: True)
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    code = STAND_IN.replace("FEATURES", repr(FEATURES))

    def stand_in(command, root, environment, log):
        return Worker([sys.executable, "-c", code], ROOT, environment, log)

    monkeypatch.setattr(measure, "Worker", stand_in)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"{BEGIN}\n{END}\n")
    arguments = ["bench.compare", "--cases", "rgcn-acm", "rgcn-mag", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--output", str(tmp_path / "r.json"), "--page", str(page)])
    assert compare.main() == 0
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["complete"]
    assert data["provisional"] == []
    assert data["cells"]["rgcn-acm"]["dgl"]["tried"].keys() == FEATURES.keys()
    assert data["cells"]["rgcn-acm"].keys() >= {"jhgnn", "dgl", "pyg"}
    assert data["cells"]["rgcn-acm"]["jhgnn"].keys() >= {"epoch_ms", "forward_ms", "cold_s", "start_s", "sgb_s"}
    assert data["cells"]["rgcn-mag"]["pyg"]["modes"].keys() == {"in turn", "ahead"}
    assert data["accuracy"]["rgcn-acm"]["pyg"].keys() == {"0", "1"}
    text = page.read_text()
    for heading in (
        *("Full-batch epoch", "all rows computed by us as well", "dense features on every side"),
        "features as each one's models take them",
        *("Forward and backward", "First epoch", "Semantic graph"),
        *("Memory", "From the command to reading", "Cold start", "Mini-batches", "Lines of user code"),
        *("Test micro-F1 over seeds", "Time to the target accuracy", "Variants tried"),
    ):
        assert f"### {heading}" in text or f"### Epoch with {heading}" in text, heading
    assert "90.00 ± 0.00 (2)" in text
    assert (page.parent / "images" / "comparison-epochs.png").exists()
    before = (tmp_path / "r.json").read_bytes()
    arguments = ["--plain", "--cases", "rgcn-acm", "--output", str(tmp_path / "r.json"), "--page", str(page)]
    assert code_of(monkeypatch, *arguments) == 0
    assert (tmp_path / "r.json").read_bytes() == before
    plain = json.loads((tmp_path / "r-plain.json").read_text())
    assert plain["cells"]["rgcn-acm"].keys() == {"jhgnn", "dgl", "pyg"}
    assert "forward_ms" not in plain["cells"]["rgcn-acm"]["jhgnn"]  # a quick run compiles one program a case
    assert "### Epoch with the peers' processes as their users start them" in page.read_text()
    (tmp_path / "r.json").unlink()  # a plain run that stands alone has its table as well
    assert code_of(monkeypatch, *arguments, "--tables") == 0
    text = page.read_text()
    assert "### Epoch with the peers' processes as their users start them" in text
    assert "| rgcn-acm | 1.0" in text
    assert "### Full-batch epoch" not in text


def test_the_cases_that_people_look_for_are_timed_first():
    first = {f"{model}-{dataset}" for model in ("han", "rgcn", "rgat") for dataset in ("acm", "dblp")}
    assert {case.name for case in compare.TIMED[:6]} == first
    assert sorted(case.name for case in compare.TIMED) == sorted(case.name for case in (*CASES, *MOLECULE_CASES))
