"""The folder of a run: made or refused, held against other processes, and the recipe that it keeps."""

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from jhgnn.config import Config
from jhgnn.config.recipe import to_toml
from jhgnn.errors import InputError, StorageError
from jhgnn.runtime.storage_cause import cause
from jhgnn.training.checkpoint_path import check_path


def open_folder(folder: Path, *, num_seeds: int, resume: bool) -> None:
    """Makes the run folder, or refuses to overwrite or to resume.

    Raises:
        InputError: the folder holds a run already, holds none to resume, cannot be written, or has a name
            that checkpoints cannot be read from.
    """
    check_path(folder)
    recipe = folder / "recipe.toml"
    try:
        if resume and not recipe.exists():
            raise InputError(f"--resume: {folder} holds no run (no recipe.toml); leave --resume out to start one")
        if not resume and recipe.exists():
            raise InputError(f"run.dir {folder} holds a run already; add --resume to continue it, or name another")
        several = any(folder.glob("seed-*/recipe.toml"))
        if resume and several != (num_seeds > 1) and (several or (folder / "checkpoints").exists()):
            held, way = ("several seeds", "add --seeds N") if several else ("one seed", "leave --seeds out")
            raise InputError(f"--resume: {folder} holds a run of {held}; {way}")
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise InputError(f"run.dir {folder} is not writable; name another one")
    except OSError as error:
        raise InputError(f"run.dir {folder}: {error.strerror}; name a folder that can be written") from None


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Holds the run folder against other processes; the kernel lets go of it however this one ends.

    Raises:
        InputError: another process trains in it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(f"run.dir {folder}: another process trains in it; wait for it, or name another") from None
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def withdrawn_on_failure(folder: Path) -> Iterator[None]:
    """Removes a new run's recipe and empty folder if training fails to begin, so that the same command works again."""
    try:
        yield
    except BaseException:  # Ctrl-C too
        withdraw(folder)
        raise


def withdraw(folder: Path) -> None:
    """Takes back the recipe of a run that has trained nothing, and its folder where it holds nothing else."""
    with contextlib.suppress(OSError):
        (folder / "recipe.toml").unlink(missing_ok=True)
        folder.rmdir()


@contextlib.contextmanager
def storage_told(folder: Path, again: str = "") -> Iterator[None]:
    """Files that fail inside become one line: which one and why, what is left of the run, and how to go on.

    Args:
        folder: of the run.
        again: further options that continue it.

    Raises:
        StorageError: a file could not be written or read.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except Exception as error:
        reason = cause(error)
        if reason is None or isinstance(error, InputError):
            raise
        if isinstance(error, StorageError):
            what = str(error)
        else:
            named = getattr(error, "filename", None)
            what = f"{named or folder}: {reason}"
        raise StorageError(f"{what}; {left_in(folder)}{_how_to_go_on(folder, again)}") from error


def left_in(folder: Path) -> str:
    """Which checkpoint a run folder holds now, for a person."""
    complete = sorted(path.parent for path in folder.glob("**/checkpoints/epoch-*/digests.json"))
    if not complete:
        return "no checkpoint is left, so what was trained is lost"
    return f"what is left is checkpoint {complete[-1]}, and what was trained since is lost"


def _how_to_go_on(folder: Path, again: str) -> str:
    if (folder / "recipe.toml").exists():
        return f"; once that is mended, continue with --resume --run.dir {folder}{again}"
    return "; once that is mended, start again"


def recorded(config: Config) -> str:
    """The recipe as a run keeps it: without the processes that it was started in, since others may resume it."""
    distributed = dataclasses.replace(config.distributed, coordinator="", num_processes=0, process_id=-1)
    return to_toml(dataclasses.replace(config, distributed=distributed))
