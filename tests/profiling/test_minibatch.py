"""Mini-batch steps traced here: sampling, gathering and loading beside the stages, on the host or in the program."""

import dataclasses
import json

import pytest

from jhgnn.profiling.capture import capture
from jhgnn.profiling.report import write_report
from jhgnn.profiling.stages import analyse
from tests.profiling.conftest import small_recipe


def recipe(devices: int = 1, **sampling):
    config = small_recipe("rgcn")
    chosen = {"batch_size": 32, "fan_out": "3", **sampling}
    return dataclasses.replace(
        config,
        sampling=dataclasses.replace(config.sampling, **chosen),
        distributed=dataclasses.replace(config.distributed, devices=devices),
    )


def profiled(config, folder, steps=3):
    folder.mkdir()
    capture(config, folder, warm_up=1, steps=steps, progress=False)
    return analyse(folder)


def check(profile):
    assert profile["attribution"]["attributed"] >= 0.97
    assert abs(profile["step"]["parts_over_measured"] - 1) < 0.05
    stage_s = sum(row["seconds"] for row in profile["stages"])
    host_s, idle_s = sum(profile["host"]["parts"].values()), sum(profile["idle"].values())
    assert stage_s + host_s + idle_s == pytest.approx(profile["step"]["wall_s"])
    found = {(row["stage"], row["direction"]) for row in profile["stages"]}
    assert found >= {(stage, way) for stage in ("FP", "NA", "LC") for way in ("forward", "backward")}
    json.dumps(profile, allow_nan=False)


@pytest.mark.slow
def test_batches_in_turn_are_host_time(tmp_path):
    profile = profiled(recipe(side="host", prefetch_threads=0), tmp_path / "p")
    check(profile)
    assert profile["host"]["parts"].keys() == {"SAMPLE", "GATHER", "LOAD"}
    assert all(seconds > 0 for seconds in profile["host"]["parts"].values())
    assert set(profile["preparation"]) == {"READ", "SGB", "COMPILE"}
    assert profile["run"]["sampling"]["side"] == "host"
    assert not profile["run"]["sampling"]["features_on_device"]
    assert profile["memory"]["inference"]["total_bytes"] > 0
    write_report(profile, tmp_path / "report.html")
    assert "GATHER" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_batches_ahead_are_host_time_or_hidden(tmp_path):
    # At most three batches lie prepared when the first of ten steps begins: the others are made while it is watched.
    config = recipe(side="host", prefetch_threads=1, prefetch_depth=2)
    profile = profiled(config, tmp_path / "p", steps=10)
    check(profile)
    both = profile["host"]["parts"].keys() | profile["host"]["hidden"].keys()
    assert both >= {"SAMPLE", "GATHER", "LOAD"}


@pytest.mark.slow
def test_sampling_in_the_program_is_a_stage(tmp_path):
    profile = profiled(recipe(side="device"), tmp_path / "p")
    check(profile)
    seconds = {row["stage"]: row["seconds"] for row in profile["stages"]}
    assert seconds["SAMPLE"] > 0
    assert seconds["LOAD"] > 0  # rows of the features, gathered inside the step
    assert profile["host"]["parts"] == {}


@pytest.mark.slow
def test_a_step_of_two_devices_is_that_of_both(tmp_path):
    config = recipe(2, side="host", prefetch_threads=0)
    profile = profiled(config, tmp_path / "two")
    check(profile)
    alone = profiled(recipe(1, side="host", prefetch_threads=0), tmp_path / "one")
    assert (profile["run"]["devices"], alone["run"]["devices"]) == (2, 1)
    stages = {row["stage"] for row in profile["stages"]}
    assert "SYNC" in stages
    update = [sum(row["executions"] for row in each["stages"] if row["stage"] == "PU") for each in (profile, alone)]
    assert update[0] > 1.5 * update[1]  # each device updates


@pytest.mark.slow
def test_barriers_part_the_stages_of_sampled_steps_too(tmp_path):
    config = recipe(side="host", prefetch_threads=0)
    capture(config, tmp_path, warm_up=1, steps=3, with_barriers=True, progress=False)
    profile = analyse(tmp_path)
    check(profile)
    assert profile["barriers"] is not None
