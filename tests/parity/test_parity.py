"""The same weights in jhgnn and in DGL and PyG give the same outputs, gradients and optimizer steps."""

import dataclasses
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench.comparison.cases import Case, read_dataset, recipe
from bench.comparison.environment import missing
from bench.parity.__main__ import PEERS_PYTHON, VARIANTS, reference, run_peer
from bench.parity.agreement import worst
from bench.parity.ours import write_problem
from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.recipe import override
from tests.models.heterographs import academic

TOLERANCE = 1e-5
"""Of outputs and gradients: largest difference over the tensor's largest magnitude, in float32.

A gradient that misses it is compared with the peer's in float64, to which ours in float32 must be as near.
"""

STEPS_TOLERANCE = 1e-3
"""Of losses and outputs over 20 steps of Adam and of SGD with momentum, and of parameters after those of SGD."""

STEPS = ("losses, Adam", "output after Adam", "losses, SGD", "output after SGD", "parameters after SGD")


@pytest.fixture(params=["dgl", "pyg"])
def framework(request) -> str:
    if not PEERS_PYTHON.exists():
        pytest.skip(f"no Python with the peers at {PEERS_PYTHON}; `make compare` creates it")
    why = missing(request.param)
    if why:
        pytest.skip(f"{request.param}: {why}")
    return request.param


def small(model: str, **changes) -> Config:
    tables = {"model": {"name": model, "hidden": 8, "heads": 2, "layers": 1 if model == "han" else 2} | changes}
    return override(Config(), tables, where="test")


def assert_parity(framework: str, graph: HeteroGraph, config: Config, folder: Path, only=()) -> None:
    ours = write_problem(graph, config, folder)
    found = run_peer(framework, folder, only)
    assert found, "no variant was compared"
    for variant, (definition, theirs) in found.items():
        errors = worst(ours[definition], theirs)
        if errors["gradients"][0] > TOLERANCE:  # is it the peer's own rounding?
            truth = reference(framework, config.model.name, definition, folder)
            errors["gradients"] = worst(ours[definition], truth)["gradients"]
        for kind, tolerance in {
            "output": TOLERANCE,
            "gradients": TOLERANCE,
            **dict.fromkeys(STEPS, STEPS_TOLERANCE),
        }.items():
            error, tensor = errors[kind]
            assert error <= tolerance, f"{variant}: {kind} differ by {error:.1e} in {tensor}"


@pytest.mark.parametrize("model", ["han", "rgcn", "rgat"])
def test_small_graph(model, framework, tmp_path):
    """Every variant, on sparse, dense and absent features, isolated nodes and parallel edges."""
    assert_parity(framework, academic(), small(model), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["acm", "imdb", "dblp"])
@pytest.mark.parametrize("model", ["han", "rgcn", "rgat"])
def test_whole_graph(model, dataset, framework, tmp_path):
    """The real graph, or where it is not here the synthetic one of its size."""
    assert_parity(framework, read_dataset(dataset), recipe(Case(model, dataset)), tmp_path, VARIANTS[model][framework])


def test_a_wrong_definition_is_seen(framework, tmp_path):
    """The check itself: a model with another activation is not taken for the same."""
    graph, config = academic(), small("rgcn")
    ours = write_problem(graph, config, tmp_path / "ours")
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, activation="tanh"))
    write_problem(graph, other, tmp_path / "other")
    for definition, theirs in run_peer(framework, tmp_path / "other").values():
        errors = worst(ours[definition], theirs)
        assert errors["output"][0] > 100 * TOLERANCE
        assert errors["losses, SGD"][0] > STEPS_TOLERANCE


def test_non_finite_values_never_agree():
    good = {"logits": np.ones(2), "gradient.w": np.ones(2), "sgd.w": np.ones(2), "logits_sgd": np.ones(2)}
    bad = good | {"gradient.w": np.array([1.0, np.nan])}
    assert worst(good, bad)["gradients"][0] == float("inf")
    assert worst(good, good)["gradients"][0] == 0.0


def test_a_reference_without_steps_is_compared_in_what_it_has():
    ours = {"logits": np.ones(2), "gradient.w": np.ones(2), "sgd.w": np.ones(2)}
    reference = {"logits": np.ones(2), "gradient.w": np.array([1.0, 2.0])}
    assert worst(ours, reference).keys() == {"output", "gradients", "gradients, each alone", "gradients, norm"}
    assert worst(ours, reference)["gradients"] == (0.5, "gradient.w")
    with pytest.raises(ValueError, match=r"gradient\.v"):
        worst(ours, reference | {"gradient.v": np.ones(1)})


def test_peers_never_import_jax():
    if not PEERS_PYTHON.exists():
        pytest.skip(f"no Python with the peers at {PEERS_PYTHON}")
    code = "import sys, bench.peers.worker, bench.parity.peer; sys.exit('jax' in sys.modules or 'jhgnn' in sys.modules)"
    environment = dict(os.environ) | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([PEERS_PYTHON, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
