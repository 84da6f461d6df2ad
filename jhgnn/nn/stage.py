"""Names the stages of a model, so that the profiler can tell their kernels apart."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax
from jax.ad_checkpoint import checkpoint_name

_barriers = contextvars.ContextVar("jhgnn_stage_barriers", default=False)


@contextlib.contextmanager
def stage(name: str, layer: int | None = None, part: str = "") -> Iterator[None]:
    """Everything traced inside is named `layerN/NAME/PART` in XLA's `op_name` metadata; it costs nothing at run time.

    Args:
        name: FP, NA, SF, LC or PU.
        layer: 0 for the first one.
        part: the relation, metapath or node type.
    """
    path = "/".join(([] if layer is None else [f"layer{layer}"]) + [name] + ([part] if part else []))
    with jax.named_scope(path):
        yield


def border(x: jax.Array, name: str) -> jax.Array:
    """Names `x`, the result of a stage, for policies of recomputation; inside `barriers` behind a compiler barrier."""
    return checkpoint_name(jax.lax.optimization_barrier(x) if _barriers.get() else x, name)


@contextlib.contextmanager
def barriers() -> Iterator[None]:
    """Programs traced inside keep XLA from fusing across stage borders, which costs time; for the profiler alone."""
    token = _barriers.set(True)
    try:
        yield
    finally:
        _barriers.reset(token)
