"""What processes that train together are compared by: versions, the command line, and the data that they have read."""

import dataclasses
import functools
import hashlib
from importlib import metadata
from pathlib import Path

from jhgnn.config import Config
from jhgnn.distributed.manifest import MANIFEST_FILE
from jhgnn.graph.content_digest import content
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.runtime import agreement

_PACKAGE = Path(__file__).parents[1]
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")

MAY_DIFFER = frozenset(
    {"data.path", "sgb.cache_dir", "sgb.memory_limit_gib", "run.log_every", "run.tensorboard"}
    | {"sampling.threads", "sampling.prefetch_threads", "sampling.prefetch_depth", "sampling.prefetch_memory_gib"}
    | {"distributed.coordinator", "distributed.process_id", "distributed.parts"}
)
"""Settings of one machine: where its copy of the data lies, and how much of it the run may take."""

_SHAPES_REUSE = "sampling.prefetch_memory_gib"
"""By which rows that are reused are computed in pieces, whose shapes all processes exchange."""


def started_with(config: Config, *, num_seeds: int, resume: bool) -> dict[str, str]:
    """What a process was started with, but for `MAY_DIFFER`: versions, options beside the recipe, and the recipe.

    Where rows of hot vertices are reused, `sampling.prefetch_memory_gib` may not differ.
    """
    found = {"jhgnn": f"{metadata.version('jhgnn')} (source {source_digest()})"}
    found |= {name: metadata.version(name) for name in _LIBRARIES}
    found |= {"--resume": "given" if resume else "absent", "--seeds": str(num_seeds)}
    for section in dataclasses.fields(config):
        values = getattr(config, section.name)
        for field in dataclasses.fields(values):
            name = f"{section.name}.{field.name}"
            if name not in MAY_DIFFER or (name == _SHAPES_REUSE and config.sampling.hot in ("stale", "literal")):
                found[name] = repr(getattr(values, field.name))
    found["distributed.parts"] = "given" if config.distributed.parts else "empty"
    return found


@functools.cache
def source_digest() -> str:
    """Of the package's Python files, since a checkout changes without its version."""
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE)};".encode() + path.read_bytes())
    return digest.hexdigest()


def agree_on_data(graph: HeteroGraph, config: Config) -> None:
    """Compares the graph as read, and the folder of parts, with those of the other processes; where there are any.

    Of a folder of parts its manifest is compared, which has the checksums of all files that readers compare.

    Raises:
        DisagreementError: a process has read other data, or could not read its own.
    """
    if not agreement.are_joined():
        return
    found = content(graph)
    if config.distributed.parts:
        manifest = Path(config.distributed.parts).expanduser() / MANIFEST_FILE
        digest = hashlib.blake2b(manifest.read_bytes(), digest_size=8).hexdigest()
        found[f"{MANIFEST_FILE} of distributed.parts"] = f"digest {digest}"
    agreement.agree(agreement.DATA, found)
