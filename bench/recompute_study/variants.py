"""What the study varies: the implementation of neighbor aggregation and the recomputation policy of one recipe."""

import dataclasses
import hashlib
from typing import Any

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.ops.registry import KERNELS
from jhgnn.training.execution import Execution
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import Problem

IMPLEMENTATIONS = ("segment", "dense", "native")


def implementations(config: Config) -> tuple[str, ...]:
    """Those that a recipe can have."""
    return ("fanout", "native") if config.sampling.batch_size else IMPLEMENTATIONS


def execution_with(problem: Problem, implementation: str) -> Execution:
    """The problem with a named implementation of its model's aggregation, every row, no policy and no budget.

    Raises:
        InputError: the implementation does not cover the problem's graphs.
    """
    training: dict[str, Any] = {"remat": "none", "memory_budget": 0}
    if not problem.config.sampling.batch_size:
        training["rows"] = "all"  # the graph's own size, whatever share of it trains
    (key,) = (key for key, op in KERNELS.items() if op == problem.model.aggregation)
    tables = {"training": training, "kernels": {key: implementation}}
    return execution_of(dataclasses.replace(problem, config=override(problem.config, tables, where="bench.recompute")))


def program_of(execution: Execution) -> str:
    """A name that executions with the same traced step share."""
    return hashlib.sha256(execution.lower_update().as_text().encode()).hexdigest()[:16]
