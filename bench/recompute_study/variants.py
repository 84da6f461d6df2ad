"""What the study varies: the implementation of neighbor aggregation and the recomputation policy of one recipe."""

from typing import Any

from jhgnn.config import Config
from jhgnn.recipe import override
from jhgnn.training.problem import USES_ATTENTION

IMPLEMENTATIONS = ("segment", "dense", "native")


def implementations(config: Config) -> tuple[str, ...]:
    """Those that a recipe can have."""
    return ("fanout", "native") if config.sampling.batch_size else IMPLEMENTATIONS


def variant(config: Config, implementation: str, remat: str = "none") -> Config:
    """The recipe with both named, and nothing chosen for it."""
    tables: dict[str, dict[str, Any]] = {"training": {"remat": remat, "memory_budget": 0}}
    if not config.sampling.batch_size:
        tables["training"]["rows"] = "all"  # the graph's own size, whatever share of it trains
    if implementation != "fanout":
        tables["kernels"] = {"attention" if config.model.name in USES_ATTENTION else "mean": implementation}
    return override(config, tables, where="bench.recompute")
