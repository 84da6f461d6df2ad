"""Test-wide settings: strict ranks, two forced CPU devices, and where the real data lies."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)

hypothesis.settings.register_profile("jhgnn", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("jhgnn")

DATA_ROOT = Path(os.environ.get("JHGNN_DATA_ROOT", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real heterographs; skips where this machine has none."""
    if not DATA_ROOT.is_dir():
        pytest.skip(f"no real data at {DATA_ROOT}; set JHGNN_DATA_ROOT")
    return DATA_ROOT
