"""Checkpoints: the last state, the best parameters and the loop's progress in one folder, complete or absent.

Orbax writes a whole state; one that is cut over devices is written in shards (`jhgnn.training.checkpoint_shards`).
"""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jhgnn.errors import InputError, StorageError
from jhgnn.runtime.files import sync_folder, write_json
from jhgnn.runtime.quiet_threads import quiet_threads
from jhgnn.runtime.storage_cause import cause
from jhgnn.training import mapped_leaves
from jhgnn.training.checkpoint_path import check_path
from jhgnn.training.checkpoint_shards import (
    is_sharded,
    read_manifest,
    read_shards,
    shards_problem,
    write_shards,
)
from jhgnn.training.file_digests import DIGESTS, digests
from jhgnn.training.parts import Parts
from jhgnn.training.state import Params, TrainState
from jhgnn.training.tensorstore_leaks import without_leaks

_PREFIX = "epoch-"
_TEMPORARY = "orbax-checkpoint-tmp"


def orbax() -> Any:
    """Orbax, imported with the first checkpoint: it takes half a second, for which no first step has to wait."""
    import orbax.checkpoint

    return orbax.checkpoint.v1


@dataclasses.dataclass(frozen=True)
class Progress:
    """What the loop knows beyond the state; restored on resume.

    Attributes:
        epoch: epochs done.
        step: batches done of the next epoch; epoch and step are the cursor at which training resumes.
        loss_sum: losses summed over the examples of those batches.
        num_targets: how many examples these were.
        best_epoch: the epoch whose parameters are kept as best, 0 before the first evaluation.
        best_value: the monitored value there; lower is better.
        waited: epochs since then.
        recipe: the resolved recipe in TOML.
    """

    epoch: int = 0
    best_epoch: int = 0
    best_value: float = float("inf")
    waited: int = 0
    recipe: str = ""
    step: int = 0
    loss_sum: float = 0.0
    num_targets: int = 0


class Checkpoint(NamedTuple):
    """A checkpoint read back."""

    state: TrainState
    best_params: Params
    progress: Progress


