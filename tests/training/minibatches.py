"""Small mini-batch runs for tests: the compiled update of an execution on some devices, and steps of it."""

import dataclasses

import jax
import numpy as np

from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.programs import compile_lowered
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_programs import SampledPrograms
from jhgnn.training.state import TrainState
from jhgnn.training.update import UpdateReport
from tests.executions import configured


def recipe(name: str = "rgcn", *, sampling: dict | None = None, training: dict | None = None, **model) -> Config:
    """A small model with dropout, 3 neighbours a hop, batches of 8."""
    metapaths = {"metapaths": ("PAP", "PSP")} if name == "han" else {"layers": 2}
    dropouts = {"feature_dropout": 0.2, "attention_dropout": 0.3, "dropout": 0.3}
    config = configured(name=name, **(metapaths | dropouts | model))
    hops = "3" if name == "han" else "3,2"
    sampling = {"batch_size": 8, "fan_out": hops, "prefetch_threads": 0, "threads": 1} | (sampling or {})
    return dataclasses.replace(
        config,
        sampling=dataclasses.replace(config.sampling, **sampling),
        training=dataclasses.replace(config.training, **(training or {})),
    )


def sampled(graph: HeteroGraph, config: Config, devices: int = 1) -> Sampled:
    """The execution on some devices."""
    distributed = dataclasses.replace(config.distributed, devices=devices)
    execution = execution_of(pose(graph, dataclasses.replace(config, distributed=distributed)))
    assert isinstance(execution, Sampled)
    return execution


def compiled(
    graph: HeteroGraph, config: Config, devices: int = 1, slots: dict[str, int] | None = None
) -> SampledPrograms:
    """The update alone, in one bucket that holds any batch, or at most these `slots` of some types."""
    return compiled_update(sampled(graph, config, devices), slots)


def compiled_update(execution: Sampled, slots: dict[str, int] | None = None) -> SampledPrograms:
    """The same of an execution."""
    seeds = execution.layout.buckets.capacities[0][0].as_dict()
    capacities = execution.plan.bound_capacities(seeds)
    if slots:
        capacities = tuple(
            FrozenCounts(tuple((name, min(count, slots.get(name, count))) for name, count in counts.items))
            for counts in capacities
        )
    execution.__dict__["layout"] = dataclasses.replace(execution.layout, buckets=fixed(capacities))
    return SampledPrograms(execution, [compile_lowered(execution.lower_update)], [])


def steps(programs: SampledPrograms, count: int) -> tuple[TrainState, list[UpdateReport]]:
    """The state after `count` updates, on one device, and their reports; weights of seed 1, batches of the recipe's."""
    execution = programs.execution
    seed = execution.config.run.seed
    state = execution.initial_state(1)._replace(seed=np.uint32(seed))
    state, reports = programs.place(state), []
    for batch, _ in zip(programs.feed(seed).iterate(Cursor()), range(count), strict=False):
        shard, votes = batch.arguments
        state, report = programs.steps[0](state, programs.resident, shard, votes)
        reports.append(jax.tree.map(local, report))
    return jax.tree.map(lambda leaf: np.asarray(local(leaf)), state), reports
