"""Checkpoints of a state whose tables are cut over places: a shard a place, written by the process that keeps it.

A shard has the ids of its place's nodes and, for each table and each part of the optimizer's state that has its rows,
these nodes' rows, in `.npy` files. Everything else is the same in all processes, and the first one writes it once. Rows
are found by the ids of their nodes, so whoever reads may keep other rows than those who wrote, or all of them; it holds
no more than it keeps.

Which checkpoint is complete is the business of `jhgnn.training.checkpoint`.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from jhgnn.errors import InputError, StorageError
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.runtime.files import sync_folder
from jhgnn.stores.device import map_mirrors
from jhgnn.training.file_digests import digest
from jhgnn.training.mesh import local
from jhgnn.training.parts import Parts

MANIFEST, DENSE, SHARD = "manifest.json", "dense.npz", "shard.json"

_BLOCK_BYTES = 2**24
"""Of rows in memory at once beside those that are kept."""


def is_sharded(path: Path) -> bool:
    """Whether a checkpoint's folder holds shards."""
    return (path / MANIFEST).exists()


def read_manifest(path: Path) -> dict[str, Any]:
    """What the first process wrote of a checkpoint in shards: its progress, shapes and tables."""
    return dict(json.loads((path / MANIFEST).read_text(encoding="utf-8")))


def write_shards(
    path: Path,
    tree: Mapping[str, Any],
    parts: Parts,
    about: Mapping[str, Any],
    complete: Callable[[dict[str, list[int]]], None],
) -> None:
    """Writes a checkpoint's folder anew, synced; all processes call it, and each writes the shards of its own places.

    None returns before the checkpoint is complete.

    Args:
        path: of the folder, which all processes reach.
        tree: states and parameters on the devices by name, with tables `[places, rows, ...]`.
        parts: where their rows live.
        about: what the manifest has beside; its `progress` goes into every shard.
        complete: called by the first process with the digests of all files, once these are on the disk.

    Raises:
        Exception: what this process's own files raise.
        StorageError: another process has failed.
    """
    leads = jax.process_index() == 0
    tree = {name: parts.by_type(part) for name, part in tree.items()}
    types, leaves = _types(tree), _by_name(tree)
    tables = sorted(name for name, node_type in types.items() if node_type)

    def make_folder() -> None:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)

    def write() -> None:
        for place in parts.own_places:
            _write_shard(path, place, [(leaves[name], types[name]) for name in tables], parts, about)
        if leads:
            _write_common(path / DENSE, {name: leaf for name, leaf in leaves.items() if not types[name]})
            shapes = {name: _whole_shape(leaf, types[name], parts) for name, leaf in leaves.items()}
            listed = {"tables": [[name, types[name]] for name in tables], "shards": parts.placement.num_places}
            _write_json(path / MANIFEST, dict(about) | {"shapes": shapes} | listed)

    _together(make_folder if leads else None, "make its folder")
    _together(write, "write its shards")
    _together((lambda: complete(_collected(path, parts.placement.num_places))) if leads else None, "complete it")


