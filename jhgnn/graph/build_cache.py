"""Built semantic graphs on disk: a folder each, named by the hash of what it was built from; no pickle.

`KEY/` holds `.npy` files, memory-mapped on reading, and `entry.json` with their sizes and SHA-256 sums. An entry is
written under a temporary name and renamed; one that does not check is removed and built anew.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Metapath
from jhgnn.graph.semantic_graph import Csr, SemanticGraph

_FORMAT = 1
_ENTRY = "entry.json"
_INCOMING = ("incoming_indptr", "incoming_indices")
_OUTGOING = ("outgoing_indptr", "outgoing_indices")
_log = logging.getLogger("jhgnn.sgb")


def cache_key(graph: HeteroGraph, metapath: Metapath) -> str:
    """Hash of the edges along the metapath, the node counts and the format: hex, 32 characters.

    Names do not matter, only contents: renaming a type or relation keeps the entry.
    """
    digest = hashlib.sha256(f"semantic graph {_FORMAT}".encode())
    for relation in metapath.relations:
        edges = graph.edges[relation]
        digest.update(f"{graph.num_nodes[relation.source]},{edges.num_targets},{edges.num_edges};".encode())
        digest.update(np.ascontiguousarray(edges.indptr, "<i8").data)
        digest.update(np.ascontiguousarray(edges.senders, "<i4").data)
    return digest.hexdigest()[:32]


def load_cached(cache_dir: Path, key: str, name: str) -> SemanticGraph | None:
    """The graph of this key under a new name, memory-mapped and read-only; None where there is none that checks."""
    folder = cache_dir / key
    if not folder.is_dir():
        return None
    try:
        return _load(folder, name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("cached semantic graph %s is damaged (%s): built anew", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def store_cached(cache_dir: Path, key: str, graph: SemanticGraph) -> None:
    """Writes a graph without its views; does nothing where another process was quicker.

    Raises:
        InputError: the folder cannot be written.
    """
    symmetric = graph.outgoing is graph.incoming
    arrays = dict(zip(_INCOMING, (graph.incoming.indptr, graph.incoming.indices), strict=True))
    if not symmetric:
        arrays |= dict(zip(_OUTGOING, (graph.outgoing.indptr, graph.outgoing.indices), strict=True))
    temporary = None
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=cache_dir))
        files = {}
        for array_name, array in arrays.items():
            path = temporary / f"{array_name}.npy"
            np.save(path, np.asarray(array), allow_pickle=False)
            files[array_name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        entry = {
            "format": _FORMAT,
            "num_sources": graph.num_sources,
            "num_targets": graph.num_targets,
            "num_edges": graph.num_edges,
            "symmetric": symmetric,
            "files": files,
        }
        (temporary / _ENTRY).write_text(json.dumps(entry, indent=1))
        try:
            os.rename(temporary, cache_dir / key)
        except OSError:
            if not (cache_dir / key).is_dir():
                raise
    except OSError as error:
        raise InputError(
            f"cache folder {str(cache_dir)!r} cannot be written: {error.strerror or error}; give another, or none"
        ) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _load(folder: Path, name: str) -> SemanticGraph:
    entry = json.loads((folder / _ENTRY).read_text())
    if entry["format"] != _FORMAT:
        raise ValueError(f"format {entry['format']}, need {_FORMAT}")
    arrays = {}
    for array_name in _INCOMING if entry["symmetric"] else _INCOMING + _OUTGOING:
        path, expected = folder / f"{array_name}.npy", entry["files"][array_name]
        if path.stat().st_size != expected["bytes"]:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes, need {expected['bytes']}")
        if _sha256(path) != expected["sha256"]:
            raise ValueError(f"{path.name} has another hash than when it was written")
        arrays[array_name] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    incoming = Csr(*(arrays[array_name] for array_name in _INCOMING))
    outgoing = incoming if entry["symmetric"] else Csr(*(arrays[array_name] for array_name in _OUTGOING))
    sizes = len(incoming.indptr) - 1, len(outgoing.indptr) - 1, len(incoming.indices), len(outgoing.indices)
    if sizes != (entry["num_targets"], entry["num_sources"], entry["num_edges"], entry["num_edges"]):
        raise ValueError(f"{_ENTRY} does not match the arrays")
    return SemanticGraph(incoming, outgoing, None, None, entry["num_sources"], entry["num_targets"], name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
