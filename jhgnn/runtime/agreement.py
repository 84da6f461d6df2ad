"""What processes that train together must have alike, compared before training through JAX's coordination service.

Its key-value store is there before any device is, needs no collective, and costs one small message each.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import jax
from jax._src import distributed

from jhgnn.errors import InputError

STARTED, DATA, COMPILED = "started", "data", "compiled"
"""The stages at which processes compare, in their order."""
STAGES = (STARTED, DATA, COMPILED)

_DAY_S = 24 * 3600
"""For each other; one that dies ends the others long before."""
_SHOWN = 120
"""Characters of a value in a message."""


class DisagreementError(InputError):
    """Processes that should train together differ, or one of them refuses its input."""


def client() -> Any:
    """Of the coordination service of the processes that this one has joined."""
    return distributed.global_state.client


def are_joined() -> bool:
    """Whether this process has joined others."""
    return distributed.global_state.client is not None and (distributed.global_state.num_processes or 1) > 1


def agree(stage: str, own: Mapping[str, str], *, limit_s: float = _DAY_S) -> None:
    """Waits for all processes to come here, and compares what each has; returns at once where there is one.

    Args:
        stage: one of `STAGES`; each at most once in a process.
        own: what this process has, by what messages call it, in the order in which a difference is told.
        limit_s: for the others to say what they have.

    Raises:
        DisagreementError: a process has something else, refuses its input, or does not say what it has.
    """
    if not are_joined():
        return
    state = distributed.global_state
    _tell(stage, {"has": dict(own)})
    for other in range(state.num_processes):
        if other == state.process_id:
            continue
        theirs = _heard(stage, other, limit_s)
        if "refuses" in theirs:
            raise DisagreementError(f"process {other} cannot begin: {theirs['refuses']}")
        if theirs["has"] != own:
            raise DisagreementError(
                f"{_difference(own, state.process_id, theirs['has'], other)}; start all of them again with the same"
            )


def refuse(why: str) -> None:
    """Tells the others, at whichever stage they wait, that this process cannot begin."""
    for stage in STAGES:
        _tell(stage, {"refuses": why})


def _tell(stage: str, message: Mapping[str, object]) -> None:
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # told before; where the service is gone, asking it says so
        client().key_value_set(f"jhgnn/{stage}/{distributed.global_state.process_id}", json.dumps(message))


def _heard(stage: str, other: int, limit_s: float) -> Any:
    try:
        return json.loads(client().blocking_key_value_get(f"jhgnn/{stage}/{other}", int(limit_s * 1000)))
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise
        raise DisagreementError(
            f"process {other} has joined, but did not say within {limit_s:.0f} s what it was started with, as this"
            " version of jhgnn does; start all of them with the same version"
        ) from None


def _difference(own: Mapping[str, str], number: int, theirs: Mapping[str, str], other: int) -> str:
    """The first thing that differs, and the names of the next ones; the lower process goes first."""
    names = [name for name in {**own, **theirs} if own.get(name) != theirs.get(name)]
    sides = sorted([(number, own), (other, theirs)], key=lambda side: side[0])
    first, second = (f"{_short(side.get(names[0], 'absent'))} in process {each}" for each, side in sides)
    more = names[1:4]
    also = f" (and so do {', '.join(more)}{' and others' if len(names) > 4 else ''})" if more else ""
    return f"the processes differ: {names[0]} is {first}, but {second}{also}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
