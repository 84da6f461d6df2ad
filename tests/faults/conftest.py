"""What the tests with faults share."""

from pathlib import Path

import pytest

from tests.faults.shim import build, buildable


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes file operations fail."""
    if not buildable():
        pytest.skip("needs Linux and g++")
    return build(tmp_path_factory.mktemp("shim"))