def shards_problem(path: Path) -> str | None:
    """What is wrong with the shards of a checkpoint, before its files are compared with their digests; or nothing.

    Files that hold something else than was written are left to that comparison.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    try:
        manifest = read_manifest(path)
        count, progress = manifest["shards"], manifest["progress"]
        for place in range(count):
            about = _shard_folder(path, place) / SHARD
            if not about.parent.is_dir():
                return f"shard {place} of {count} is missing"
            own = json.loads(about.read_text(encoding="utf-8"))
            if (own["epoch"], own["step"]) != (progress["epoch"], progress["step"]):
                return (
                    f"shard {place} is of epoch {own['epoch']}, batch {own['step']}, and the checkpoint of epoch"
                    f" {progress['epoch']}, batch {progress['step']}"
                )
            if own["shards"] != count:
                return f"shard {place} is of {own['shards']} shards, and the checkpoint of {count}"
    except (ValueError, KeyError, TypeError):
        return None
    return None


def read_shards(path: Path, tree: Mapping[str, Any], parts: Parts | None) -> dict[str, Any]:
    """A checkpoint in shards, whose shapes have been compared; NumPy.

    Args:
        path: of its folder.
        tree: of whole shapes and dtypes.
        parts: where the rows of tables live now: those of this process's places are given, `[places, rows, ...]`, zeros
            where a place has no more; None: all rows, `[num_nodes, ...]`, in the order of ids.

    Raises:
        InputError: a node's row is in no shard, or in several.
    """
    manifest = read_manifest(path)
    tables = {name: (number, node_type) for number, (name, node_type) in enumerate(manifest["tables"])}
    wanted = {
        node_type: _Wanted(path, node_type, number, manifest["shards"], parts)
        for number, node_type in enumerate(_node_types(manifest["tables"]))
    }
    with np.load(path / DENSE, allow_pickle=False) as dense:

        def read(keys: Any, leaf: Any) -> np.ndarray:
            name = _name(keys)
            if name not in tables:
                return np.asarray(dense[name])
            number, node_type = tables[name]
            return wanted[node_type].rows(leaf, _rows_file(number))

        return dict(jax.tree_util.tree_map_with_path(read, dict(tree)))


class _Wanted:
    """Which rows of the shards of one type this process keeps, and where."""

    def __init__(self, path: Path, node_type: str, number: int, count: int, parts: Parts | None) -> None:
        self.folders = [_shard_folder(path, place) for place in range(count)]
        ids = [np.load(folder / _ids_file(number), allow_pickle=False) for folder in self.folders]
        if parts is None:
            num_nodes = sum(map(len, ids))
            self.lead: tuple[int, ...] = (num_nodes,)
            kept = np.ones(num_nodes, bool)
            places = [np.asarray(own, np.int64) for own in ids]
        else:
            placement, own_places = parts.placement, parts.own_places
            rows, homes = placement.rows[node_type], placement.homes[node_type]
            self.lead, num_nodes = (len(own_places), rows), len(homes)
            kept = (placement.ids(node_type, own_places) >= 0).reshape(-1)
            places = [homes[np.minimum(own, num_nodes - 1)].astype(np.int64) - own_places.start * rows for own in ids]
        # Where each row of each shard goes; -1 for nowhere.
        self.places = [np.where((own >= 0) & (own < len(kept)), own, -1) for own in places]
        met = np.zeros(len(kept), np.int64)
        for own in self.places:
            met += np.bincount(own[own >= 0], minlength=len(kept))
        if sum(map(len, ids)) != num_nodes or (met != kept).any():
            raise InputError(
                f"checkpoint {path}: its shards hold {sum(map(len, ids))} rows of {node_type!r}, not one for each of"
                f" {num_nodes} nodes; put the folder back from a copy"
            )

    def rows(self, leaf: Any, name: str) -> np.ndarray:
        """The rows of a leaf, whose whole shape and dtype are given."""
        out = np.zeros((int(np.prod(self.lead)), *leaf.shape[1:]), leaf.dtype)
        for folder, places in zip(self.folders, self.places, strict=True):
            for begin, block in _blocks(folder / name, places):
                own = places[begin : begin + len(block)]
                out[own[own >= 0]] = block[own >= 0]
        return out.reshape(*self.lead, *leaf.shape[1:])


def _blocks(file: Path, places: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of an `.npy` file, block by block, with the number of the first; blocks without a wanted row are skipped."""
    mapped = np.load(file, mmap_mode="r", allow_pickle=False)
    dtype, shape, offset = mapped.dtype, mapped.shape[1:], getattr(mapped, "offset", 0)
    del mapped  # its pages would count as this process's memory
    values = int(np.prod(shape, dtype=np.int64))
    count = max(1, _BLOCK_BYTES // max(1, values * dtype.itemsize))
    with file.open("rb") as opened:
        for begin in range(0, len(places), count):
            size = min(count, len(places) - begin)
            if (places[begin : begin + size] < 0).all():
                continue
            opened.seek(offset + begin * values * dtype.itemsize)
            yield begin, np.fromfile(opened, dtype, size * values).reshape(size, *shape)


def _write_shard(path: Path, place: int, tables: list[tuple[Any, str]], parts: Parts, about: Mapping[str, Any]) -> None:
    folder = _shard_folder(path, place)
    folder.mkdir()
    kept = {}
    for number, node_type in enumerate(_node_types(tables)):
        ids = parts.placement.ids(node_type, range(place, place + 1)).reshape(-1)
        # A place keeps its nodes' rows in the order of ids, without any between them.
        first = int(np.argmax(ids >= 0))
        kept[node_type] = slice(first, first + np.count_nonzero(ids >= 0))
        np.save(folder / _ids_file(number), ids[kept[node_type]], allow_pickle=False)
    for number, (leaf, node_type) in enumerate(tables):
        rows = _rows_at(leaf, place, parts.placement.rows[node_type])
        np.save(folder / _rows_file(number), rows[kept[node_type]], allow_pickle=False)
    files = {file.name: digest(file, sync=True) for file in sorted(folder.iterdir())}
    at = {what: about["progress"][what] for what in ("epoch", "step")}
    _write_json(folder / SHARD, at | {"place": place, "shards": parts.placement.num_places, "files": files})
    sync_folder(folder)


def _write_common(file: Path, leaves: Mapping[str, Any]) -> None:
    with file.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **{name: np.asarray(local(leaf)) for name, leaf in leaves.items()})


