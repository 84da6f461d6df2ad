"""Which sampled attention weights senders' rows before they are projected (`jhgnn.ops.row_attention`).

It is decided for each relation or metapath, by the operations of either order on a batch's bounds.
"""

from collections.abc import Collection, Mapping
from typing import Any

from jhgnn.errors import InputError
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.ops import row_attention
from jhgnn.ops.registry import AS_ROWS
from jhgnn.runtime.platform import target_platform
from jhgnn.sampling.plan import Draw, SamplingPlan
from jhgnn.training.problem import Problem


def choose_weighted_rows(
    problem: Problem, plan: SamplingPlan, features: Mapping[str, Any], featured: Collection[str]
) -> dict[str, tuple[str, str]]:
    """The draws for which `auto` weights rows first, each with what its implementation is called, and why.

    Args:
        problem: the recipe and the model.
        plan: of the draws.
        features: of each type that has some, as sampled training keeps them.
        featured: relations whose edges have features that the model reads.

    Raises:
        InputError: `kernels.attention` names it where it cannot be.
    """
    named = problem.config.kernels.attention
    if named not in ("auto", AS_ROWS) or not problem.model.attends():
        return {}
    found = {}
    capacities = plan.bound_capacities(dict.fromkeys(plan.seed_types, problem.config.sampling.batch_size))
    for draw in plan.draws:
        if not any(draw.widths):
            continue
        obstacle = _obstacle(problem, draw, features, featured)
        if named == AS_ROWS and obstacle:
            raise InputError(f"kernels.attention = {AS_ROWS!r} along {draw.name!r}: {obstacle}; use 'auto'")
        if named == "auto" and not obstacle and _weighs_less(problem, draw, capacities):
            found[draw.name] = AS_ROWS, "senders are about as many as edges: weighted first, and receivers projected"
    return found


def _obstacle(problem: Problem, draw: Draw, features: Mapping[str, Any], featured: Collection[str]) -> str:
    """Why a draw's rows cannot be weighted first; empty where they can."""
    model = problem.config.model
    if target_platform() != "cpu":
        return f"there is no kernel for it on {target_platform()}"
    own = row_attention.OP.find("native", NeighborTable).obstacle()
    if own:
        return own
    if not problem.model.projects_after_attention(model):
        return f"{model.name!r} as configured needs projected rows"
    if draw.name in featured:
        return "features of edges add to logits of their own"
    if model.dtype != "float32":
        return f"the kernel computes in float32 and not in model.dtype = {model.dtype!r}"
    if model.heads > row_attention.MOST_HEADS:
        return f"the kernel takes at most {row_attention.MOST_HEADS} heads, and model.heads = {model.heads}"
    rows = features.get(draw.source)
    if isinstance(rows, SparseRows) or getattr(rows, "sparse", False):
        return f"features of {draw.source!r} are sparse"
    return ""


def _weighs_less(problem: Problem, draw: Draw, capacities: Any) -> bool:
    """Whether it takes fewer operations, over all hops together."""
    model = problem.config.model
    edges = targets = sources = 0
    for hop, width in enumerate(draw.widths):
        if width:
            receivers = capacities[hop][draw.target]
            targets, edges = targets + receivers, edges + receivers * width
            sources += capacities[hop + 1][draw.source]
    return row_attention.weighs_less(edges, targets, sources, model.heads, model.hidden)
