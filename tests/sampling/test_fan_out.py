"""Fan-outs as recipes write them."""

import pytest

from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation, Schema
from jhgnn.sampling.fan_out import fan_outs

WRITES, CITES = Relation("author", "writes", "paper"), Relation("paper", "cites", "paper")
BACK = Relation("paper", "writes", "author")
SCHEMA = Schema(("paper", "author"), (WRITES, CITES, BACK))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, {WRITES: (7, 7), CITES: (7, 7), BACK: (7, 7)}),
        ([25, -1], {WRITES: (25, -1), CITES: (25, -1), BACK: (25, -1)}),
        ({"cites": 3}, {WRITES: (0, 0), CITES: (3, 3), BACK: (0, 0)}),
        (
            {"default": [9, 8], "author:writes:paper": (0, 4), "cites": -1},
            {WRITES: (0, 4), CITES: (-1, -1), BACK: (9, 8)},
        ),
    ],
)
def test_reads(value, expected) -> None:
    assert fan_outs(value, SCHEMA, 2) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-2, "fan_out holds -2; need a whole number from 0 to 1024, or -1"),
        (1025, "holds 1025"),
        (True, "holds True"),
        (2.5, "fan_out is 2.5; need a whole number or a list of 2"),
        ("25", "is '25'"),
        ([25], "fan_out has 1 numbers for 2 hops"),
        ([25, 2.0], "holds 2.0"),
        ({"cite": 3}, "'cite' is no relation; write one of author:writes:paper"),
        ({"writes": 3}, "'writes' is ambiguous; write one of author:writes:paper, paper:writes:author"),
        ({"cites": 3, "paper:cites:paper": 4}, "'paper:cites:paper' is given twice"),
        ({"cites": [1, 2, 3]}, "fan_out.cites has 3 numbers"),
    ],
)
def test_refuses_with_one_line(value, message: str) -> None:
    with pytest.raises(InputError) as raised:
        fan_outs(value, SCHEMA, 2)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
