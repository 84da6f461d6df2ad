"""Names the stages of a model, so that the profiler can tell their kernels apart."""

import contextlib
from collections.abc import Iterator

import jax


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
