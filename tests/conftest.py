"""Test-wide settings: strict ranks, two forced CPU devices, quick compilation, and where the real data lies."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.compile_flags import EMITTED_AS_FOR_USERS, QUICK_TO_COMPILE

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# In this process and its children. `XLA_FLAGS=` compiles as users do; CI runs the documented commands so.
os.environ.setdefault("XLA_FLAGS", QUICK_TO_COMPILE)

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)

hypothesis.settings.register_profile("jhgnn", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("jhgnn")

DATA_ROOT = Path(os.environ.get("JHGNN_DATA_ROOT", Path(__file__).parents[2] / "shared" / "data"))


MOST_MAPS = 16_000
"""Mapped areas of memory from which a test session forgets compiled programs, each of which has a dozen or more. Linux
gives a process 65,530 (`vm.max_map_count`); XLA, which a worker of the slow tests once took to them, then crashes."""


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Iterator[None]:
    """After each module, where there are many."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        gc.collect()
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def emitted_as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs compiled ahead of time round as those of users do, to the bit: by XLA's newer emitters of fusions."""
    compiled = jax.stages.Lowered.compile

    def compile_so(lowered: jax.stages.Lowered, compiler_options: Any = None, **more: Any) -> jax.stages.Compiled:
        return compiled(lowered, (compiler_options or {}) | EMITTED_AS_FOR_USERS, **more)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_so)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real heterographs; skips where this machine has none."""
    if not DATA_ROOT.is_dir():
        pytest.skip(f"no real data at {DATA_ROOT}; set JHGNN_DATA_ROOT")
    return DATA_ROOT


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keeps compiled programs for this session, this process's and its children's, and none in the home folder."""
    folder = tmp_path_factory.mktemp("compile_cache")
    before = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    yield folder
    jax.config.update("jax_compilation_cache_dir", before)
    if before is None:
        del os.environ["JAX_COMPILATION_CACHE_DIR"]
    else:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = before


@pytest.fixture(scope="session")
def academic_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small academic heterograph, saved."""
    from jhgnn.data import save_graph
    from tests.models.heterographs import academic

    return save_graph(academic(), tmp_path_factory.mktemp("data") / "academic")
