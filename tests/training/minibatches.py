"""Small mini-batch runs for tests: a problem, its compiled update on some devices, and steps of it."""

import dataclasses

import jax
import numpy as np

from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.device import device_edges
from jhgnn.sampling.epoch import Cursor
from jhgnn.sampling.host import HostSampler
from jhgnn.training.minibatch_problem import MinibatchProblem, plan_minibatches
from jhgnn.training.minibatch_programs import (
    Feed,
    MinibatchPrograms,
    abstract_share,
    abstract_state,
    train_batches,
)
from jhgnn.training.minibatch_step import BatchProgram, BatchReport, Resident
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.parallel import Fleet, local
from jhgnn.training.state import TrainState, init_params, init_state, model_structure
from tests.models.test_models import configured


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


def compiled(
    graph: HeteroGraph, config: Config, devices: int = 1, slots: dict[str, int] | None = None
) -> tuple[MinibatchProblem, MinibatchPrograms]:
    """The update alone, in one bucket that holds any batch, or at most these `slots` of some types."""
    problem, fleet = plan_minibatches(graph, config), Fleet(devices)
    batches = train_batches(problem, config)
    capacities = problem.plan.bound_capacities(
        {"paper": config.sampling.batch_size // (fleet.size * config.training.micro_batches)}
    )
    if slots:
        capacities = tuple(
            FrozenCounts(tuple((name, min(count, slots.get(name, count))) for name, count in counts.items))
            for counts in capacities
        )
    structure = model_structure(config.model, problem.spec)
    on_device = problem.side[0] == "device"
    resident = Resident(
        labels=np.asarray(graph.labels),
        features=dict(problem.features) if problem.features_on_device[0] else {},
        edges=device_edges(problem.sampled, problem.plan) if on_device else {},
    )
    program = BatchProgram(structure, config, problem.plan, capacities, "paper", fleet.size, batches.steps_per_epoch)
    arguments = (
        abstract_state(problem, config, batches.steps_per_epoch),
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), resident),
        abstract_share(problem, capacities, len(fleet.local_shards), config.training.micro_batches),
    )
    step = fleet.compile(program.update, arguments, batch=2, donate=(0,))
    sampler = HostSampler(problem.sampled, problem.plan, 1)
    programs = MinibatchPrograms(structure, fleet, sampler, fixed(capacities), fleet.replicate(resident), (step,), ())
    return problem, programs


def steps(
    problem: MinibatchProblem, programs: MinibatchPrograms, config: Config, count: int
) -> tuple[TrainState, list[BatchReport]]:
    """The state after `count` updates, on one device, and their reports."""
    batches = train_batches(problem, config)
    optimizer = make_optimizer(config.training, batches.steps_per_epoch)
    state = init_state(init_params(config.model, problem.spec, 1), optimizer, config.run.seed)
    state, reports = programs.fleet.replicate(state), []
    feed = Feed(problem, programs, config, batches)
    for fed, _ in zip(feed.iterate(Cursor()), range(count), strict=False):
        state, report = programs.steps[0](state, programs.resident, fed.share)
        reports.append(jax.tree.map(local, report))
    return jax.tree.map(lambda leaf: np.asarray(local(leaf)), state), reports
