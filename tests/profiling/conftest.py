"""A small trace of two HAN metapaths with native kernels, stored with its program, and the same recipe run live."""

import gzip
import shutil
from pathlib import Path

import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.profiling.capture import Capture, capture

STORED = Path(__file__).parent / "stored"


def small_recipe(model: str = "han", **kernels: str) -> Config:
    """Synthetic IMDB at a fiftieth of its size."""
    named = {"metapaths": ["MDM", "MAM"]} if model == "han" else {"layers": 1}
    tables = {
        "data": {"preset": "imdb", "scale": 0.02},
        "model": {"name": model, "hidden": 16, "heads": 2, "attention_dropout": 0.5, **named},
        "kernels": kernels,
    }
    return override(Config(), tables, where="test")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The stored profile, unpacked as `capture` lays it out."""
    folder = tmp_path / "stored"
    below = folder / "plugins" / "profile" / "run"
    below.mkdir(parents=True)
    (below / "host.xplane.pb").write_bytes(gzip.decompress((STORED / "host.xplane.pb.gz").read_bytes()))
    for path in STORED.iterdir():
        if not path.name.startswith("host."):
            shutil.copy(path, folder / path.name)
    return folder


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """The small recipe with segment sums, traced here."""
    recipe = small_recipe(attention="segment", projection="segment")
    return capture(recipe, tmp_path_factory.mktemp("live"), warm_up=1, steps=3, progress=False)
