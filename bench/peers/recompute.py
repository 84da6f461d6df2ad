"""The peers' own recomputation: `torch.utils.checkpoint` around each layer of a model, or around each of its stages."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

UNITS = ("none", "layer", "stage")
"""What `settings["recompute"]` may be. Stages are a layer's aggregation, projection included, and what follows it."""


def recomputed(unit: str, settings: Mapping[str, Any], function: Callable[..., Any], *inputs: Any) -> Any:
    """Calls a part of a model, of which only the inputs are kept for the backward pass if the settings name its unit.

    Dropout draws the same elements again, since the generator's state is kept with the inputs.
    """
    if settings.get("recompute", "none") != unit or not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False)
