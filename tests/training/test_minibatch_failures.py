"""Mini-batch runs that fail say where, and keep the state before; kernels that samples cannot run are refused."""

import dataclasses

import jax
import numpy as np
import pytest

from jhgnn import native
from jhgnn.train import main
from tests.commands import train_arguments
from tests.models.heterographs import academic
from tests.training.minibatches import compiled, recipe, steps

pytestmark = pytest.mark.usefixtures("compile_cache")

SAMPLED = ("--sampling.batch_size", "8", "--sampling.fan_out", "3", "--sampling.prefetch_threads", "0")


def last_line(capsys) -> str:
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rgcn", pytest.param("rgat", marks=pytest.mark.slow), "han"])
@pytest.mark.parametrize("side", ["host", pytest.param("device", marks=pytest.mark.slow)])
def test_a_loss_that_is_not_finite_names_batch_stage_and_tensor(model, side, tmp_path, academic_path, capsys):
    more = ("--training.learning_rate", "1e30", "--training.weight_decay", "0", "--sampling.side", side)
    run = tmp_path / "run"
    assert main(train_arguments(academic_path, run, *SAMPLED, *more, "--training.epochs", "3", model=model)) == 1
    line = last_line(capsys)
    assert line.startswith("error: epoch ")
    assert "batch" in line
    assert "(step" in line
    assert "first in stage" in line
    assert "tensor" in line
    (checkpoint,) = (run / "checkpoints").iterdir()
    assert (checkpoint / "digests.json").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("--kernels.mean", "dense"),
            "kernels.mean = 'dense': neighbor_mean has no implementation 'dense' for sampled",
        ),
        (
            ("--kernels.mean", "segment"),
            "'segment' for sampled neighbours; choose of 'bucketed'",
        ),
        (("--kernels.attention", "native"), "kernels.attention = 'native': 'rgcn' aggregates by kernels.mean"),
        (("--kernels.mean", "native", "--sampling.side", "device"), "on blocks that the host samples"),
    ],
)
def test_kernels_that_samples_cannot_run_are_one_line(more, message, tmp_path, academic_path, capsys):
    assert main(train_arguments(academic_path, tmp_path / "run", *SAMPLED, *more)) == 2
    line = last_line(capsys)
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.skipif(not native.available(), reason="needs the native kernels")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "op"), [("rgcn", "neighbor_mean"), pytest.param("rgat", "neighbor_attention", marks=pytest.mark.long)]
)
def test_the_kernel_that_is_named_runs_and_gives_what_tables_give(model, op):
    found = {}
    for side, named in (("host", "native"), ("device", "fanout"), ("device", "bucketed")):
        kernels = {"mean" if model == "rgcn" else "attention": named}
        config = recipe(model, sampling={"side": side}, training={"optimizer": "sgd"})
        config = dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, **kernels))
        programs = compiled(academic(), config)
        assert bool(programs.execution.sampling.compressed) == (side == "host")
        assert {choice.implementation for choice in programs.execution.choices if choice.op == op} == {named}
        found[named] = steps(programs, 5)[0].params
    for named in ("fanout", "bucketed"):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found["native"], found[named])
