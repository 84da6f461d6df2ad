"""Checkpoints: the last state, the best parameters and the loop's progress in one Orbax folder, complete or absent."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import orbax.checkpoint

from jhgnn.errors import InputError
from jhgnn.training.state import Params, TrainState

ocp = orbax.checkpoint.v1

_PREFIX = "epoch-"


@dataclasses.dataclass(frozen=True)
class Progress:
    """What the loop knows beyond the state; restored on resume.

    Attributes:
        epoch: epochs done.
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


class Checkpoint(NamedTuple):
    """A checkpoint read back."""

    state: TrainState
    best_params: Params
    progress: Progress


class CheckpointStore:
    """The checkpoints of one run, `FOLDER/epoch-00000012`; keeps the newest.

    Orbax writes to a temporary folder and renames it, so a run killed at any moment leaves the one before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def _complete(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        names = [path for path in self.folder.iterdir() if path.name.removeprefix(_PREFIX).isdigit()]
        return sorted(path for path in names if ocp.is_orbax_checkpoint(path))

    def exists(self) -> bool:
        """Whether there is anything to resume from."""
        return bool(self._complete())

    def save(self, state: TrainState, best_params: Params, progress: Progress) -> None:
        """Writes a checkpoint, then deletes the older ones.

        Raises:
            InputError: the folder cannot be written.
        """
        path = self.folder / f"{_PREFIX}{progress.epoch:08d}"
        old = [older for older in self._complete() if older != path]
        tree = {"state": state._asdict(), "best_params": best_params}
        metadata = dataclasses.asdict(progress) | {"best_value": repr(progress.best_value)}
        try:
            ocp.save_checkpointables(path, tree, overwrite=True, custom_metadata=metadata)
            for leftover in self.folder.iterdir():
                if leftover in old or (leftover.is_dir() and "orbax-checkpoint-tmp" in leftover.name):
                    shutil.rmtree(leftover)
        except OSError as error:
            raise InputError(f"checkpoint {path}: cannot write it: {error.strerror or error}") from error

    def progress(self) -> Progress:
        """The progress of the newest checkpoint, without its arrays.

        Raises:
            InputError: there is none, or it cannot be read.
        """
        path = self._newest()
        try:
            metadata: Any = ocp.checkpointables_metadata(path).custom_metadata
            return Progress(**metadata | {"best_value": float(metadata["best_value"])})
        except Exception as error:
            raise InputError(f"checkpoint {path}: cannot be read ({type(error).__name__}); delete it") from error

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

    def load_best_params(self, like: Params) -> Params:
        """The best parameters of the newest checkpoint.

        Raises:
            InputError: as `load`.
        """
        return _restore(self._newest(), {"best_params": like})["best_params"]

    def _newest(self) -> Path:
        complete = self._complete()
        if not complete:
            raise InputError(f"{self.folder}: holds no complete checkpoint")
        return complete[-1]


def _restore(path: Path, tree: dict[str, Any]) -> dict[str, Any]:
    on_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=on_device), tree)
    try:
        return ocp.load_checkpointables(path, abstract)
    except Exception as error:  # Orbax raises many kinds for a file cut short and for a tree that does not match
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise InputError(f"checkpoint {path}: broken, or of another model: {reason}") from error
