"""What the tests with faults share."""

from pathlib import Path

import pytest

from tests.faults.shim import build


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes file operations fail."""
    return build(tmp_path_factory.mktemp("shim"))
