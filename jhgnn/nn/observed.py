"""What layers show of themselves while they are traced: their attention, to whoever explains a model.

Nothing is computed for it where nobody observes.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import jax

Kind: TypeAlias = Literal["edge attention", "semantic attention"]


class Shown(NamedTuple):
    """What one layer showed.

    Attributes:
        kind: `edge attention`: `[num_edges, heads]` in the order of the graph's in-edges; `semantic attention`: a
            scalar, the weight of one semantic graph among those that are fused.
        layer: 0 for the first one.
        name: of the semantic graph.
        value: floating.
    """

    kind: Kind
    layer: int
    name: str
    value: jax.Array


_shown = contextvars.ContextVar[list[Shown] | None]("jhgnn_shown", default=None)


@contextlib.contextmanager
def observing() -> Iterator[list[Shown]]:
    """Fills the list with what layers show that are traced inside, in their order."""
    found: list[Shown] = []
    token = _shown.set(found)
    try:
        yield found
    finally:
        _shown.reset(token)


def show(kind: Kind, layer: int, name: str, make: Callable[[], jax.Array]) -> None:
    """Hands `make()` to whoever observes; does nothing where nobody does."""
    found = _shown.get()
    if found is not None:
        found.append(Shown(kind, layer, name, make()))
