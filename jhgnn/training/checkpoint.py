"""Checkpoints: the last state, the best parameters and the loop's progress in one Orbax folder, complete or absent."""

import dataclasses
import json
import shutil
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint

from jhgnn.errors import InputError
from jhgnn.runtime.files import write_json
from jhgnn.training.state import Params, TrainState

ocp = orbax.checkpoint.v1

_PREFIX = "epoch-"
_DIGESTS = "digests.json"


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
    """The checkpoints of one run: `FOLDER/epoch-00000012`, in mid-epoch `epoch-00000012-00000345`; keeps the newest.

    Orbax writes to a temporary folder and renames it, and the digests come last. So after a kill at any moment there is
    a complete checkpoint, the new one or the one before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def _complete(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _is_checkpoint(path) and (path / _DIGESTS).exists())

    def exists(self) -> bool:
        """Whether there is anything to resume from."""
        return bool(self._complete())

    def save(self, state: TrainState, best_params: Params, progress: Progress) -> None:
        """Writes a checkpoint, then deletes the older ones. Several processes all call it, with NumPy arrays.

        Raises:
            InputError: the folder cannot be written.
        """
        mid_epoch = f"-{progress.step:08d}" if progress.step else ""
        path = self.folder / f"{_PREFIX}{progress.epoch:08d}{mid_epoch}"
        tree = {"state": state._asdict(), "best_params": best_params}
        # JSON has no infinity, which is the best value before the first evaluation.
        recorded = dataclasses.asdict(progress) | {"best_value": repr(progress.best_value)}
        metadata = {"progress": recorded, "shapes": _shapes(tree), "specs": _specs(tree)}
        try:
            ocp.save_checkpointables(path, tree, overwrite=True, custom_metadata=metadata)
            if jax.process_index() != 0:
                return
            write_json(path / _DIGESTS, _digests(path))
            # Older ones, and what kills left half-written.
            for other in self.folder.iterdir():
                if other != path and (_is_checkpoint(other) or "orbax-checkpoint-tmp" in other.name):
                    shutil.rmtree(other)
        except OSError as error:
            raise InputError(f"checkpoint {path}: cannot write it: {error.strerror or error}") from error

    def progress(self) -> Progress:
        """The progress of the newest checkpoint, without its arrays.

        Raises:
            InputError: there is none, or it cannot be read.
        """
        path = self._newest()
        _check_digests(path)
        metadata = _metadata(path)["progress"]
        return Progress(**metadata | {"best_value": float(metadata["best_value"])})

    def load(self, like: TrainState) -> Checkpoint:
        """The newest checkpoint, with the shapes and dtypes of `like`.

        Raises:
            InputError: there is none, or it does not fit or is broken.
        """
        path, progress = self._newest(), self.progress()
        abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)
        tree = {"state": abstract._asdict(), "best_params": abstract.params}
        restored = _restore(path, tree)
        return Checkpoint(TrainState(**restored["state"]), restored["best_params"], progress)

    def begin(self, state: TrainState, recipe: str, *, resume: bool) -> Checkpoint:
        """Where a run starts: with `resume` the newest checkpoint, under `recipe` from now on; else `state` itself.

        Raises:
            InputError: as `load`, if it resumes.
        """
        if not resume:
            return Checkpoint(state, state.params, Progress(recipe=recipe))
        newest = self.load(state)
        return newest._replace(progress=dataclasses.replace(newest.progress, recipe=recipe))

    def load_best_params(self, like: Params) -> Params:
        """The best parameters of the newest checkpoint.

        Raises:
            InputError: as `load`.
        """
        path = self._newest()
        _check_digests(path)
        return _restore(path, {"best_params": like})["best_params"]

    def _newest(self) -> Path:
        complete = self._complete()
        if not complete:
            raise InputError(f"{self.folder}: holds no complete checkpoint")
        return complete[-1]


def _is_checkpoint(path: Path) -> bool:
    numbers = path.name.removeprefix(_PREFIX).split("-")
    return path.name.startswith(_PREFIX) and len(numbers) <= 2 and all(number.isdigit() for number in numbers)


def _restore(path: Path, tree: dict[str, Any]) -> dict[str, Any]:
    expected, found = _shapes(tree), _metadata(path)["shapes"]
    for name, shape in expected.items():
        if found.get(name) != shape:
            raise InputError(
                f"checkpoint {path}: of another model: {name} is {found.get(name)} there, but {shape} here"
            )
    if jax.process_count() > 1:
        abstract = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), tree)
    else:
        on_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=on_device), tree)
    return ocp.load_checkpointables(path, abstract)


def _metadata(path: Path) -> Any:
    return ocp.checkpointables_metadata(path).custom_metadata


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


def _digests(path: Path) -> dict[str, list[int]]:
    """Size and CRC-32 of every file of a checkpoint but the list of them."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != _DIGESTS)
    return {str(file.relative_to(path)): [file.stat().st_size, _crc32(file)] for file in files}


def _crc32(file: Path) -> int:
    """Read piece by piece: a table of embeddings is as large as memory allows."""
    value = 0
    with file.open("rb") as opened:
        while piece := opened.read(2**22):
            value = zlib.crc32(piece, value)
    return value


def _check_digests(path: Path) -> None:
    """Orbax's own failure on a damaged file is dozens of lines from background tasks, so look first."""
    try:
        expected, found = json.loads((path / _DIGESTS).read_text()), _digests(path)
    except (OSError, ValueError):
        raise InputError(f"checkpoint {path}: {_DIGESTS} cannot be read; delete the folder") from None
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(f"checkpoint {path}: file {name} is damaged or missing; delete the folder")
