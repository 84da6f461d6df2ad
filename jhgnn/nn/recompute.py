"""What a layer keeps for its backward pass and what the backward pass recomputes: `training.remat` while tracing.

Each layer is one `jax.checkpoint` with a policy over the names that stages set, so that a layer's recomputation waits
for its gradient, and one layer at a time is there twice. Within it neighbor attention recomputes by itself, one
semantic graph at a time (`recompute` of `jhgnn.ops.neighbor_attention`).
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
from jax.ad_checkpoint import checkpoint_policies as policies

from jhgnn.config.remat import EDGE_NAMES, STAGE_OUTPUTS, kept_names
from jhgnn.ops.implementation import Recompute
from jhgnn.runtime.platform import target_platform

Result = TypeVar("Result")
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
    """Compiles so that what is to be recomputed is; with `to_run` false only to be looked at.

    `jax.checkpoint` parts the two computations by barriers. XLA for the CPU removes them before it eliminates common
    subexpressions, finds the forward pass's values again, and keeps them (R-GAT on a 20th of MAG with `full`: 597 MB
    of temporaries instead of 276 MB). Without that pass the barriers stay; they cost nothing.

    What is only looked at is not optimized by LLVM, which comes after XLA has assigned buffers: the same program and
    the same bytes in 0.6 of the time (R-GAT on ACM).
    """
    if target_platform() != "cpu":
        return lowered.compile()
    options: dict[str, Any] = {"xla_disable_hlo_passes": "cse_barrier_expander"}
    return lowered.compile(options if to_run else options | {"xla_backend_optimization_level": 0})


def layer(function: Callable[[], Result]) -> Result:
    """The result of one layer, which closes over what it reads; that is kept, and inside it what the policy says."""
    remat = _remat.get()
    return function() if remat in ("none", "na") else jax.checkpoint(function, policy=_policy(remat))()


def relations_separately() -> bool:
    """Whether a layer projects and aggregates one relation after the other, so that one's projections are there."""
    return _remat.get() == "full"


def relation(function: Callable[[], Result]) -> Result:
    """The result of one relation's projection and aggregation: recomputed by itself, where relations go separately."""
    return jax.checkpoint(function)() if relations_separately() else function()


def of_attention() -> Recompute:
    """What neighbor attention recomputes of itself."""
    return _of_attention(_remat.get())


def without_gradient(remat: str) -> str:
    """The policy that a forward pass alone follows: it keeps nothing, so how edges are summed is all that matters."""
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
