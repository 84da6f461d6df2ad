"""Files that are old or new, never half-written."""

import contextlib
import errno
import fcntl
import glob
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_text(path: Path, text: str) -> None:
    """Writes to a temporary name, syncs and renames: a reader sees the old file or the new one, after a crash too."""
    write_together(path.parent, {path.name: text})


def write_array(path: Path, array: np.ndarray) -> None:
    """A `.npy` file, written as `write_text` does."""
    write_together(path.parent, {path.name: array})


def write_together(folder: Path, files: Mapping[str, str | np.ndarray]) -> None:
    """Texts and `.npy` arrays by name, as `write_text`: all are on the disk before the first one takes its name."""
    temporary = {name: folder / f".{name}.{os.getpid()}.tmp" for name in files}
    try:
        for name, content in files.items():
            with temporary[name].open("wb") as file:
                if isinstance(content, str):
                    file.write(content.encode("utf-8"))
                else:
                    np.save(file, content, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        for name, path in temporary.items():
            path.replace(folder / name)
    except BaseException:
        for path in temporary.values():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """The names in a folder reach the disk; file systems that cannot sync a folder are left to themselves."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, which takes its place once the block is done; else it goes, and `path` is as it was.

    What an earlier process left that was killed while it wrote here is tidied up first: a folder of that name that it
    had already moved away is put back.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    put_back(path)
    _clear_left(path)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with _held(temporary):
            yield temporary
        for folder in (temporary, *(each for each in temporary.rglob("*") if each.is_dir())):
            sync_folder(folder)
        temporary.chmod(0o755)  # mkdtemp makes it private
        _take_place(temporary, path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _take_place(new: Path, path: Path) -> None:
    """Renames a folder; what is there in its place is removed after, or put back where that fails."""
    if not path.exists():
        new.rename(path)
        return
    old = new.with_name(new.name + ".old")
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Locks a folder against `_clear_left` of others, as long as this process lives; where files cannot be locked,
    nobody clears anything."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def put_back(path: Path) -> None:
    """Renames back what `replacing_folder` had moved away when its process was killed before the new one came."""
    if not path.exists():
        for old in path.parent.glob(f".{glob.escape(path.name)}.????????.old"):
            old.rename(path)
            return


def _clear_left(path: Path) -> None:
    """Removes folders in which a killed process wrote; those of living ones are locked."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????*"):
        with contextlib.suppress(OSError):
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
            finally:
                os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """JSON with one key a line, through `write_text`; null where a number is not finite, which JSON cannot say."""
    write_text(path, json.dumps(finite(content), indent=2, allow_nan=False) + "\n")


def finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
