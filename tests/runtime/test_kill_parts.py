"""One of three processes that train on parts is killed; whoever goes on ends where an undisturbed run does."""

import pytest

from tests.runtime.kill_parts import survived

pytestmark = pytest.mark.usefixtures("compile_cache")


@pytest.mark.slow
@pytest.mark.long
def test_after_a_kill_nothing_is_lost(tmp_path):
    (told,) = survived(tmp_path / "runs", 1, resumed_by=[1])
    assert list(told["difference"]) == ["1"]


@pytest.mark.slow
@pytest.mark.long
def test_after_20_kills_1_2_and_4_processes_end_where_one_does(tmp_path):
    seen = survived(tmp_path / "runs", 20)
    assert all(set(each["difference"]) == {"1", "2", "4"} for each in seen)
    assert any(each["in_save"] for each in seen)
