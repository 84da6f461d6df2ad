"""What the study varies in a recipe: aggregation's implementation, number type, micro-batches, recomputation policy."""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.ops.registry import KERNELS
from jhgnn.planning.budget import policies
from jhgnn.training.execution import Execution
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import Problem

IMPLEMENTATIONS = ("native", "dense", "segment")
DTYPES = ("float32", "bfloat16")
MICRO_BATCHES = (1, 4)
"""Of mini-batch recipes."""


class Variant(NamedTuple):
    """One way to train a recipe, as the recipe would say it."""

    implementation: str
    dtype: str
    micro_batches: int
    remat: str


def implementations(config: Config) -> tuple[str, ...]:
    """Those that a recipe can have."""
    return ("native", "fanout") if config.sampling.batch_size else IMPLEMENTATIONS


def variants(problem: Problem, implementation: str) -> Iterator[tuple[Variant, Execution]]:
    """All with one implementation, of every row, whatever share of the graph trains.

    Raises:
        InputError: the implementation does not cover the problem's graphs.
    """
    for dtype in DTYPES:
        for parts in MICRO_BATCHES if problem.config.sampling.batch_size else (1,):
            execution = execution_with(problem, implementation, dtype, parts)
            for remat in policies():
                yield Variant(implementation, dtype, parts, remat), execution.with_training(remat=remat)


def execution_with(problem: Problem, implementation: str, dtype: str, micro_batches: int) -> Execution:
    """The problem with a named implementation of its model's aggregation, without a policy and without a budget.

    Raises:
        InputError: the implementation does not cover the problem's graphs.
    """
    training: dict[str, Any] = {"remat": "none", "memory_budget": 0, "micro_batches": micro_batches}
    if not problem.config.sampling.batch_size:
        training["rows"] = "all"
    (key,) = (key for key, op in KERNELS.items() if op == problem.model.aggregation)
    tables = {"training": training, "kernels": {key: implementation}, "model": {"dtype": dtype}}
    return execution_of(dataclasses.replace(problem, config=override(problem.config, tables, where="bench.recompute")))


def program_of(text: str) -> str:
    """A name that variants with the same traced step share."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
