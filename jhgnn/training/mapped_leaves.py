"""Arrays of a checkpoint that are in files mapped into memory: written as files of their own, and mapped again.

They are larger than memory may be, so they are never read whole.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jhgnn.stores.file_rows import is_mapped

FOLDER = "mapped"


def apart(tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree with a zero in the place of each mapped array, and these arrays by name."""
    found: dict[str, np.ndarray] = {}

    def taken(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or not is_mapped(leaf):
            return leaf
        found[_name(path)] = leaf
        return np.zeros((), leaf.dtype)

    return jax.tree_util.tree_map_with_path(taken, tree), found


def write(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Their `.npy` files in a folder of the checkpoint; whoever calls syncs them."""
    if arrays:
        (folder / FOLDER).mkdir()
    for name, array in arrays.items():
        np.save(folder / FOLDER / f"{name}.npy", array, allow_pickle=False)


def abstract(tree: Any, names: list[str]) -> Any:
    """Shapes of the tree that `apart` gave, from those of the whole one."""

    def shape(path: Any, leaf: Any) -> Any:
        return jax.ShapeDtypeStruct((), leaf.dtype) if _name(path) in names else leaf

    return jax.tree_util.tree_map_with_path(shape, tree)


def joined(folder: Path, tree: Any, names: list[str]) -> Any:
    """A tree that was read, with its mapped arrays, which read their files when they are looked at."""

    def whole(path: Any, leaf: Any) -> Any:
        name = _name(path)
        return np.load(folder / FOLDER / f"{name}.npy", mmap_mode="r") if name in names else leaf

    return jax.tree_util.tree_map_with_path(whole, tree)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
