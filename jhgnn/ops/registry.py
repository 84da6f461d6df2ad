"""All ops that have several implementations, and which of them a recipe may name."""

from collections.abc import Mapping
from typing import Any

from jhgnn.errors import InputError
from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops import (
    neighbor_attention,
    neighbor_max,
    neighbor_mean,
    neighbor_sum,
    row_attention,
    sparse_matmul,
    table_rows,
)
from jhgnn.ops.implementation import WORDS, Op

OPS: Mapping[str, Op] = {
    op.name: op
    for op in (
        neighbor_attention.OP,
        row_attention.OP,
        neighbor_mean.OP,
        neighbor_sum.OP,
        neighbor_max.OP,
        sparse_matmul.OP,
        sparse_matmul.STACK_OP,
        table_rows.READ,
        table_rows.WRITE,
    )
}

KERNELS: Mapping[str, str] = {
    "attention": "neighbor_attention",
    "mean": "neighbor_mean",
    "projection": "sparse_matmul",
    "tables": "read_rows",
}
"""The op that each key of a recipe's `kernels` is about; `tables` is about `write_rows` as well, of the same names."""

DENSIFIED = "dense"
"""What `kernels.projection` calls features that are not kept sparse, for which no op of ours is run."""


AS_ROWS = "rows"
"""What `kernels.attention` calls attention along samples that weights senders' rows before they are projected: the
kernel of `row_attention`."""


def names_of(key: str) -> tuple[str, ...]:
    """What `kernels.KEY` may be, `auto` first, on any platform."""
    extra = {"projection": {DENSIFIED}, "attention": {AS_ROWS}}.get(key, set())
    return ("auto", *sorted({*OPS[KERNELS[key]].names(), *extra}))


def check_names(kernels: Any) -> None:
    """Checks the `kernels` of a recipe, an object with an attribute a key.

    Raises:
        InputError: one names no implementation.
    """
    for key in KERNELS:
        named, known = getattr(kernels, key), names_of(key)
        if named not in known:
            raise InputError(f"kernels.{key} = {named!r} is not one of {', '.join(map(repr, known))}")


def check_named(key: str, named: str, takes: type) -> None:
    """Checks that what `kernels.KEY` names can work on a kind of subject, for the platform and in this process.

    Raises:
        InputError: it cannot.
    """
    if named == "auto" or (key == "projection" and named == DENSIFIED):
        return
    if (key, named) == ("attention", AS_ROWS) and takes is not NeighborTable:
        raise InputError(
            f"kernels.attention = {AS_ROWS!r} is for sampled neighbours, not for {WORDS[takes]}; use 'auto'"
        )
    op, name = (row_attention.OP, "native") if (key, named) == ("attention", AS_ROWS) else (OPS[KERNELS[key]], named)
    try:
        obstacle = op.find(name, takes).obstacle()
    except ValueError as error:
        obstacle = str(error)
    if obstacle:
        raise InputError(f"kernels.{key} = {named!r}: {obstacle}")
