import pytest

from tests.packaging.distributions import Distributions


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return Distributions(tmp_path_factory.mktemp("distributions"))
