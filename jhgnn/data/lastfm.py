"""LastFM as MAGNN's raw folder has it: who listens to which artist, who knows whom, and how artists are tagged.

`user_artist.dat` (user, artist, weight), `user_user(original).dat` (user, user) and `artist_tag.dat` (artist, tag) are
tab-separated with ids from 1; `train_val_test_idx.npz` splits the rows of `user_artist.dat`, which are the links to
predict. Repeated artist-tag rows count once; tags that nobody uses are left out. Source: Fu et al., MAGNN, WWW 2020.
"""

from pathlib import Path

import numpy as np

from jhgnn.data.array_files import read_npz
from jhgnn.data.number_table import read_table
from jhgnn.data.source import Source, open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation

LISTENS = Relation("user", "listens_to", "artist")
_LISTENS, _KNOWS, _TAGS = "user_artist.dat", "user_user(original).dat", "artist_tag.dat"
_SPLITS = "train_val_test_idx.npz"
_KEYS = {"train": "train_idx", "val": "val_idx", "test": "test_idx"}


def read_lastfm(
    path: str | Path | None, *, target: str | None = None, seed: int = 0, progress: bool = True
) -> HeteroGraph:
    """Reads users, artists and tags with the link split of `listens_to`, from the folder or zip.

    Args:
        path: folder or zip; the files may lie in one sub-folder of it.
        target: refused: nothing is labelled.
        seed: unused, the split is in the files.
        progress: unused, the files are small.

    Raises:
        InputError: a file is missing, damaged or wrong; file and row or key are named.
    """
    if target is not None:
        raise InputError(f"lastfm has no labels, so no target {target!r}; it is for task.name = 'link_prediction'")
    with open_source(path, _LISTENS, _SPLITS, what="lastfm") as source:
        listens = _table(source, _LISTENS, 3)
        knows, tags = _table(source, _KNOWS, 2), np.unique(_table(source, _TAGS, 2), axis=0)
        arrays = read_npz(source.read_seekable(_SPLITS), source.where(_SPLITS))
        rows = {split: _rows(arrays, key, len(listens), source.where(_SPLITS)) for split, key in _KEYS.items()}
        where = source.shown
    _, tag = np.unique(tags[:, 1], return_inverse=True)
    artists = int(max(listens[:, 1].max(), tags[:, 0].max(initial=-1))) + 1
    users = int(max(listens[:, 0].max(), knows.max(initial=-1))) + 1
    triples = np.stack([listens[:, 0], np.zeros(len(listens), np.int64), listens[:, 1]], axis=1).astype(np.int32)
    graph = HeteroGraph.from_arrays(
        name=Path(where).stem,
        where=where,
        num_nodes={"user": users, "artist": artists, "tag": int(tag.max(initial=-1)) + 1},
        edges={
            LISTENS: (listens[:, 0], listens[:, 1], listens[:, 2]),
            Relation("user", "knows", "user"): (knows[:, 0], knows[:, 1]),
            Relation("artist", "has_tag", "tag"): (tags[:, 0], tag),
        },
        links=LinkTriples((LISTENS,), {split: triples[ids] for split, ids in rows.items()}),
    )
    return graph.with_reverse_relations()


def _table(source: Source, name: str, columns: int) -> np.ndarray:
    with source.open(name) as (stream, advance):
        table = read_table(stream, source.where(name), columns=columns, dtype=np.int64, advance=advance)
    if not len(table):
        raise InputError(f"{source.where(name)} has no rows")
    bad = (table[:, :2] < 1) | (table[:, :2] >= 2**31)
    if bad.any():
        row = int(np.argmax(bad.any(axis=1)))
        raise InputError(f"{source.where(name)} row {row + 1}: {table[row, :2].tolist()} must be ids from 1")
    table[:, :2] -= 1
    return table


def _rows(arrays: dict[str, np.ndarray], key: str, count: int, where: str) -> np.ndarray:
    if key not in arrays:
        raise InputError(f"{where} has no key {key!r}; found {sorted(arrays)}")
    ids = arrays[key]
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or (len(ids) and not 0 <= ids.min() <= ids.max() < count):
        raise InputError(f"{where}: {key!r} must hold rows of {_LISTENS}, 0 to {count - 1}")
    return ids.astype(np.int64)
