"""From a recipe, or a problem, to the way it is run: the one place that chooses between the executions."""

import time

import jax

from jhgnn.config import Config
from jhgnn.training.execution import Execution
from jhgnn.training.problem import Problem, build_graphs, read_problem
from jhgnn.training.sampled import Sampled
from jhgnn.training.whole_graph import WholeGraph


def prepare(config: Config, *, progress: bool = True) -> Execution:
    """Reads, builds semantic graphs, chooses implementations and places.

    Raises:
        InputError: the recipe's settings do not go together, the data is broken or has nothing to learn from, a
            metapath does not join, a build exceeds its memory limit, or a named implementation does not cover a graph.
    """
    return execution_of(read_problem(config, progress=progress))


def execution_of(problem: Problem) -> Execution:
    """The same from a problem that is posed already.

    The profiler finds semantic graph build and placement by their annotations, which cost nothing without a trace.
    """
    if problem.config.sampling.batch_size:
        with jax.profiler.TraceAnnotation("SGB"):
            return Sampled(problem)
    with jax.profiler.TraceAnnotation("SGB"):
        start = time.perf_counter()
        metapaths, host_graphs = build_graphs(problem)
        sgb_s = time.perf_counter() - start
    with jax.profiler.TraceAnnotation("LOAD"):
        return WholeGraph(problem, host_graphs, metapaths, sgb_s=sgb_s)