class CheckpointStore:
    """The checkpoints of one run, `FOLDER/epoch-00000012`, in mid-epoch `epoch-00000012-00000345`: the two newest.

    Orbax writes to a temporary folder and renames it, and the digests come last, after everything that they are of has
    reached the disk, so a run killed at any moment leaves the checkpoint before. Where the newest is damaged, the one
    before it is taken.

    Attributes:
        fallback: why an older checkpoint than the newest was taken, for a person; empty where it was not.

    Raises:
        InputError: the path holds a character that Orbax takes for a pattern.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        check_path(self.folder)
        self.fallback = ""
        self._before: Path | None = None  # the one that was read or written last
        self._sound: Path | None = None

    def _complete(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _is_checkpoint(path) and (path / DIGESTS).exists())

    def exists(self) -> bool:
        """Whether there is anything to resume from."""
        return bool(self._complete())

    def save(self, state: TrainState, best_params: Params, progress: Progress, *, parts: Parts | None = None) -> None:
        """Writes a checkpoint, then deletes all older ones but the last. Several processes all call it.

        Args:
            state, best_params: NumPy arrays where there are several processes; with `parts` as they are on the devices.
            progress: of the loop.
            parts: where the rows of tables live, if no process has all of them: each then writes its own.

        Raises:
            StorageError: it cannot be written; the one before it is left.
        """
        mid_epoch = f"-{progress.step:08d}" if progress.step else ""
        path = self.folder / f"{_PREFIX}{progress.epoch:08d}{mid_epoch}"
        tree = {"state": _named(state), "best_params": best_params}
        # JSON has no infinity, which is the best value before the first evaluation.
        recorded = dataclasses.asdict(progress) | {"best_value": repr(progress.best_value)}
        about = {"progress": recorded, "specs": _specs(tree)}
        try:
            if parts is not None:
                cut = {"state": state, "best_params": best_params}
                write_shards(path, cut, parts, about, lambda found: self._complete_with(path, found))
            else:
                with quiet_threads("absl"), without_leaks():
                    in_memory, in_files = mapped_leaves.apart(tree)
                    metadata = about | {"shapes": _shapes(tree), "mapped": sorted(in_files)}
                    orbax().save_checkpointables(path, in_memory, overwrite=True, custom_metadata=metadata)
                if jax.process_index() == 0:
                    mapped_leaves.write(path, in_files)
                    self._complete_with(path, digests(path, sync=True))
        except Exception as error:  # of Orbax's threads and of TensorStore: OSError, ValueError and others
            reason = cause(error)
            if reason is None:
                raise
            if jax.process_index() == 0:
                self._discard(path)
            raise StorageError(f"checkpoint {path}: cannot write it: {reason}") from error
        if jax.process_index() == 0:
            self._discard_but({path, self._before})
        self._before, self._sound = path, None

    def _complete_with(self, path: Path, found: dict[str, list[int]]) -> None:
        """Everything that the digests are of is on the disk."""
        sync_folder(self.folder)
        write_json(path / DIGESTS, found)

    def _discard_but(self, kept: set[Path | None]) -> None:
        """Older checkpoints go, damaged ones, and what kills left half-written; what cannot be deleted stays."""
        for other in self.folder.iterdir():
            if other not in kept and (_is_checkpoint(other) or _TEMPORARY in other.name):
                shutil.rmtree(other, ignore_errors=True)

    def _discard(self, path: Path) -> None:
        """What a failed write leaves, which may be what fills the disk."""
        with contextlib.suppress(OSError):
            for other in self.folder.iterdir():
                if other == path or _TEMPORARY in other.name:
                    shutil.rmtree(other, ignore_errors=True)

    def progress(self) -> Progress:
        """The progress of the newest sound checkpoint, without its arrays.

        Raises:
            InputError: there is none, or it cannot be read.
        """
        metadata = _metadata(self._newest())["progress"]
        return Progress(**metadata | {"best_value": float(metadata["best_value"])})

    def load(self, like: TrainState, *, parts: Parts | None = None) -> Checkpoint:
        """The newest sound checkpoint, with the shapes and dtypes of `like`.

        With `parts` its tables are cut: the rows of this process's places, `[places, rows, ...]`. Of a checkpoint in
        shards no others are read.

        Raises:
            InputError: there is none, or it does not fit.
        """
        path, progress = self._newest(), self.progress()
        abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)
        tree = {"state": _named(abstract), "best_params": abstract.params}
        restored = _restore(path, tree, parts)
        self._before = path
        state, best_params = TrainState(**restored["state"]), restored["best_params"]
        if parts is not None:
            cut = parts.from_types if is_sharded(path) else parts.cut
            state, best_params = cut(state), cut(best_params)
        return Checkpoint(state, best_params, progress)

    def begin(self, state: TrainState, recipe: str, *, resume: bool, parts: Parts | None = None) -> Checkpoint:
        """Where a run starts: with `resume` the newest checkpoint, under `recipe` from now on, with tables cut as
        `load` says; else `state` itself.

        Raises:
            InputError: as `load`, if it resumes.
        """
        if not resume:
            return Checkpoint(state, state.params, Progress(recipe=recipe))
        newest = self.load(state, parts=parts)
        return newest._replace(progress=dataclasses.replace(newest.progress, recipe=recipe))

    def load_best_params(self, like: Params) -> Params:
        """The best parameters of the newest sound checkpoint.

        Raises:
            InputError: as `load`.
        """
        return _restore(self._newest(), {"best_params": like})["best_params"]

    def _newest(self) -> Path:
        """The newest one whose files are as they were written; each is looked at once.

        Raises:
            InputError: there is none.
            StorageError: one cannot be read now.
        """
        if self._sound is not None:
            return self._sound
        damaged: list[str] = []
        for path in reversed(self._complete()):
            problem = _damage(path)
            if problem is None:
                if damaged:
                    self.fallback = f"checkpoint {damaged[0]}; the older {path.name} is taken in its place"
                self._sound = path
                return path
            damaged.append(f"{path}: {problem}")
        if damaged:
            raise InputError(
                f"checkpoint {damaged[0]}, and no older one is sound; put the folder back from a copy, or train anew in"
                " another run.dir"
            )
        raise InputError(f"{self.folder}: holds no complete checkpoint")


def _named(state: TrainState) -> dict[str, Any]:
    """A state's fields by name, without those that it has no use for."""
    fields = state._asdict()
    return fields if fields["hot"] else {name: value for name, value in fields.items() if name != "hot"}


