"""The programs of a recipe, lowered for GPUs that are not here: the one place that knows how training makes them."""

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from bench.gpu.facts import Size
from bench.gpu.target import mesh, on
from jhgnn.config import Config
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.runtime.platform import compiling_for
from jhgnn.training.execution import Execution
from jhgnn.training.mesh import DeviceMesh
from jhgnn.training.prepare import prepare
from jhgnn.training.sampled import Sampled
from jhgnn.training.whole_graph import WholeGraph


class Program(NamedTuple):
    """A program to lower: its name, and how it is traced for a kind of GPU."""

    name: str
    lower: Callable[[str], jax.stages.Lowered]


def prepared(config: Config) -> Execution:
    """Reads and chooses as for a GPU; arrays stay on this machine.

    Raises:
        InputError: as the commands.
    """
    with compiling_for("cuda"):
        return prepare(config, progress=False)


def sizes(execution: Execution) -> Mapping[str, Size]:
    """Of the graphs that whole-graph programs aggregate over."""
    if not isinstance(execution, WholeGraph):
        return {}
    found = dict(execution.inputs.graphs)
    for name, stack in execution.inputs.stacks.items():
        assert isinstance(stack.graph, SemanticGraph)
        found[name] = stack.graph
    return {name: Size(each.num_edges, max(each.num_sources, each.num_targets)) for name, each in found.items()}


def programs(execution: Execution, devices: int) -> Iterator[Program]:
    """The programs that are run on so many devices; those of a whole graph have one."""
    if isinstance(execution, WholeGraph):
        if devices == 1:
            yield Program("update", functools.partial(_whole_update, execution))
            yield Program("evaluation", functools.partial(_whole_evaluation, execution))
        return
    assert isinstance(execution, Sampled)
    here = _laid_out(execution, devices)
    yield Program("update", lambda gpu: _elsewhere(here, gpu, devices, Sampled.lower_update))
    if execution.has_evaluation_program:
        yield Program("evaluation", lambda gpu: _elsewhere(here, gpu, devices, Sampled.lower_evaluation))


def on_cpus(config: Config, devices: int) -> jax.stages.Lowered:
    """The update of a mini-batch recipe for as many CPUs of this process, to compare collectives with."""
    execution = prepare(config, progress=False)
    assert isinstance(execution, Sampled)
    return _laid_out(execution, devices).lower_update()


def _whole_update(execution: WholeGraph, gpu: str) -> jax.stages.Lowered:
    return _lowered(gpu, execution.update, execution.update_shapes, donate=(0,))


def _whole_evaluation(execution: WholeGraph, gpu: str) -> jax.stages.Lowered:
    return _lowered(gpu, execution.evaluation, (execution.abstract_joined_params, *execution.evaluation_arguments))


def _lowered(
    gpu: str, function: Callable[..., Any], arguments: tuple[Any, ...], donate: tuple[int, ...] = ()
) -> jax.stages.Lowered:
    with compiling_for("cuda"):
        traced = jax.jit(function, donate_argnums=donate).trace(*on(gpu, arguments))
        return traced.lower(lowering_platforms=("cuda",))


def _laid_out(execution: Sampled, devices: int) -> Sampled:
    """The execution on so many devices of this process, with the capacities that it samples for them."""
    other = copy.copy(execution)
    other.mesh = DeviceMesh(devices)
    other.__dict__.pop("layout", None)
    assert other.layout.buckets
    return other


def _elsewhere(
    here: Sampled, gpu: str, devices: int, lower: Callable[[Sampled], jax.stages.Lowered]
) -> jax.stages.Lowered:
    other = copy.copy(here)
    other.mesh = _Elsewhere(gpu, devices)
    with compiling_for("cuda"):
        return lower(other)


class _Elsewhere(DeviceMesh):
    """Devices of a kind that are not here, all of one process."""

    def __init__(self, gpu: str, count: int) -> None:
        self.mesh = mesh(gpu, count)
        self.devices = tuple(np.asarray(self.mesh.devices).ravel().tolist())
        self.size, self.relation_shards = count, 1
        self.local_shards = self.local_numbers = range(count)
