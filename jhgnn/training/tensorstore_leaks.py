"""Checkpoints written without what TensorStore 0.1.86 would keep of each one in memory for good.

Orbax reads TensorStore's counters at every checkpoint, for figures that it logs, and has it print the place of every
array as JSON. The values of both, `experimental_collect_matching_metrics` and `Spec.to_json`, are never freed: some 40
and, for each array, 4 objects a checkpoint.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def without_leaks() -> Iterator[None]:
    """Inside, Orbax logs no bytes written, and names files as it was told; nothing changes with one that does neither.

    It holds for all threads, since those of Orbax write, so only one of them may be inside.
    """
    from orbax.checkpoint._src.serialization import tensorstore_utils  # with Orbax itself, at the first checkpoint

    replaced: dict[str, Any] = {"get_tensorstore_raw_bytes": lambda *_, **__: 0}
    library = getattr(tensorstore_utils, "ts", None)
    if library is not None:
        replaced["ts"] = _Changed(library, KvStore=_Changed(library.KvStore, Spec=_Spec))
    before = {name: getattr(tensorstore_utils, name) for name in replaced if hasattr(tensorstore_utils, name)}
    for name in before:
        setattr(tensorstore_utils, name, replaced[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(tensorstore_utils, name, value)


class _Changed:
    """A module or class with some of its names changed."""

    def __init__(self, of: Any, **changes: Any) -> None:
        self._of = of
        self.__dict__.update(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


class _Spec:
    """In place of `tensorstore.KvStore.Spec`: the JSON of files' place is what it was made from."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = spec

    def to_json(self) -> dict[str, Any]:
        return dict(self._spec)
