"""The formats that heterographs are read from, and reading one by its name."""

import os
from collections.abc import Callable
from pathlib import Path

from jhgnn.data.acm_mat import read_acm_mat
from jhgnn.data.arrays import read_arrays
from jhgnn.data.hgb import read_hgb
from jhgnn.data.labelled import check_target
from jhgnn.data.lastfm import read_lastfm
from jhgnn.data.magnn import read_magnn
from jhgnn.data.ogb_mag import read_ogb_mag
from jhgnn.data.rdf import read_rdf
from jhgnn.data.storage import load_graph
from jhgnn.data.tables import Fitted, read_tables
from jhgnn.data.triples import read_triples
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph


def read_synthetic(
    path: str | Path | None, *, target: str | None = None, seed: int = 0, progress: bool = True, scale: float = 1.0
) -> HeteroGraph:
    """Generates the preset called `path`, such as `acm`, at a scale; see `jhgnn.data.synthetic`.

    Raises:
        InputError: the preset or scale is unknown, or `target` is not its labelled type.
    """
    from jhgnn.data.synthetic import generate

    if path is None or not str(path):
        raise InputError("synthetic: no preset is given as data.path; need one such as 'acm'")
    graph = generate(str(path), scale=scale, seed=seed)
    if graph.target is not None:
        check_target(f"synthetic {path}", graph.target, target)
    return graph


FORMATS: dict[str, Callable[..., HeteroGraph]] = {
    "hgb": read_hgb,
    "magnn": read_magnn,
    "acm_mat": read_acm_mat,
    "rdf": read_rdf,
    "ogb_mag": read_ogb_mag,
    "arrays": read_arrays,
    "triples": read_triples,
    "lastfm": read_lastfm,
    "tables": read_tables,
    "synthetic": read_synthetic,
    "jhgnn": load_graph,
}
"""Format name -> reader, called as `reader(path, target=..., seed=..., progress=...)` and options of its own."""


def load(
    format: str,
    path: str | Path | None = None,
    *,
    target: str | None = None,
    scale: float = 1.0,
    seed: int = 0,
    progress: bool = True,
    like: Fitted | None = None,
) -> HeteroGraph:
    """Loads a heterograph by format name.

        graph = jhgnn.load("hgb", "ACM.zip")
        graph = jhgnn.load("synthetic", "acm", scale=0.1)

    Args:
        format: a key of `FORMATS`.
        path: folder or file as downloaded; the preset's name for `synthetic`.
        target: labelled type; found by itself where there is only one.
        scale: size of a synthetic graph.
        seed: chooses validation nodes where the layout has no validation split, and seeds synthetic graphs.
        progress: report long reads on stderr.
        like: how tables became numbers before, as `from_tables` takes it; other formats have nothing to take from it.

    Raises:
        InputError: unknown format, or what the reader found wrong.
    """
    if not isinstance(format, str) or format not in FORMATS:
        raise InputError(f"data.format {format!r} is unknown; need one of {', '.join(FORMATS)}")
    if path is not None and not isinstance(path, str | os.PathLike):
        raise InputError(f"data.path must be the path of a folder or file, not {type(path).__name__}")
    if format == "synthetic":
        return read_synthetic(path, target=target, seed=seed, progress=progress, scale=scale)
    if scale != 1.0:
        raise InputError(f"data.scale is {scale}, but only synthetic data can be scaled; leave it at 1 for {format!r}")
    if format == "tables":
        return read_tables(path, target=target, seed=seed, progress=progress, like=like)
    return FORMATS[format](path, target=target, seed=seed, progress=progress)
