"""What a layer keeps for its backward pass and what the backward pass recomputes: `training.remat` while tracing.

Each layer is one `jax.checkpoint`, whose policy names the tensors to keep, by the names that stages set. A layer is
recomputed only when its own gradient is due, so the recomputed tensors of one layer at a time lie in memory. Inside a
layer neighbor attention recomputes by itself, one semantic graph at a time (`recompute` of
`jhgnn.ops.neighbor_attention`).
"""

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
from jax.ad_checkpoint import checkpoint_policies as policies

from jhgnn.config.remat import EDGE_NAMES, STAGE_OUTPUTS, kept_names
from jhgnn.ops.implementation import Recompute
from jhgnn.runtime.platform import target_platform

Result = TypeVar("Result")
_LEVEL = "xla_backend_optimization_level"
_remat = contextvars.ContextVar("jhgnn_remat", default="none")


@contextlib.contextmanager
def recomputing(remat: str) -> Iterator[None]:
    """Layers traced inside follow this policy, a canonical line of `jhgnn.config.remat`."""
    token = _remat.set(remat)
    try:
        yield
    finally:
        _remat.reset(token)


def compile_with_barriers(lowered: jax.stages.Lowered, *, to_run: bool = True) -> jax.stages.Compiled:
    """Compiles so that recomputation takes place, to run, or with `to_run` false to be looked at only.

    `jax.checkpoint` puts barriers between a value and its recomputation. XLA for the CPU removes barriers before it
    eliminates common subexpressions; it then finds the two equal and keeps the first (R-GAT on a 20th of MAG with
    `full`: 597 MB of temporaries instead of 276 MB). The pass that removes them is left out; barriers cost nothing.

    LLVM optimizes at its first level, if `XLA_FLAGS` names none: steps of 13 recipes took as long as at XLA's default,
    the third, with the same losses, and compiled in 0.8 to 1 of the time (docs/experiments.md). A program that is only
    looked at is not optimized by LLVM, which comes after XLA has assigned buffers; its bytes are the same.
    """
    if target_platform() != "cpu":
        return lowered.compile()
    options: dict[str, Any] = {"xla_disable_hlo_passes": "cse_barrier_expander"}
    if not to_run:
        options[_LEVEL] = 0
    elif _LEVEL not in os.environ.get("XLA_FLAGS", ""):  # which would not count beside an option
        options[_LEVEL] = 1
    return lowered.compile(options)


def layer(function: Callable[[], Result]) -> Result:
    """The result of `function`, one layer. What it closes over is kept, and of what it makes, what the policy says."""
    remat = _remat.get()
    return function() if remat in ("none", "na") else jax.checkpoint(function, policy=_policy(remat))()


def relations_separately() -> bool:
    """Whether a layer projects and aggregates one relation after the other, to hold one's projections at a time."""
    return _remat.get() == "full"


def relation(function: Callable[[], Result]) -> Result:
    """The result of one relation's projection and aggregation; a checkpoint of its own where `relations_separately`."""
    return jax.checkpoint(function)() if relations_separately() else function()


def of_attention() -> Recompute:
    """What neighbor attention recomputes of itself."""
    return _of_attention(_remat.get())


def without_gradient(remat: str) -> str:
    """The policy for a forward pass without a gradient, which keeps nothing: how attention sums edges is all of it."""
    return "none" if _of_attention(remat) == "nothing" else "na"


def _of_attention(remat: str) -> Recompute:
    kept = set(kept_names(remat))
    if remat == "none" or kept & set(EDGE_NAMES):
        return "nothing"
    return "edges" if remat == "na" or "na_stats" in kept else "everything"


def _policy(remat: str) -> Callable[..., Any]:
    if remat == "full":
        return policies.save_only_these_names("sf_out")  # what the next layer is given, and keeps
    if remat == "stage":
        return policies.save_only_these_names(*STAGE_OUTPUTS)
    if remat == "dots":
        # Sparse projections and weighted sums, of neighbours and over relations, are no dots of XLA's, but products.
        products = policies.save_only_these_names(*STAGE_OUTPUTS)
        return policies.save_from_both_policies(policies.dots_saveable, products)
    if remat == "offload":
        return policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=list(STAGE_OUTPUTS),
            offload_src="device",
            offload_dst="pinned_host",
        )
    return policies.save_only_these_names(*kept_names(remat))
