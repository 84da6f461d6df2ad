"""The public surface: names that people's own code imports, which do not change without somebody deciding it."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

PUBLIC = {
    "jhgnn": [
        *("Config", "EpochResult", "HeteroGraph", "InputError", "Layer", "LinkPrediction", "Model"),
        *("NodeClassification", "RelationalModel", "Run", "Task", "fit", "from_tables", "load", "save_graph"),
    ],
    "jhgnn.nn": [
        *("AttentionAggregation", "AttentionFusion", "Block", "FeatureProjection", "GraphInputs", "GraphSpec"),
        *("InputEmbeddings", "LayerPlan", "ModelConfig", "Partial", "RelationParts", "SumFusion", "SumOverRelations"),
        *("mean_aggregation", "plan_layers", "project_together", "whole_graph"),
    ],
}


@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names_are_these(package):
    module = importlib.import_module(package)
    assert module.__all__ == PUBLIC[package]
    assert set(PUBLIC[package]) <= set(dir(module))


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in PUBLIC for name in PUBLIC[package]])
def test_a_public_name_is_importable_and_documented(package, name):
    found = getattr(importlib.import_module(package), name)
    assert len(inspect.getdoc(found)) > 20
    functions = [found] if inspect.isfunction(found) else []
    if inspect.isclass(found) and not issubclass(found, tuple):
        functions = [member for key, member in vars(found).items() if not key.startswith("_") and callable(member)]
    for function in functions:
        assert inspect.getdoc(function) or inspect.isclass(function), function


def test_an_unknown_name_is_an_attribute_error():
    import jhgnn

    with pytest.raises(AttributeError, match="module 'jhgnn' has no attribute 'fitt'"):
        jhgnn.fitt  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("jhgnn.fitt")


SCRIPT = """
import sys
import jhgnn, jhgnn.nn
assert "jax" not in sys.modules, "import jhgnn"
assert jhgnn.Config().model.hidden == 64
assert jhgnn.HeteroGraph and jhgnn.load
assert "flax" not in sys.modules and "jhgnn.training" not in sys.modules, "reading data"
import jhgnn.fitting  # a module of the package does not take a public name's place
assert jhgnn.fit is jhgnn.fitting.fit
assert "jax" in sys.modules
"""


def test_importing_the_package_loads_nothing_that_is_not_used():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_module_of_the_package_has_a_public_name():
    """It would take the name's place as soon as somebody imported it."""
    for package, names in PUBLIC.items():
        for name in names:
            folder = Path(importlib.import_module(package).__file__).parent
            assert not (folder / f"{name}.py").exists()
            assert not (folder / name).exists()
