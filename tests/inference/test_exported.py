"""Exported programs: run by JAX and NumPy alone, in a process that cannot import this package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax.export
import numpy as np
import pytest

from jhgnn.errors import InputError
from tests.models.heterographs import academic
from tests.test_docs import ROOT, blocks
from tests.test_fit import IN_BATCHES, small

pytestmark = pytest.mark.usefixtures("compile_cache")

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jhgnn", "flax"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
script = sys.argv.pop(1)
exec(compile(open(script).read(), script, "exec"))
"""


def run_alone(folder: Path) -> np.ndarray:
    """What the loader in the docs computes, in a process of its own."""
    (script,) = (each for each in blocks(ROOT / "docs" / "inference.md") if each.value == "run_program.py")
    assert len(script.text.splitlines()) <= 20
    path = folder.parent / "run_program.py"
    path.write_text(script.text)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(path), str(folder)],
        cwd=folder.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return np.load(folder / "probabilities.npy")


SLOW = [pytest.param(name, {}, marks=pytest.mark.slow) for name in ("rgat", "rgcn", "gcn", "gat")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "sampling"),
    [("han", {}), *SLOW, pytest.param("rgcn", {"sampling": IN_BATCHES}, marks=pytest.mark.slow)],
)
def test_a_program_gives_what_the_run_predicts(model, sampling, tmp_path):
    run = small(academic(), model=model, layers=2, **sampling)
    folder = run.export(tmp_path / "program")
    np.testing.assert_allclose(run_alone(folder), run.predict(), atol=1e-6)
    schema = json.loads((folder / "schema.json").read_text())
    made = jax.export.deserialize(bytearray((folder / "program.bin").read_bytes()))
    assert made.platforms == ("cpu", "cuda")
    assert schema["platforms"] == ["cpu", "cuda"]
    assert "custom_call" not in made.mlir_module()
    for name, arrays in (("weights", "weights"), ("inputs", "graph")):
        stored = np.load(folder / f"{arrays}.npz")
        assert {each: [list(stored[each].shape), str(stored[each].dtype)] for each in stored} == {
            each: [said["shape"], said["dtype"]] for each, said in schema[name].items()
        }
    assert schema["target"] == "paper"
    assert schema["classes"] == ["0", "1", "2"]


@pytest.mark.slow
def test_what_cannot_be_exported_is_one_line(tmp_path):
    run = small(academic(), model="rgcn", epochs=1)
    with pytest.raises(InputError, match="exists; name a folder that is not there yet"):
        run.export(tmp_path)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="name a folder that can be written"):
        run.export(tmp_path / "file" / "program")
    links = small(academic(), model="rgcn", task={"name": "link_prediction", "relations": ["writes"]}, epochs=1)
    with pytest.raises(InputError, match="task 'link_prediction' cannot be exported"):
        links.export(tmp_path / "links")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
