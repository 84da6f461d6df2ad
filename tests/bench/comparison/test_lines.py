"""Lines of user code, counted."""

import pytest

from bench.comparison.lines import count, user_lines

SOURCE = '''"""Doc."""

import numpy as np
import unused
from bench.other import helper

WIDTH = 4


@decorated
def used(x):
    """Two
    lines."""
    # a comment

    return np.tanh(x) * WIDTH


def elsewhere(x):
    return used(x)


def root(x):
    return used(x)
'''


def test_lines_of_user_code_by_hand():
    # root: 2; used: decorator, def, return; WIDTH; import numpy
    assert count({"a": SOURCE}, ["root"]) == 7
    with pytest.raises(KeyError):
        count({"a": SOURCE}, ["absent"])


def test_lines_of_every_framework():
    for model in ("han", "rgcn", "rgat"):
        ours, *peers = (user_lines(framework, model) for framework in ("jhgnn", "dgl", "pyg"))
        assert 3 < ours < min(peers)
        assert max(peers) < 400