def _collected(path: Path, count: int) -> dict[str, list[int]]:
    """The digests of all files, of which those of shards are read from where their writers noted them."""
    found = {name: digest(path / name, sync=True) for name in (DENSE, MANIFEST)}
    for place in range(count):
        folder = _shard_folder(path, place)
        for name, own in json.loads((folder / SHARD).read_text(encoding="utf-8"))["files"].items():
            found[f"{folder.name}/{name}"] = own
        found[f"{folder.name}/{SHARD}"] = digest(folder / SHARD, sync=True)
    sync_folder(path)
    return found


def _rows_at(leaf: Any, place: int, rows: int) -> np.ndarray:
    """The rows of a cut table at one of this process's places."""
    for shard in leaf.addressable_shards:
        first = shard.index[0]
        if (first.start or 0 if isinstance(first, slice) else first) == place:
            return np.asarray(shard.data).reshape(rows, *leaf.shape[2:])
    raise ValueError(f"place {place} is not of this process")


def _together(own: Callable[[], None] | None, what: str) -> None:
    """Does this process's share; all processes come here, none goes on before all have, and all raise if one fails."""
    error: Exception | None = None
    try:
        if own is not None:
            own()
    except Exception as raised:  # the other processes wait
        error = raised
    failed = np.asarray([error is not None], np.int32)
    if jax.process_count() > 1:
        try:
            failed = np.asarray(multihost_utils.process_allgather(failed)).reshape(-1)
        except ValueError as raised:  # what an exchange becomes on its way into NumPy whose other end has died
            raise jax.errors.JaxRuntimeError(str(raised)) from raised
    if error is not None:
        raise error
    if failed.any():
        number = int(np.flatnonzero(failed)[0])
        raise StorageError(f"process {number} of {len(failed)} could not {what}, and says why")


def _types(tree: Mapping[str, Any]) -> dict[str, str]:
    """The node type of each leaf that has a table's rows, by its name; an empty string for all others."""

    def mirror(own: Any) -> Any:
        return with_tables(jax.tree.map(lambda _: "", own), {name: name for name in tables_of(own)})

    def mapped(part: Any) -> Any:
        return map_mirrors(mirror, part, others=lambda _: "")

    return _by_name({name: mapped(part) for name, part in tree.items()})


def _by_name(tree: Any) -> dict[str, Any]:
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _whole_shape(leaf: Any, node_type: str, parts: Parts) -> str:
    """As `jhgnn.training.checkpoint` compares it."""
    shape = (len(parts.placement.homes[node_type]), *leaf.shape[2:]) if node_type else leaf.shape
    return f"{leaf.dtype}{list(shape)}".replace(" ", "")


def _node_types(tables: Iterable[Sequence[Any]]) -> list[str]:
    """Of pairs of anything with a node type, sorted: their numbers name files."""
    return sorted({node_type for _, node_type in tables})


def _shard_folder(path: Path, place: int) -> Path:
    return path / f"shard-{place:05d}"


def _ids_file(number: int) -> str:
    return f"ids-{number:04d}.npy"


def _rows_file(number: int) -> str:
    return f"rows-{number:04d}.npy"


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
