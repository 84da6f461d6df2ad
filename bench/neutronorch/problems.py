"""What is measured: a model of two layers on mini-batches of the small data sets, and of the synthetic graph of MAG."""

import dataclasses
from typing import Any

from bench.comparison.cases import Case, problem_of, read_dataset, recipe
from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe, override
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import Problem, read_problem
from jhgnn.training.sampled import Sampled

SMALL = ("acm", "dblp", "imdb")
BATCHES = {"batch_size": 64, "fan_out": "5,5", "threads": 2}
"""Of the small data sets, whose recipes train full-batch."""


def read(name: str, scale: float, batch_size: int = 0, model: str = "rgcn") -> Problem:
    """`mag` is synthetic, `scale` of its full size; the others are read from the data folder, or synthetic without.

    HAN draws from metapath graphs of the small data sets, and walks on MAG.

    Without a `batch_size` one of MAG grows with the graph, so that it meets as much of it as at full size.
    """
    if name == "mag":
        config = load_recipe(f"configs/{model}_mag.toml")
        size = batch_size or max(8, round(config.sampling.batch_size * scale))
        tables: dict[str, Any] = {"data": {"scale": scale}, "sampling": {"batch_size": size}, "model": {"layers": 2}}
        return read_problem(override(config, tables, where="bench.neutronorch"), progress=False)
    tables = {
        "model": {"layers": 2},
        "sampling": BATCHES | ({"batch_size": batch_size} if batch_size else {}),
        "kernels": {"projection": "dense"},  # means are dense rows, so that plain sampling gathers dense ones as well
    }
    config = override(recipe(Case(model, name)), tables, where="bench.neutronorch")
    return problem_of(read_dataset(name), config)


def modes(problem: Problem) -> tuple[str, ...]:
    """The modes of `sampling.hot` that the model has."""
    return ("exact", "stale", "literal") if problem.model.means_of_inputs else ("stale", "literal")


def with_share(config: Config, share: float, mode: str = "exact") -> Config:
    """The recipe with a share of hot vertices in a mode of `sampling.hot`; none for 0."""
    hot = {"hot": mode, "hot_share": share} if share else {"hot": "none", "hot_share": 0.1}
    return dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, **hot))  # type: ignore[arg-type]


def sampled(problem: Problem, share: float, *, mode: str = "exact") -> Sampled:
    """The execution with a share of hot vertices in a mode of `sampling.hot`."""
    execution = execution_of(dataclasses.replace(problem, config=with_share(problem.config, share, mode)))
    assert isinstance(execution, Sampled)
    return execution
