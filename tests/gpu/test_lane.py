"""What the lane keeps of an earlier run: rows of the same sources, and others until they are made again."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import compile_lane, page
from bench.gpu.cases import Case

CASES = [Case("han_acm", "", {}), Case("rgcn_mag", "host", {}), Case("rgcn_acm", "", {})]


def row(case: Case, gpu: str, temp_bytes: int) -> dict[str, Any]:
    names = {"case": case.name, "recipe": case.recipe, "variant": case.variant, "gpu": gpu, "devices": 1}
    counts = {"temp_bytes": temp_bytes, "kernels": 3, "launches": 4, "compile_s": 1.0, "float_scatters": []}
    more = {"program": "update", "implementations": ["bucketed"], "collectives": [], "edge_wide_arrays": []}
    return names | counts | more


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[argparse.Namespace, list[tuple]]:
    """Options of a run, and what it compiles, without compiling; sources have changed since commit `old`."""
    asked: list[tuple] = []

    def compiled(
        case: Case, gpus: list[str], devices: Any, hlo: Any = None, *, trace: bool = False
    ) -> Iterator[dict[str, Any]]:
        if trace:
            yield from (row(case, gpu, 0) | {"traced": f"now {gpu}"} for gpu in gpus)
            return
        asked.append((case.name, *gpus))
        if case.recipe == "rgcn_acm":
            yield {"case": case.name, "recipe": case.recipe, "variant": "", "skipped": "no data"}
            return
        yield from (row(case, gpu, 7) for gpu in gpus)
        if case.sampled:
            yield row(case, "cpu", 0)

    monkeypatch.setattr(compile_lane, "compiled", compiled)
    monkeypatch.setattr(compile_lane, "all_cases", lambda: CASES)
    monkeypatch.setattr(compile_lane, "create_gpu", lambda: "")
    monkeypatch.setattr(compile_lane, "missing", lambda: "")
    monkeypatch.setattr(compile_lane, "gpu_python", lambda: Path(sys.executable))
    monkeypatch.setattr(compile_lane, "commit", lambda: "new")
    monkeypatch.setattr(compile_lane, "changed_since", lambda name, *paths: name == "old")
    parser = argparse.ArgumentParser()
    compile_lane.add_arguments(parser)
    output = tmp_path / "found.json"
    return parser.parse_args(["--resume", "--gpus", "h100", "b200", "--output", str(output)]), asked


@pytest.mark.slow
def test_rows_of_the_same_sources_stay_and_others_are_made_again(
    lane: tuple[argparse.Namespace, list[tuple]],
) -> None:
    options, asked = lane
    han, mag = CASES[:2]
    kept = row(han, "h100", 1) | {"commit": "same"}
    old = [row(mag, "h100", 2), row(mag, "a100", 2), row(mag, "cpu", 2)]
    gone = row(Case("no_such_recipe", "", {}), "h100", 3)
    options.output.write_text(json.dumps({"commit": "old", "rows": [*old, gone, kept]}))
    assert compile_lane.run(options) == 0
    assert asked == [("han_acm", "b200"), ("rgcn_mag-host", "h100", "b200"), ("rgcn_acm", "h100", "b200")]
    rows = json.loads(options.output.read_text())["rows"]
    assert [(each["case"], each.get("gpu"), each["commit"], each.get("temp_bytes")) for each in rows] == [
        ("han_acm", "h100", "same", 1),
        ("han_acm", "b200", "new", 7),
        ("rgcn_mag-host", "a100", "old", 2),
        ("rgcn_mag-host", "h100", "new", 7),
        ("rgcn_mag-host", "b200", "new", 7),
        ("rgcn_mag-host", "cpu", "new", 0),
        ("rgcn_acm", None, "new", None),
    ]
    asked.clear()
    assert compile_lane.run(options) == 0
    assert asked == []


def test_rows_of_other_sources_stay_where_the_programs_are_the_same(
    lane: tuple[argparse.Namespace, list[tuple]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, asked = lane
    options.verify = True
    han = CASES[0]
    same = row(han, "h100", 1) | {"commit": "old", "traced": "now h100"}
    other = row(han, "b200", 2) | {"commit": "old", "traced": "then b200"}
    options.output.write_text(json.dumps({"commit": "old", "rows": [same, other]}))
    monkeypatch.setattr(
        compile_lane, "changed_since", lambda name, *paths: name == "old" and "jhgnn/native" not in paths
    )
    assert compile_lane.run(options) == 0
    assert ("han_acm", "b200") in asked
    rows = {each["gpu"]: each for each in json.loads(options.output.read_text())["rows"] if each["case"] == "han_acm"}
    assert (rows["h100"]["commit"], rows["h100"]["temp_bytes"]) == ("new", 1)
    assert (rows["b200"]["commit"], rows["b200"]["temp_bytes"]) == ("new", 7)
    kernels_changed = {"commit": "old", "rows": [same, other]}
    options.output.write_text(json.dumps(kernels_changed))
    monkeypatch.setattr(compile_lane, "changed_since", lambda name, *paths: name == "old")
    asked.clear()
    assert compile_lane.run(options) == 0
    assert ("han_acm", "h100", "b200") in asked


def test_the_page_tells_the_commit_of_each_row(lane: tuple[argparse.Namespace, list[tuple]]) -> None:
    options, _ = lane
    options.resume = False
    compile_lane.run(options)
    lines = page._lines(json.loads(options.output.read_text()))
    assert "| han acm | update | 1 | bucketed | 0.0 | 3 | 4 | 0 | none | 1 | new |" in lines
    assert lines[-1] == "- rgcn_acm: no data"
