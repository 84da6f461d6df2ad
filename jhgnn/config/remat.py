"""What the backward pass recomputes, as a recipe and a command line write it, in one canonical line of text.

One of `POLICIES`, or the tensors to keep, from `NAMES`: `fp_out,na_out` on a command line, a list in TOML.
"""

import difflib
from typing import Any

POLICIES = ("none", "na", "dots", "stage", "full", "offload")
"""From keeping everything to keeping the inputs of layers; `offload` keeps what `stage` does, in host memory."""

EDGE_NAMES = ("na_scores", "na_weights", "na_rows")
"""Tensors of the size of the edges: scores and weights `[num_edges, heads]`, senders' rows `[num_edges, heads, D]`."""

NAMES = ("fp_out", *EDGE_NAMES, "na_stats", "na_out", "sf_out")
"""Tensors that stages name: projections, edge-level tensors, what native attention keeps a target, aggregations, fused
representations. An implementation sets those that it makes: only `segment` and `fanout` make edge-level ones."""

STAGE_OUTPUTS = ("fp_out", "na_out", "sf_out")


def to_text(value: Any, where: str) -> str:
    """The canonical line for a TOML value or a command-line word.

    Raises:
        ValueError: neither a policy nor a list of tensors' names; the message says where.
    """
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",")]
    elif isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        words = [word.strip() for word in value]
    else:
        raise ValueError(f"{where} = {value!r} must be one of {_listed(POLICIES)}, or a list of tensors to keep")
    if len(words) == 1 and words[0] in POLICIES:
        return words[0]
    for word in words:
        if word not in NAMES:
            near = difflib.get_close_matches(word, [*POLICIES, *NAMES], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(
                f"{where} holds {word!r}, which is neither a policy ({_listed(POLICIES)}) nor a tensor that stages name"
                f" ({_listed(NAMES)}){hint}"
                if word not in POLICIES
                else f"{where} mixes the policy {word!r} with others; give one policy, or tensors alone"
            )
    if not words:
        raise ValueError(f"{where} is an empty list; 'full' keeps no tensor")
    return ",".join(name for name in NAMES if name in words)


def kept_names(text: str) -> tuple[str, ...]:
    """The tensors of a canonical line that is no policy."""
    return () if text in POLICIES else tuple(text.split(","))


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words)
