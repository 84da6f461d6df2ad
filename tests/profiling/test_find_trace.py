"""Which trace of a folder is analysed: the one just written, whatever the clock says."""

import os

from jhgnn.profiling.xplane import find_trace, make_newest, traces


def test_a_trace_from_before_the_clock_was_set_back_is_not_taken_for_the_newest(tmp_path):
    old, new = (tmp_path / "plugins" / "profile" / name / "host.xplane.pb" for name in ("one", "two"))
    for path in (old, new):
        path.parent.mkdir(parents=True)
        path.touch()
    os.utime(old, (4e9, 4e9))
    assert find_trace(tmp_path) == old
    make_newest([new], [old])
    assert traces(tmp_path) == [old, new]
    assert find_trace(tmp_path) == new
