"""Links in mini-batches from the command line: R-GCN and R-GAT, resumed, predicted, on a budget, profiled."""

import json
import re

import numpy as np
import pytest

from jhgnn.train import main
from tests.commands import run_predict
from tests.test_link_cli import arguments, checkpoint_bytes, graph_path, summary

__all__ = ["graph_path"]  # a fixture

pytestmark = pytest.mark.usefixtures("compile_cache")

SAMPLED = {
    "--task.negatives": "8", "--task.batch_size": "0",
    "--sampling.batch_size": "64", "--sampling.fan_out": "4", "--sampling.prefetch_threads": "1",
    "--model.heads": "2",
}  # fmt: skip


def sampled(graph_path, folder, *more):
    return arguments(
        graph_path,
        folder,
        *(word for pair in SAMPLED.items() for word in pair),
        "--task.relations",
        "likes",
        "knows",
        *more,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_a_run_on_two_devices_beats_chance_resumes_bitwise_and_predicts(name, tmp_path, graph_path):
    more = ("--model.name", name, "--distributed.devices", "2")
    for folder, epochs in (("whole", "10"), ("halves", "4")):
        assert main(sampled(graph_path, tmp_path / folder, *more, "--training.epochs", epochs)) == 0
    assert main(["--resume", "--run.dir", str(tmp_path / "halves"), "--training.epochs", "10"]) == 0
    assert checkpoint_bytes(tmp_path / "whole") == checkpoint_bytes(tmp_path / "halves")
    found = summary(tmp_path / "whole")
    assert found["test_auc"] > 0.7
    assert found["test_mrr"] > 0.12  # 0.1 by chance over 40 items, less over 60 users
    assert run_predict("--run", str(tmp_path / "whole")) == 0
    predictions = tmp_path / "whole" / "predictions"
    assert np.load(predictions / "embeddings_user.npy").shape == (60, 16)
    assert len((predictions / "links.csv").read_text().splitlines()) > 60


@pytest.mark.slow
def test_a_budget_of_memory_chooses_what_fits_and_names_the_least(tmp_path, graph_path, capsys):
    assert main(sampled(graph_path, tmp_path / "none", "--training.memory_budget", "1KiB")) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    least = int(re.search(r"the smallest possible one is (\d+) bytes", error)[1])
    held = ("--training.epochs", "2", "--training.memory_budget", str(least))
    assert main(sampled(graph_path, tmp_path / "held", *held)) == 0
    assert summary(tmp_path / "held")["peak_temp_bytes"] <= least
    chosen = (tmp_path / "held" / "recipe.toml").read_text()
    assert f"memory_budget = {least}" in chosen


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_the_profile_of_a_step_adds_up(devices, tmp_path, graph_path):
    from jhgnn.config.recipe import load_recipe, override
    from jhgnn.profiling.capture import capture
    from jhgnn.profiling.stages import analyse

    assert main(sampled(graph_path, tmp_path / "run", "--training.epochs", "1")) == 0
    config = override(
        load_recipe(tmp_path / "run" / "recipe.toml"), {"distributed": {"devices": devices}}, where="test"
    )
    (tmp_path / "profile").mkdir()
    capture(config, tmp_path / "profile", warm_up=1, steps=3, progress=False)
    profile = analyse(tmp_path / "profile")
    assert profile["attribution"]["attributed"] >= 0.97
    assert abs(profile["step"]["parts_over_measured"] - 1) < 0.05
    assert {row["stage"] for row in profile["stages"]} >= {"FP", "NA", "LC"}
    json.dumps(profile, allow_nan=False)
