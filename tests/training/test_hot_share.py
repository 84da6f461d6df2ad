"""The share of hot vertices: what planted costs choose, what batches measure, and that a run keeps its choice."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe, override
from jhgnn.errors import InputError
from jhgnn.models import find
from jhgnn.train import main
from jhgnn.training import hot_share
from jhgnn.training.checks import check
from jhgnn.training.hot_share import LEAST_GAIN, SHARES, HotCosts, measure, measured
from jhgnn.training.problem import pose
from tests.models.heterographs import academic
from tests.training.minibatches import recipe

pytestmark = pytest.mark.usefixtures("compile_cache")

SAVED = {0.02: 0.1, 0.05: 0.25, 0.1: 0.4, 0.2: 0.5}


def costs(spared_s: float, row_s: float, *, beside: bool = False) -> HotCosts:
    """Of batches of 1 s, whose hot rows take `row_s` times the share."""
    return HotCosts(1.0, spared_s, SAVED, {share: row_s * share for share in SAVED}, beside)


def test_the_largest_share_is_chosen_where_hot_rows_cost_nothing():
    planted = costs(0.6, 0.0)
    assert planted.choose() == 0.2
    assert planted.batch_s(0.2) == 0.6
    assert planted.batch_s(0.1) == pytest.approx(1 - 0.4 * 0.4 / 0.5)
    assert planted.bottom == pytest.approx(0.8)
    assert planted.describe().startswith("hot share: 0.2 (auto); a batch takes 1000.0 ms without hot vertices, 80%")


def test_a_share_between_is_chosen_where_more_rows_cost_more_than_they_save():
    planted = costs(0.6, 1.0)  # from 10 to 20 % it saves 0.08 s more and costs 0.1 s more
    assert planted.choose() == 0.1
    assert planted.batch_s(0.1) == pytest.approx(1 - 0.32 + 0.1)


@pytest.mark.parametrize("planted", [costs(0.6, 10.0), costs(1.1, 0.0), costs(1 - LEAST_GAIN / 2, 0.0)])
def test_none_are_hot_where_they_cost_more_or_save_too_little(planted):
    assert planted.choose() == 0.0
    assert planted.describe().startswith("hot share: 0 (auto)")
    assert planted.describe().endswith("so none are hot")
    assert "\n" not in planted.describe()


def test_beside_an_accelerator_rows_cost_where_they_take_longer_than_the_step():
    assert costs(0.6, 2.0).choose() == 0.1
    assert costs(0.6, 2.0, beside=True).choose() == 0.2
    assert costs(0.6, 10.0, beside=True).choose() == 0.05
    assert costs(0.6, 100.0, beside=True).choose() == 0.0


@given(spared_s=st.floats(0.01, 2), row_s=st.floats(0, 20), beside=st.booleans())
def test_no_other_share_is_modelled_to_be_faster_by_more_than_the_least_gain(spared_s, row_s, beside):
    planted = costs(spared_s, row_s, beside=beside)
    chosen = planted.batch_s(planted.choose())
    assert chosen <= planted.plain_s
    assert all(chosen <= planted.batch_s(share) + LEAST_GAIN + 1e-9 for share in (0.0, *SAVED))


def auto(hot: str = "exact", model: str = "rgcn", **sampling) -> Config:
    return recipe(model, sampling={"hot": hot, "hot_share": "auto"} | sampling, feature_dropout=0.0, layers=2)


def posed_on_one_device(config: Config):
    distributed = dataclasses.replace(config.distributed, devices=1)
    return pose(academic(papers=60), dataclasses.replace(config, distributed=distributed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hot", "model", "sampling"),
    [
        ("exact", "rgcn", {}),
        ("stale", "rgcn", {}),
        ("stale", "han", {"walks": 4}),
    ],
)
def test_batches_are_measured_and_the_choice_trains(hot, model, sampling, monkeypatch):
    posed = posed_on_one_device(auto(hot, model, **sampling))
    found = measure(posed)
    assert found.plain_s > 0
    assert found.spared_s > 0
    assert list(found.saved) == list(found.hot_s) == list(SHARES)
    assert sorted(found.saved.values()) == list(found.saved.values())
    assert 0 < found.saved[0.2] < 1
    assert sorted(found.hot_s.values()) == list(found.hot_s.values())
    assert found.hot_s[0.2] > 0
    for planted, share in ((costs(0.5, 0.0), 0.2), (costs(2.0, 0.0), 0.0)):
        monkeypatch.setattr(hot_share, "measure", lambda _, planted=planted: planted)
        execution = measured(posed)
        assert execution.config.sampling.hot_share == share
        assert (execution.sampling is execution.plain) == (not share)
        assert planted.describe() in execution.describe()


def test_a_graph_without_anything_to_save_is_trained_plainly(monkeypatch):
    monkeypatch.setattr(hot_share, "saved_draws", lambda *_, **__: {"paper": np.zeros(60, np.int64)})
    posed = posed_on_one_device(auto())
    monkeypatch.setattr(hot_share.Sampled, "visits", {"paper": np.ones(60, np.int64)})
    assert measure(posed).choose() == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("spared_s", "share"), [(2.0, 0.0), (0.5, 0.2)])
def test_a_run_keeps_its_choice_and_a_resumed_one_measures_nothing(
    tmp_path, academic_path, monkeypatch, spared_s, share
):
    monkeypatch.setattr(hot_share, "measure", lambda _: costs(spared_s, 0.0))
    folder = tmp_path / "run"
    common = ["--data.format", "jhgnn", "--data.path", str(academic_path), "--run.dir", str(folder)]
    common += ["--model.name", "rgcn", "--model.layers", "2", "--model.hidden", "8", "--kernels.projection", "dense"]
    common += ["--sampling.batch_size", "8", "--sampling.fan_out", "3", "--sampling.hot", "exact"]
    common += ["--sampling.hot_share", "auto", "--distributed.devices", "1", "--run.tensorboard", "false"]
    assert main([*common, "--training.epochs", "1"]) == 0
    assert load_recipe(folder / "recipe.toml").sampling.hot_share == share
    summary = json.loads((folder / "summary.json").read_text())
    assert ("hot_vertices" in summary) == (share > 0)

    def again(_):
        raise AssertionError("measured again")

    monkeypatch.setattr(hot_share, "measure", again)
    assert main([*common, "--training.epochs", "2", "--resume"]) == 0
    assert load_recipe(folder / "recipe.toml").sampling.hot_share == share


def test_several_processes_are_given_a_number():
    tables = {"model": {"name": "rgcn"}, "sampling": {"batch_size": 8, "hot": "exact", "hot_share": "auto"}}
    tables["distributed"] = {"coordinator": "127.0.0.1:1234", "num_processes": 2, "process_id": 0}
    tables["run"] = {"dir": "runs/several"}
    config = override(Config(), tables, where="test")
    with pytest.raises(InputError, match="is measured in one process"):
        check(config, find("rgcn"))
    own = dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, hot_share=0.1))
    check(own, find("rgcn"))