def _is_checkpoint(path: Path) -> bool:
    numbers = path.name.removeprefix(_PREFIX).split("-")
    return path.name.startswith(_PREFIX) and len(numbers) <= 2 and all(number.isdigit() for number in numbers)


def _restore(path: Path, tree: dict[str, Any], parts: Parts | None = None) -> dict[str, Any]:
    metadata = _metadata(path)
    expected, found, in_files = _shapes(tree), metadata["shapes"], metadata.get("mapped", [])
    for name, shape in expected.items():
        if found.get(name) != shape:
            raise InputError(
                f"checkpoint {path}: of another model: {name} is {found.get(name)} there, but {shape} here"
            )
    if is_sharded(path):
        with _reading(path):
            read = read_shards(path, tree, parts)
        return read if parts is not None or jax.process_count() > 1 else jax.device_put(read, jax.devices()[0])
    tree = mapped_leaves.abstract(tree, in_files)
    if jax.process_count() > 1:
        abstract = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), tree)
    else:
        on_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=on_device), tree)
    with _reading(path):
        return mapped_leaves.joined(path, orbax().load_checkpointables(path, abstract), in_files)


def _metadata(path: Path) -> Any:
    with _reading(path):
        if is_sharded(path):
            return read_manifest(path)
        found = orbax().checkpointables_metadata(path).custom_metadata
        if not isinstance(found, dict) or not {"progress", "shapes"} <= found.keys():
            # Its digests fit, so it was there; Orbax takes a file that it cannot read for one that holds nothing.
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return found


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Orbax reads a checkpoint inside; what the disk does not give is a StorageError."""
    try:
        with quiet_threads("absl"):
            yield
    except Exception as error:
        reason = cause(error)
        if reason is None:
            raise
        raise StorageError(
            f"checkpoint {path}: cannot read it: {reason}; nothing in {path.parent} was changed: try again once it can"
        ) from error


def _shapes(tree: dict[str, Any]) -> dict[str, str]:
    """`state.params.layers.0.w` -> `float32[3,2]`, compared before Orbax fails on a tree that does not match."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): f"{leaf.dtype}{list(leaf.shape)}".replace(" ", "")
        for path, leaf in leaves
    }


def _specs(tree: dict[str, Any]) -> dict[str, str]:
    """How each leaf was cut over the mesh, `data` or nothing, by the names of `_shapes`."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        spec = getattr(getattr(leaf, "sharding", None), "spec", ())
        found[jax.tree_util.keystr(path, simple=True, separator=".")] = ",".join(str(axis) for axis in spec)
    return found


def _damage(path: Path) -> str | None:
    """What is wrong with the files of a checkpoint, or nothing.

    Orbax's own failure on a damaged file is dozens of lines from background tasks, so look first.

    Raises:
        StorageError: a file is there and cannot be read now, which does not show that it is damaged.
    """
    try:
        expected = json.loads((path / DIGESTS).read_text())
        if is_sharded(path) and (problem := shards_problem(path)) is not None:
            return problem
        found = digests(path)
    except OSError as error:
        name = Path(error.filename or path).name
        if error.errno in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR):
            return f"file {name} is damaged or missing"
        raise StorageError(
            f"checkpoint {path}: file {name} cannot be read: {error.strerror}; nothing was changed: try again, or move"
            " that folder away to take an older checkpoint"
        ) from error
    except ValueError:
        return f"{DIGESTS} cannot be read"
    if not isinstance(expected, dict):
        return f"{DIGESTS} holds no list of files"
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            return f"file {name} is damaged or missing"
    return None
