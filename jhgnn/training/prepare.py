"""From a recipe, or a problem, to an `Execution`: the one place that chooses between whole graph and mini-batches."""

import time

import jax

from jhgnn.config import Config
from jhgnn.config.share import AUTO
from jhgnn.training.execution import Execution
from jhgnn.training.graph_in_parts import GraphInParts
from jhgnn.training.hot_share import measured
from jhgnn.training.problem import Problem, build_graphs, read_problem
from jhgnn.training.raf import RelationsFirst
from jhgnn.training.ring_steps import TUNED, tuned
from jhgnn.training.sampled import Sampled
from jhgnn.training.size_check import check_aggregations, check_memory
from jhgnn.training.whole_graph import WholeGraph


def prepare(config: Config, *, progress: bool = True) -> Execution:
    """Reads the data, builds semantic graphs, chooses implementations, and places what stays on the device.

    Raises:
        InputError: the recipe's settings do not go together, the data is broken or has nothing to learn from, a
            metapath does not join, a build exceeds its memory limit, a named implementation does not cover a graph, or
            the model is larger than the memory, or of more layers than can be compiled.
    """
    execution = execution_of(read_problem(config, progress=progress))
    check_memory(execution)
    return execution


def execution_of(problem: Problem) -> Execution:
    """The execution of a problem.

    Semantic graph build and placement are annotated for the profiler; that costs nothing without a trace.

    Raises:
        InputError: as `prepare`, but for the memory, of which a prediction takes less than an update.
    """
    check_aggregations(problem)
    if problem.config.sampling.batch_size:
        with jax.profiler.TraceAnnotation("SGB"):
            if problem.config.distributed.strategy == "raf":
                return RelationsFirst(problem)
            if problem.config.distributed.time_steps == TUNED:
                return tuned(problem)
            settings = problem.config.sampling
            return measured(problem) if settings.hot != "none" and settings.hot_share == AUTO else Sampled(problem)
    with jax.profiler.TraceAnnotation("SGB"):
        start = time.perf_counter()
        metapaths, host_graphs = build_graphs(problem)
        sgb_s = time.perf_counter() - start
        if problem.config.distributed.parts or problem.config.distributed.method:
            return GraphInParts(problem, host_graphs, metapaths, sgb_s=sgb_s)
    with jax.profiler.TraceAnnotation("LOAD"):
        return WholeGraph(problem, host_graphs, metapaths, sgb_s=sgb_s)
