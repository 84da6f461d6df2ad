"""The comparison's own parts: the neutral folder, resuming, the check for slower cells, the tables."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench import compare
from bench.compare import cut_off
from bench.comparison import measure
from bench.comparison.cases import ROOT
from bench.comparison.environment import peers_python
from bench.comparison.f1 import f1_scores
from bench.comparison.graph_folder import PlainGraph, read_graph, write_graph
from bench.comparison.lines import count, user_lines
from bench.comparison.protocol import Worker
from bench.comparison.report import BEGIN, END, check_page, minibatch_table, target_table, write_tables
from bench.comparison.results import FileError, Results, slower, spread
from tests.models.heterographs import academic


def bench_compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.compare", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


HEADER = {"machine": {}, "settings": {"quick": True}, "commit": "", "missing": {}}


def test_graph_folder_round_trip(tmp_path):
    graph = PlainGraph(
        name="two",
        num_nodes={"a": 3, "b": 2},
        relations=[("a", "to", "b")],
        edges=[(np.array([0, 2]), np.array([1, 1]))],
        features={"a": np.eye(3, dtype=np.float32)},
        target="b",
        labels=np.array([0, 1]),
        num_classes=2,
        splits={"train": np.array([0]), "val": np.array([1])},
        metapaths={"x": [0]},
    )
    write_graph(graph, tmp_path / "g")
    back = read_graph(tmp_path / "g")
    np.testing.assert_array_equal(back.edges[0], graph.edges[0])
    np.testing.assert_array_equal(back.features["a"], graph.features["a"])
    assert (back.relations, back.metapaths, back.num_nodes) == (graph.relations, graph.metapaths, graph.num_nodes)


def test_f1_of_known_predictions():
    logits = np.array([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    micro, macro = f1_scores(logits, np.array([0, 1, 1]), np.arange(3))
    assert micro == pytest.approx(2 / 3)
    assert macro == pytest.approx(2 / 3)


def test_an_interrupted_run_resumes_and_a_complete_one_becomes_the_previous(tmp_path):
    path = tmp_path / "r.json"
    first = Results(path)
    assert not first.begin(HEADER, fresh=False)
    first.data["cells"]["han-acm"] = {"jhgnn": {"epoch_ms": 1.0, "spread": 0.0}}
    first.save()
    second = Results(path)
    assert second.begin(HEADER | {"commit": "2222222"}, fresh=False)
    assert second.begin(HEADER | {"commit": "2222222"}, fresh=False)
    assert (second.data["commit"], second.data["resumed_at"]) == ("", ["2222222"])
    assert "han-acm" in second.data["cells"]
    second.data["complete"] = True
    second.save()
    third = Results(path)
    assert not third.begin(HEADER, fresh=False)
    assert third.data["cells"] == {}
    assert "han-acm" in third.data["previous"]


def test_what_a_quick_pass_stored_is_provisional_until_it_is_measured_whole(tmp_path):
    results = Results(tmp_path / "r.json")
    results.begin(HEADER, fresh=False)
    results.store("han-acm", {"jhgnn": {"epoch_ms": 2.0}}, provisional=True)
    assert Results(results.path).provisional == ["han-acm"]
    results.store("han-acm", {"jhgnn": {"epoch_ms": 1.0}})
    assert Results(results.path).provisional == []
    assert Results(results.path).data["cells"]["han-acm"]["jhgnn"]["epoch_ms"] == 1.0


@pytest.mark.parametrize(("now", "flagged"), [(1.05, 0), (1.25, 1)])
def test_only_more_than_noise_is_flagged(now, flagged):
    before = {"c": {"jhgnn": {"epoch_ms": 1.0, "spread": 0.02}, "dgl": {"epoch_ms": 1.0, "spread": 0.0}}}
    after = {"c": {"jhgnn": {"epoch_ms": now, "spread": 0.02}, "dgl": {"epoch_ms": 9.0, "spread": 0.0}}}
    assert len(slower(after, before)) == flagged


def test_a_case_cut_off_by_the_budget_is_not_kept():
    done, timed_out = {"epoch_ms": 1.0}, {"missing": "time budget spent"}
    absent = {"dgl": "no wheel", "pyg": ""}
    assert cut_off({"jhgnn": done, "pyg": timed_out}, absent, 0.0)
    assert not cut_off({"jhgnn": done, "pyg": done, "dgl": {"missing": "no wheel"}}, absent, 0.0)
    assert not cut_off({"jhgnn": done, "pyg": {"missing": "out of memory"}}, absent, 60.0)


def test_spread_of_few_values():
    assert spread([1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(0.25)


def test_tables_keep_the_text_around_them(tmp_path):
    page = tmp_path / "p.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    cell = {"epoch_ms": 2.0, "spread": 0.1, "first_epoch_s": 1.0}
    data = {
        "cells": {"han-acm": {"jhgnn": cell, "dgl": cell | {"epoch_ms": 20.0}, "pyg": {"missing": "no wheel"}}},
        "machine": {"processor": "p", "cores": 2, "memory_gib": 1, "load_average_at_start": 0},
        "settings": {"quick": True},
        "commit": "c",
        "complete": True,
        "missing": {"pyg": "no wheel", "dgl": ""},
    }
    write_tables(data, page, "r.json")
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| han-acm | 2.0 ± 0.2 | 20.0 ± 2.0 | no wheel | 10.0 |" in text


def test_the_time_to_a_target_is_of_the_variant_that_trained():
    run = {"epochs_to_target": 3, "target_f1": 0.8, "variant": "slow"}
    slow = {"epoch_ms": 500.0, "first_epoch_s": 2.0}
    cell = {"variant": "quick, another model", "epoch_ms": 1.0, "first_epoch_s": 1.0, "tried": {"slow": slow}}
    row = "| rgat-aifb | - | - | 3.00 (3 epochs) | 0.80 |"
    for shown in (cell, slow | {"variant": "slow"}):
        data = {"accuracy": {"rgat-aifb": {"pyg": {"0": run}}}, "cells": {"rgat-aifb": {"pyg": shown}}}
        assert row in target_table(data)
    data["cells"]["rgat-aifb"]["pyg"] = cell | {"tried": {}}
    assert target_table(data) == ""


def test_a_slower_mini_batch_is_flagged():
    def cell(ms):
        return {"c-mag": {"jhgnn": {"modes": {"ahead": {"batch_ms": ms, "spread": 0.02}, "in turn": {"failed": "x"}}}}}

    assert slower(cell(1.05), cell(1.0)) == []
    assert slower(cell(1.5), cell(1.0)) == ["c-mag jhgnn: 1.50 ms a batch ahead, 1.00 before (+50%, noise 10%)"]


def test_mini_batches_have_a_table_of_their_own():
    mode = {"batch_ms": 100.0, "spread": 0.1, "targets_per_s": 10240.0, "wait_share": 0.25}
    ours = {"variant": "ahead", "modes": {"in turn": mode | {"wait_share": 0.5}, "ahead": mode}}
    cells = {"rgcn-mag": {"jhgnn": ours | {"process_peak_bytes": 2**30}, "dgl": {"missing": "no wheel"}}}
    table = minibatch_table(cells)
    assert "| rgcn-mag | jhgnn | 100 | 50% | ahead | 100 ± 10 | 25% | 10,240 | 1,024 |" in table
    assert "| rgcn-mag | DGL | no wheel |" in table


SOURCE = '''"""Doc."""

import numpy as np
import unused
from bench.other import helper

WIDTH = 4


@decorated
def used(x):
    """Two
    lines."""
    # a comment

    return np.tanh(x) * WIDTH


def elsewhere(x):
    return used(x)


def root(x):
    return used(x)
'''


def test_lines_of_user_code_by_hand():
    # root: 2; used: decorator, def, return; WIDTH; import numpy
    assert count({"a": SOURCE}, ["root"]) == 7
    with pytest.raises(KeyError):
        count({"a": SOURCE}, ["absent"])


def test_lines_of_every_framework():
    for model in ("han", "rgcn", "rgat"):
        ours, *peers = (user_lines(framework, model) for framework in ("jhgnn", "dgl", "pyg"))
        assert 3 < ours < min(peers)
        assert max(peers) < 400


CELL = {"variant": "auto", "epoch_ms": 1.0, "spread": 0.0, "first_epoch_s": 1.0}


@pytest.mark.parametrize(("now_ms", "code"), [(1.02, 0), (2.0, 1)])
def test_check_ends_with_1_where_a_cell_became_slower(now_ms, code, tmp_path):
    before, now = tmp_path / "before.json", tmp_path / "now.json"
    before.write_text(json.dumps({"cells": {"han-acm": {"jhgnn": CELL}}, "complete": True}))
    now.write_text(json.dumps({"cells": {"han-acm": {"jhgnn": CELL | {"epoch_ms": now_ms}}}, "complete": True}))
    done = bench_compare("--check", "--output", str(now), "--against", str(before))
    assert done.returncode == code, done.stderr
    assert ("han-acm jhgnn: 2.00 ms an epoch, 1.00 before" in done.stdout) == (code == 1)


def test_check_without_an_earlier_run(tmp_path):
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"cells": {"han-acm": {"jhgnn": CELL}}, "complete": True}))
    done = bench_compare("--check", "--output", str(path))
    assert done.returncode == 2
    assert "no earlier run to compare with" in done.stderr


def test_an_unknown_case(tmp_path):
    done = bench_compare("--cases", "han-cora", "--output", str(tmp_path / "r.json"))
    assert done.returncode == 2
    assert "han-cora: unknown" in done.stderr


@pytest.mark.parametrize("text", ['{"cells": {"han-acm"', "[]", '{"cells": 3}'])
def test_a_broken_result_is_refused(text, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"r\.json: not a stored comparison"):
        Results(path)


@pytest.mark.parametrize("text", [None, "no markers", f"{END}\n{BEGIN}"])
def test_a_page_without_markers_is_refused(text, tmp_path):
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(FileError, match=r"--page .*page\.md: .*need a page with the lines <!--"):
        check_page(page)


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
    arguments = ["bench.compare", "--quick", "--output", str(tmp_path / "r.json")]
    monkeypatch.setattr(sys, "argv", [*arguments, "--started", str(time.time() - compare.QUICK_BUDGET_S)])
    assert compare.main() == 0
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
    arguments = ["bench.compare", "--plain", "--cases", "rgcn-acm"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--output", str(tmp_path / "r.json"), "--page", str(page)])
    assert compare.main() == 0
    assert (tmp_path / "r.json").read_bytes() == before
    plain = json.loads((tmp_path / "r-plain.json").read_text())
    assert plain["cells"]["rgcn-acm"].keys() == {"jhgnn", "dgl", "pyg"}
    assert "forward_ms" not in plain["cells"]["rgcn-acm"]["jhgnn"]  # a quick run compiles one program a case
    assert "### Epoch with the peers' processes as their users start them" in page.read_text()
    (tmp_path / "r.json").unlink()  # a plain run that stands alone has its table as well
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--tables"])
    assert compare.main() == 0
    text = page.read_text()
    assert "### Epoch with the peers' processes as their users start them" in text
    assert "| rgcn-acm | 1.0" in text
    assert "### Full-batch epoch" not in text
