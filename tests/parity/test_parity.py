"""The same weights in jhgnn and in DGL and PyG give the same outputs, gradients and optimizer steps."""

import dataclasses
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from bench.comparison.cases import Case, read_dataset, recipe
from bench.comparison.environment import missing
from bench.parity.__main__ import PEERS_PYTHON, VARIANTS, reference, run_peer
from bench.parity.agreement import worst
from bench.parity.ours import write_problem
from jhgnn.config import Config
from jhgnn.config.recipe import override
from tests.models.heterographs import academic

TOLERANCE = 1e-5
"""Of outputs and gradients: largest difference over the tensor's largest magnitude, in float32.

Gradients that miss it, and steps of Adam that miss theirs, are compared with the peer's in float64, to which ours in
float32 must be as near.
"""

STEPS_TOLERANCE = 1e-3
"""Of losses and outputs over 20 steps of Adam and of SGD with momentum, and of parameters after those of SGD."""

Ours = Mapping[str, Mapping[str, np.ndarray]]
"""What `write_problem` returns."""

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


@pytest.fixture(scope="module")
def small_problem(tmp_path_factory) -> Callable[[str], tuple[Path, Ours]]:
    """A model's problem on the small graph, the same for both peers: its folder, and what we compute."""

    @functools.cache
    def written(model: str) -> tuple[Path, Ours]:
        folder = tmp_path_factory.mktemp(model)
        return folder, write_problem(academic(), small(model), folder)

    return written


def assert_parity(framework: str, model: str, ours: Ours, folder: Path, only=()) -> None:
    found = run_peer(framework, folder, only)
    assert found, "no variant was compared"
    for variant, (definition, theirs) in found.items():
        errors = worst(ours[definition], theirs)
        bounds = {"output": TOLERANCE, "gradients": TOLERANCE, **dict.fromkeys(STEPS, STEPS_TOLERANCE)}
        missed = [kind for kind, bound in bounds.items() if kind != "output" and errors[kind][0] > bound]
        if missed:  # is it the peer's own rounding?
            truth = reference(framework, model, definition, folder)
            errors |= {kind: error for kind, error in worst(ours[definition], truth).items() if kind in missed}
        for kind, tolerance in bounds.items():
            error, tensor = errors[kind]
            assert error <= tolerance, f"{variant}: {kind} differ by {error:.1e} in {tensor}"


@pytest.mark.parametrize("model", ["han", "rgcn", "rgat"])
def test_small_graph(model, framework, small_problem):
    """Every variant, on sparse, dense and absent features, isolated nodes and parallel edges."""
    folder, ours = small_problem(model)
    assert_parity(framework, model, ours, folder)


@pytest.mark.parametrize("unit", [pytest.param("layer", marks=pytest.mark.slow), "stage"])
@pytest.mark.parametrize("model", ["han", "rgcn", "rgat"])
def test_a_peer_that_recomputes_learns_the_same(model, unit, framework, small_problem, tmp_path):
    folder, ours = small_problem(model)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    listing = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    listing = {name: settings | {"recompute": unit} for name, settings in listing.items()}
    (tmp_path / "settings.json").write_text(json.dumps(listing), encoding="utf-8")
    assert_parity(framework, model, ours, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["acm", "imdb", "dblp"])
@pytest.mark.parametrize("model", ["han", "rgcn", "rgat"])
def test_whole_graph(model, dataset, framework, tmp_path):
    """The real graph, or where it is not here the synthetic one of its size."""
    ours = write_problem(read_dataset(dataset), recipe(Case(model, dataset)), tmp_path)
    assert_parity(framework, model, ours, tmp_path, VARIANTS[model][framework])


def test_a_wrong_definition_is_seen(framework, small_problem, tmp_path):
    """The check itself: a model with another activation is not taken for the same."""
    _, ours = small_problem("rgcn")
    config = small("rgcn")
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, activation="tanh"))
    write_problem(academic(), other, tmp_path)
    for definition, theirs in run_peer(framework, tmp_path).values():
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
