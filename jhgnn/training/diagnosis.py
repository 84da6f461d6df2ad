"""Finds where a number stopped being finite: the training loss is run again, one primitive at a time."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core


class NonFinite(NamedTuple):
    """The first value that is not finite: the stage it belongs to and what made it."""

    stage: str
    tensor: str

    def __str__(self) -> str:
        return f"stage {self.stage}, tensor {self.tensor}"


def first_non_finite(function: Callable[..., Any], *arguments: Any) -> NonFinite | None:
    """Evaluates a function eagerly and names the first non-finite result, or None where all are finite.

    Calls without loops are entered; a loop or a kernel counts as one primitive.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    try:
        _run(closed.jaxpr, closed.consts, jax.tree.leaves(arguments), "")
    except _FoundError as found:
        return found.where
    return None


class _FoundError(Exception):
    def __init__(self, where: NonFinite) -> None:
        self.where = where


def _run(jaxpr: core.Jaxpr, consts: Any, arguments: Any, outer: str) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        names = "/".join(part for part in (outer, str(equation.source_info.name_stack)) if part)
        inner = _called(equation)
        if inner is not None and len(inner.jaxpr.invars) == len(inputs):
            results = _run(inner.jaxpr, inner.consts, inputs, names)
        else:
            outcome = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
            results = list(outcome) if equation.primitive.multiple_results else [outcome]
        for variable, result in zip(equation.outvars, results, strict=True):
            # -inf is how masked scores and maxima over no edge look; it is an error only where it makes a NaN.
            if _is_broken(result):
                shape = "x".join(map(str, np.shape(result))) or "scalar"
                raise _FoundError(NonFinite(names or "?", f"{equation.primitive.name} [{shape}]"))
            values[variable] = result
    return [read(atom) for atom in jaxpr.outvars]


def _called(equation: core.JaxprEqn) -> core.ClosedJaxpr | None:
    if equation.primitive.name in ("scan", "while", "cond"):
        return None
    for key in ("jaxpr", "call_jaxpr"):
        inner = equation.params.get(key)
        if isinstance(inner, core.ClosedJaxpr):
            return inner
        if isinstance(inner, core.Jaxpr):
            return core.ClosedJaxpr(inner, ())
    return None


def _is_broken(value: Any) -> bool:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended) or not jax.dtypes.issubdtype(value.dtype, np.floating):
        return False
    array = np.asarray(value).astype(np.float32)
    return bool((np.isnan(array) | np.isposinf(array)).any())


HINT = "lower training.learning_rate or set training.gradient_clip"


def explain_loss(losses: Iterable[tuple[Callable[[Any], Any], Any]], suspects: Any, where: str) -> str:
    """Says where the first of some losses, or else its gradient, first is not finite; evaluated eagerly.

    Args:
        losses: functions of one argument, each with the argument at which to take it and its gradient.
        suspects: arrays by name that may hold something not finite themselves.
        where: what is known already; the message begins with it.
    """
    bad = [*non_finite_leaves(suspects)]
    if bad:
        return f"{where}; not finite before the step: {', '.join(bad[:3])}"
    for function, argument in losses:
        found = first_non_finite(function, argument) or first_non_finite(jax.grad(function), argument)
        if found is not None:
            return f"{where}; first in {found}; {HINT}"
    return f"{where}; {HINT}"


def non_finite_leaves(tree: Any) -> Iterator[str]:
    """Dotted paths of the arrays of a pytree that hold something not finite."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        floating = jax.dtypes.issubdtype(leaf.dtype, np.floating)
        if floating and not np.isfinite(np.asarray(leaf).astype(np.float32)).all():
            yield jax.tree_util.keystr(path, simple=True, separator=".")
