"""Which of the known layouts a path holds, by file names alone."""

import fnmatch
import os
import zipfile
from pathlib import Path

from jhgnn.data.synthetic import PRESETS
from jhgnn.data.tables import SCHEMA_FILE
from jhgnn.errors import InputError

_DEPTH = 4  # sub-folders searched, as the readers do

# First match wins; each needs one file (by its name without folders) for every pattern.
_LAYOUTS = (
    ("tables", (SCHEMA_FILE,)),
    ("jhgnn", ("schema.json",)),
    ("hgb", ("node.dat", "link.dat")),
    ("magnn", ("adjm.npz", "node_types.npy")),
    ("ogb_mag", ("num-node-dict.csv*",)),
    ("rdf", ("*.nt*", "*train*.tsv", "*test*.tsv")),
    ("acm_mat", ("*.mat",)),
    ("lastfm", ("user_artist.dat", "artist_tag.dat")),
    ("triples", ("train.txt", "valid.txt", "test.txt")),
    ("arrays", ("*.npz",)),
    ("arrays", ("*_*.npy",)),
)

RULES = "; ".join(f"{layout}: {' with '.join(patterns)}" for layout, patterns in _LAYOUTS)
"""The rules as text: layout and the file names that tell it, the first match first; a TOML file alone: `tables`."""


def detect_format(path: str) -> str:
    """The `data.format` of a folder, file or zip; `synthetic` for the name of a preset that is no path.

    Raises:
        InputError: nothing is there, the zip cannot be read, or no layout is recognised.
    """
    place = Path(path).expanduser()
    if not place.exists():
        if path in PRESETS:
            return "synthetic"
        raise InputError(f"{path} does not exist; need a folder, file or zip, or a preset: {', '.join(PRESETS)}")
    if place.is_file() and place.suffix.lower() == ".toml":
        return "tables"
    names = _file_names(place)
    for layout, patterns in _LAYOUTS:
        if all(any(fnmatch.fnmatch(name, pattern) for name in names) for pattern in patterns):
            return layout
    found = ", ".join(sorted(names)[:8]) or "nothing"
    raise InputError(
        f"{path} holds no known layout (found: {found}); name it with --format, or look for one of {RULES}"
    )


def _file_names(place: Path) -> set[str]:
    """Lower-case names of the files in a folder, or in a zip that is given or stands alone in the folder."""
    if place.is_file():
        return _zip_names(place) if place.suffix.lower() == ".zip" else {place.name.lower()}
    names: set[str] = set()
    for folder, subfolders, files in os.walk(place):
        depth = len(Path(folder).relative_to(place).parts)
        subfolders[:] = [name for name in subfolders if depth < _DEPTH and not name.startswith(".")]
        names.update(name.lower() for name in files if not name.startswith("."))
    zips = [one for one in place.iterdir() if one.suffix.lower() == ".zip" and one.is_file()]
    return names | _zip_names(zips[0]) if len(zips) == 1 else names


def _zip_names(path: Path) -> set[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path} is not a complete zip ({error}); get the file again") from None
    return {member.rsplit("/", 1)[-1].lower() for member in members if not member.startswith("__MACOSX")}
