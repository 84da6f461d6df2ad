"""One variant that can be stepped, full-batch or in mini-batches."""

import dataclasses
import hashlib
import time
from collections.abc import Generator
from typing import Any

import jax

from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.loop import compile_programs, lower_step
from jhgnn.training.minibatch_problem import MinibatchProblem, plan_minibatches
from jhgnn.training.minibatch_programs import Fed, Feed, compile_minibatches, lay_out, lower_update, train_batches
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.problem import Problem, build_graphs, place
from jhgnn.training.state import init_params, init_state
from jhgnn.training.step import Compiled


def problem_of(graph: HeteroGraph, config: Config, implementation: str = "") -> Problem | MinibatchProblem:
    """From a graph that is read; `fanout` keeps the kernels of the CPU out of sampled batches."""
    if config.sampling.batch_size:
        problem = plan_minibatches(graph, config)
        return dataclasses.replace(problem, compressed=False) if implementation == "fanout" else problem
    return place(graph, *build_graphs(graph, config), config)


def program_of(problem: Problem | MinibatchProblem, config: Config) -> str:
    """A name that variants of the same traced step share."""
    lowered = (
        lower_step(problem, config)
        if isinstance(problem, Problem)
        else lower_update(problem, config, lay_out(problem, config))
    )
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16]


class Runner:
    """Compiled, with a state of its own."""

    def __init__(self, problem: Problem | MinibatchProblem, config: Config) -> None:
        self.problem, self.config = problem, config
        start = time.perf_counter()
        self.programs: Any
        if isinstance(problem, Problem):
            self.programs = compile_programs(problem, config)
        else:
            self.programs = compile_minibatches(problem, config)
        self.compile_s = time.perf_counter() - start
        self._state: Any = None
        self._feed: Generator[Fed, None, None] | None = None

    @property
    def step(self) -> Compiled:
        return self.programs.step

    def start(self) -> None:
        """Makes the state and, of mini-batches, the feed."""
        optimizer_config = self.config.training
        params = init_params(self.config.model, self.problem.spec, self.config.run.seed)
        if isinstance(self.problem, Problem):
            self._state = init_state(params, make_optimizer(optimizer_config), self.config.run.seed)
            return
        batches = train_batches(self.problem, self.config)
        optimizer = make_optimizer(optimizer_config, batches.steps_per_epoch)
        self._state = self.programs.fleet.replicate(init_state(params, optimizer, self.config.run.seed))
        own = dataclasses.replace(self.config, sampling=dataclasses.replace(self.config.sampling, prefetch_threads=0))
        self._feed = Feed(self.problem, self.programs, own, batches).iterate(Cursor())

    def one_step(self) -> float:
        """Seconds of an update; a batch is prepared before the clock starts."""
        if isinstance(self.problem, Problem):
            arguments: tuple[Any, ...] = self.problem.step_arguments
            program = self.step
        else:
            assert self._feed is not None
            fed = next(self._feed)
            jax.block_until_ready(fed.share)
            arguments, program = (self.programs.resident, fed.share), self.programs.steps[fed.bucket]
        start = time.perf_counter()
        self._state, report = program(self._state, *arguments)
        jax.block_until_ready((self._state, report))
        return time.perf_counter() - start
