"""What a model will surely take, before it is traced: refused where it cannot fit or would compile for hours."""

import jax

from jhgnn.errors import InputError
from jhgnn.nn.embeddings import with_tables
from jhgnn.runtime.memory_limit import available_memory_bytes, readable_bytes
from jhgnn.training.execution import Execution, num_bytes
from jhgnn.training.problem import Problem, read_metapaths, stackable

MOST_AGGREGATIONS = 2048
"""Layers times semantic graphs: each becomes operations of its own in the program, and a program of so many compiles
for hours (docs/reliability.md)."""


def check_aggregations(problem: Problem) -> None:
    """Refuses a model of more neighbor aggregations than compile in reasonable time.

    Raises:
        InputError: with their number and the limit.
    """
    layers = problem.model.settled(problem.config.model).layers
    num_graphs = _num_graphs(problem)
    if layers * num_graphs > MOST_AGGREGATIONS:
        raise InputError(
            f"model.layers = {layers} over {num_graphs} semantic graphs are {layers * num_graphs:,} neighbor"
            f" aggregations in one program, over the limit of {MOST_AGGREGATIONS:,}; lower model.layers"
        )


def _num_graphs(problem: Problem) -> int:
    if problem.model.over == "metapaths":
        return len(read_metapaths(problem.graph, problem.config.model))
    if problem.model.over == "relations":
        stacks = stackable(problem)
        return len(problem.graph.edges) - sum(map(len, stacks)) + len(stacks)
    return 1


def check_memory(execution: Execution) -> None:
    """Refuses a model whose parameters and optimizer state alone are more than there is memory.

    A lower bound: inputs and a step's own temporaries come on top.

    Raises:
        InputError: with the estimate and what there is.
    """
    params = execution.abstract_params
    mapped = execution.config.sampling.tables == "mapped"
    params_bytes = num_bytes(with_tables(params, {}) if mapped else params)
    moments = 0 if execution.config.training.optimizer == "sgd" else 2
    needed = params_bytes * (2 + moments)  # the best ones are kept beside
    device = jax.local_devices()[0]
    statistics = device.memory_stats() if device.platform != "cpu" else None
    if statistics and "bytes_limit" in statistics:
        needed, available = needed // jax.device_count(), int(statistics["bytes_limit"])
    else:
        needed, available = needed // jax.process_count(), available_memory_bytes()
    if needed > available:
        raise InputError(
            f"model.hidden = {execution.config.model.hidden}: the model's parameters ({readable_bytes(params_bytes)})"
            f" with their optimizer state take {readable_bytes(needed)}, and there are {readable_bytes(available)};"
            " lower model.hidden or model.layers"
        )
