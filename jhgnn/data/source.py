"""Source: a folder or a zip as downloaded, seen alike. Members are read in place; nothing is ever extracted to disk."""

import contextlib
import fnmatch
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from jhgnn.data.progress import Advance, reading
from jhgnn.errors import InputError

MAX_DEPTH = 4
"""Sub-folders searched below the path given."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile)


class Source:
    """Files of one data set by name relative to the folder that holds them; made by `open_source`."""

    def __init__(self, shown: str, root: str, names: list[str], sizes: dict[str, int], archive: zipfile.ZipFile | None):
        self.shown = shown
        self._root, self._sizes, self._archive = root, sizes, archive
        self.names = sorted(name[len(root) :] for name in names if name.startswith(root))

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def where(self, name: str) -> str:
        """How error messages call a member."""
        return f"{self.shown}/{self._root}{name}"

    def matching(self, pattern: str) -> list[str]:
        """Names (in the folder itself) that match a shell pattern, letter case ignored."""
        return [name for name in self.names if "/" not in name and fnmatch.fnmatch(name.lower(), pattern.lower())]

    @contextlib.contextmanager
    def open(self, name: str, progress: bool = False) -> Iterator[tuple[BinaryIO, Advance]]:
        """Opens a member for reading, `.gz` decompressed, with the function to tell of uncompressed bytes read.

        Raises:
            InputError: it is missing, damaged, or cannot be read; also while the caller reads from it.
        """
        if name not in self.names:
            raise InputError(f"{self.where(name)} is missing; found: {_listed(self.names)}")
        full = self._root + name
        try:
            with contextlib.ExitStack() as stack:
                if self._archive is not None:
                    raw = stack.enter_context(self._open_member(full))
                else:
                    raw = stack.enter_context(open(os.path.join(self.shown, full), "rb"))
                # A gzip file does not say reliably how large it unpacks; text shrinks to about a quarter.
                size = self._sizes[full] * (4 if name.endswith(".gz") else 1)
                advance = stack.enter_context(reading(name, size, progress))
                stream = stack.enter_context(gzip.open(raw)) if name.endswith(".gz") else raw
                yield cast(BinaryIO, stream), advance
        except _DAMAGE as error:
            raise InputError(f"{self.where(name)} is damaged or truncated ({error}); get the file again") from error
        except OSError as error:
            raise InputError(f"{self.where(name)} cannot be read: {error.strerror or error}") from error

    def _open_member(self, full: str) -> BinaryIO:
        assert self._archive is not None
        try:
            return cast(BinaryIO, self._archive.open(full))
        except RuntimeError as error:  # encrypted, or a compression that Python does not know
            raise InputError(f"{self.shown}/{full} cannot be read: {error}") from error

    def read(self, name: str) -> bytes:
        with self.open(name) as (stream, _):
            return stream.read()

    def read_seekable(self, name: str) -> io.BytesIO:
        return io.BytesIO(self.read(name))

    def lines(self, name: str) -> Iterator[tuple[int, str]]:
        """Rows from 1 and their text without the line end; empty rows are left out.

        Raises:
            InputError: as `open`, or the text is not UTF-8.
        """
        for row, line in enumerate(self.read(name).split(b"\n"), start=1):
            if line.strip():
                try:
                    yield row, line.decode().removeprefix("\ufeff").rstrip("\r")
                except UnicodeDecodeError as error:
                    raise InputError(f"{self.where(name)} row {row} is not UTF-8 text") from error


@contextlib.contextmanager
def open_source(path: str | Path | None, *needed: str, what: str) -> Iterator[Source]:
    """Opens a folder or zip at the folder in it that holds a match of every pattern in `needed`.

    That folder is the one given, one below it, or in the one zip that the folder given holds.

    Args:
        path: the folder or zip.
        needed: shell patterns of files without which this layout is not there.
        what: name of the layout, for messages.

    Raises:
        InputError: nothing is there, the zip is damaged or names files outside itself, no folder or several
            hold the files needed.
    """
    if path is None or not str(path):
        raise InputError(f"{what}: no path is given; need a folder or a zip")
    path = Path(path).expanduser()
    if not path.exists():
        raise InputError(f"{what}: {path} does not exist; need a folder or a zip")
    with contextlib.ExitStack() as stack:
        archive = None
        if path.is_dir():
            sizes = _folder_members(path)
            zips = [name for name in sizes if "/" not in name and name.lower().endswith(".zip")]
            if not _roots(sizes, needed) and len(zips) == 1:
                path = path / zips[0]
        elif not zipfile.is_zipfile(path) and not path.name.lower().endswith(".zip"):
            raise InputError(f"{what}: {path} is neither a folder nor a zip")
        if path.is_file():
            archive = stack.enter_context(_open_zip(path))
            sizes = _zip_members(path, archive)
        roots = _roots(sizes, needed)
        if not roots:
            missing = [pattern for pattern in needed if not _roots(sizes, (pattern,))] or list(needed)
            raise InputError(f"{what}: {path} holds no {', '.join(missing)}; found: {_listed(sorted(sizes))}")
        depth = min(root.count("/") for root in roots)
        nearest = [root for root in roots if root.count("/") == depth]
        if len(nearest) > 1:
            raise InputError(f"{what}: {path} holds several data sets ({_listed(nearest)}); give the path of one")
        yield Source(str(path), nearest[0], list(sizes), sizes, archive)


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (*_DAMAGE, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is not a complete zip ({error}); get the file again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _zip_members(path: Path, archive: zipfile.ZipFile) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for info in archive.infolist():
        parts = PurePosixPath(info.filename.replace("\\", "/")).parts
        if ".." in parts or (parts and (parts[0].startswith("/") or ":" in parts[0])):
            raise InputError(f"{path} names the file {info.filename!r} outside the archive; it is not to be trusted")
        if not info.is_dir() and not _ignored(parts):
            sizes[info.filename] = info.file_size
    return sizes


def _folder_members(path: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for folder, subfolders, files in os.walk(path):
        parts = Path(folder).relative_to(path).parts
        subfolders[:] = [name for name in subfolders if not _ignored((name,)) and len(parts) < MAX_DEPTH]
        for name in files:
            if not _ignored((name,)):
                with contextlib.suppress(OSError):
                    sizes["/".join((*parts, name))] = os.path.getsize(os.path.join(folder, name))
    return sizes


def _ignored(parts: tuple[str, ...]) -> bool:
    return any(part == "__MACOSX" or part.startswith(".") for part in parts)


def _roots(names: dict[str, int], needed: tuple[str, ...]) -> list[str]:
    """Folders (with a final slash, "" for the top) that hold a match of every pattern; patterns may have slashes."""
    found: set[str] | None = None
    for pattern in needed:
        slashes = pattern.count("/")
        roots = set()
        for name in names:
            parts = name.split("/")
            if len(parts) > slashes and fnmatch.fnmatch(
                "/".join(parts[len(parts) - slashes - 1 :]).lower(), pattern.lower()
            ):
                roots.add("".join(part + "/" for part in parts[: len(parts) - slashes - 1]))
        found = roots if found is None else found & roots
    return sorted(found or ())


def _listed(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") or "nothing"
