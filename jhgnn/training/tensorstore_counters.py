"""Checkpoints written without reading TensorStore's counters, of which each reading stays in memory for good.

Orbax reads them at every checkpoint, for figures that it logs. TensorStore 0.1.86 never frees the list of values of any
counter that `experimental_collect_matching_metrics` gives: some 40 objects a checkpoint.
"""

import contextlib
from collections.abc import Iterator

from orbax.checkpoint._src.serialization import tensorstore_utils


@contextlib.contextmanager
def without_counters() -> Iterator[None]:
    """Inside, Orbax logs no bytes written; nothing changes with one that does not read them."""
    name = "get_tensorstore_raw_bytes"
    read = getattr(tensorstore_utils, name, None)
    if read is None:
        yield
        return
    setattr(tensorstore_utils, name, lambda *_, **__: 0)
    try:
        yield
    finally:
        setattr(tensorstore_utils, name, read)
