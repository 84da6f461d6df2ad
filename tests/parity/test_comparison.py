"""The comparison's own parts: the neutral folder, resuming, the check for slower cells, the tables."""

import sys

import numpy as np
import pytest

from bench.compare import cut_off
from bench.comparison.f1 import f1_scores
from bench.comparison.graph_folder import PlainGraph, read_graph, write_graph
from bench.comparison.protocol import Worker, WorkerError
from bench.comparison.report import BEGIN, END, write_tables
from bench.comparison.results import Results, slower, spread

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
    assert second.begin(HEADER, fresh=False)
    assert "han-acm" in second.data["cells"]
    second.data["complete"] = True
    second.save()
    third = Results(path)
    assert not third.begin(HEADER, fresh=False)
    assert third.data["cells"] == {}
    assert "han-acm" in third.data["previous"]


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


def test_a_worker_that_hangs_or_dies_is_an_error(tmp_path):
    hang = Worker([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, {}, tmp_path / "log")
    with pytest.raises(WorkerError, match="not done within"):
        hang.ask("open", timeout_s=0.5)
    hang.close()
    dead = Worker([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, {}, tmp_path / "log")
    with pytest.raises(WorkerError, match="status 3"):
        dead.ask("open", timeout_s=30)
    dead.close()
