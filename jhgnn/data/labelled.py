"""What every reader decides alike about the labelled type: which it is, and which nodes validate."""

import numpy as np

from jhgnn.errors import InputError

VALIDATION_SHARE = 0.2


def check_target(where: str, found: str, target: str | None) -> str:
    """The labelled type.

    Raises:
        InputError: another one is asked for.
    """
    if target is not None and target != found:
        raise InputError(f"{where}: target {target!r} has no labels; the labelled node type is {found!r}")
    return found


def hold_out(pool: np.ndarray, seed: int, where: str, share: float = VALIDATION_SHARE) -> dict[str, np.ndarray]:
    """Splits a train pool of node ids into `train` and `val`, each ascending; `share` of it, at least one, validates.

    Source: HGB (Lv et al., KDD 2021), which draws 20 % of its training labels.

    Raises:
        InputError: the pool has fewer than two nodes.
    """
    if len(pool) < 2:
        raise InputError(f"{where} has {len(pool)} labelled nodes; need two at least, to train and to validate")
    shuffled = np.random.default_rng(seed).permutation(np.sort(pool))
    count = max(1, int(share * len(pool)))
    return {"train": np.sort(shuffled[count:]), "val": np.sort(shuffled[:count])}
