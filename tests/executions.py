"""Small executions for tests: recipes, parameters that show a forgotten bias, and forward passes of a model alone."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import numpy as np
from flax import nnx

from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.nn.recompute import recomputing
from jhgnn.tasks.class_counts import mean_loss
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.whole_graph import WholeGraph


class Output(NamedTuple):
    """Of the target type."""

    logits: jax.Array
    embeddings: jax.Array


def configured(**model) -> Config:
    """A small model on one layer, without a cache of semantic graphs."""
    config = Config()
    defaults = {"hidden": 8, "heads": 2, "dropout": 0.5, "layers": 1}
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, **(defaults | model)),
        sgb=dataclasses.replace(config.sgb, cache_dir=""),
    )


def whole(graph: HeteroGraph, config: Config) -> WholeGraph:
    """The execution over the whole graph."""
    execution = execution_of(pose(graph, config))
    assert isinstance(execution, WholeGraph)
    return execution


def noisy(params, seed: int = 1):
    """Parameters with noise on all: biases and norms start at zero and one, which hides a forgotten one."""
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        structure, [leaf + 0.1 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    )


def built(graph: HeteroGraph, config: Config, seed: int = 1):
    """The execution over the whole graph, and noisy parameters."""
    execution = whole(graph, config)
    return execution, noisy(execution.initial_params(seed), seed)


def apply_model(structure, params, inputs, step_seed=None, remat: str = "none") -> Output:
    """Traced: a classifier's outputs of all targets, or of a mini-batch's."""
    with recomputing(remat):
        model = nnx.merge(structure, params)
        (embeddings,) = model.encode(inputs, step_seed).values()
        return Output(model.classifier(embeddings), embeddings)


def forward(execution, params, step_seed=None) -> Output:
    """The outputs over the whole graph, compiled."""
    return jax.jit(functools.partial(apply_model, execution.structure))(params, execution.inputs, step_seed)


def loss_of(execution, params, inputs, ids, step_seed=None, remat: str = "none"):
    """Traced: the mean loss over the target nodes `ids`, as an update takes its gradient."""
    with recomputing(remat):
        model = nnx.merge(execution.structure, params)
        (rows,) = model.encode(inputs, step_seed).values()
        logits = model.classifier(inputs.rows_of(rows, ids))
    return mean_loss(logits, execution.resident.task[ids])
