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
    "gradients, norm": ("gradient.", norm),
    "output after steps": ("logits_after", largest),
    "parameters after steps": ("after.", largest),
    "parameters after steps, norm": ("after.", norm),
}


def worst(ours: Arrays, theirs: Arrays) -> dict[str, tuple[float, str]]:
    """Worst relative error of each of `KINDS`, and its tensor."""
    if ours.keys() != theirs.keys():
        raise ValueError(f"compared different tensors: {sorted(ours.keys() ^ theirs.keys())}")

    def names(prefix: str) -> list[str]:
        return [name for name in ours if (name.startswith(prefix) if prefix.endswith(".") else name == prefix)]

    return {
        kind: max((measure(ours[name], theirs[name]), name) for name in names(prefix))
        for kind, (prefix, measure) in KINDS.items()
        if names(prefix)
    }
