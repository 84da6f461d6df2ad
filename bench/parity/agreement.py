"""Relative errors between two halves of a parity check."""

from collections.abc import Callable, Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]


def largest(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference over the largest magnitude of the tensor; infinite where either has a non-finite element."""
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return float("inf")
    scale = max(float(np.abs(theirs).max(initial=0.0)), 1e-30)
    return float(np.abs(ours.astype(np.float64) - theirs).max(initial=0.0)) / scale


def norm(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Euclidean norm of the difference over that of the tensor; infinite where either has a non-finite element."""
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return float("inf")
    difference = ours.astype(np.float64) - theirs
    return float(np.linalg.norm(difference)) / max(float(np.linalg.norm(theirs.astype(np.float64))), 1e-30)


KINDS: dict[str, tuple[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "output": ("logits", largest),
    "gradients": ("gradient.", largest),
    "gradients, each alone": ("gradient.", largest),
    "gradients, norm": ("gradient.", norm),
    "losses, Adam": ("losses_adam", largest),
    "output after Adam": ("logits_adam", largest),
    "parameters after Adam, norm": ("adam.", norm),
    "losses, SGD": ("losses_sgd", largest),
    "output after SGD": ("logits_sgd", largest),
    "parameters after SGD": ("sgd.", largest),
}
"""Kind -> the tensors (a prefix ends in a dot), and how their difference is measured."""


BY_LAYER = "gradients"
"""The kind that measures a bias with its kernel: it is the column of the same matrix that multiplies 1.

It matters in HAN's semantic attention. The gradients of its scores sum to zero over metapaths, so the bias's gradient,
a sum over metapaths, cancels to a small part of its terms, of which float32 keeps seven digits and no more.
"""


def worst(ours: Arrays, theirs: Arrays) -> dict[str, tuple[float, str]]:
    """Worst relative error of each of `KINDS`, and its tensor; `theirs` is the reference, and may hold fewer kinds."""
    kinds = {_kind(name) for name in theirs}
    ours = {name: array for name, array in ours.items() if _kind(name) in kinds}
    if ours.keys() != theirs.keys():
        raise ValueError(f"compared different tensors: {sorted(ours.keys() ^ theirs.keys())}")

    def names(prefix: str) -> list[str]:
        return [name for name in ours if (name.startswith(prefix) if prefix.endswith(".") else name == prefix)]

    found = {}
    for kind, (prefix, measure) in KINDS.items():
        errors = [(measure(ours[name], theirs[name]), name) for name in names(prefix)]
        if kind == BY_LAYER:
            errors = [(error * _share_of_layer(name, theirs), name) for error, name in errors]
        if errors:
            found[kind] = max(errors)
    return found


def _share_of_layer(name: str, theirs: Arrays) -> float:
    """A bias's largest magnitude over that of its kernel and itself; 1 for other tensors."""
    kernel = theirs.get(name.removesuffix(".bias") + ".kernel") if name.endswith(".bias") else None
    if kernel is None:
        return 1.0
    own = float(np.abs(theirs[name]).max(initial=0.0))
    return own / max(own, float(np.abs(kernel).max(initial=0.0)), 1e-30)


def _kind(name: str) -> str:
    return name.partition(".")[0]
