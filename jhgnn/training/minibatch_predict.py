"""Logits and embeddings of all target nodes of a mini-batch run, without holding the whole graph on a device.

Evaluated layer by layer over all neighbours; HAN where its metapaths are walked, so that their graphs do not exist, on
the neighbours that its recipe draws, batch by batch in ascending order.
"""

import functools
from typing import Any

import jax
import numpy as np
from flax import nnx

from jhgnn.config import Config
from jhgnn.graph.sampled import PADDING
from jhgnn.models.classifier import ModelOutput
from jhgnn.models.inputs import SampledInputs
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.native import gather_rows
from jhgnn.training.layerwise import CHUNK_ROWS, layerwise_embeddings
from jhgnn.training.lazy_rows import tables_of, take, with_tables
from jhgnn.training.minibatch_problem import MinibatchProblem
from jhgnn.training.minibatch_programs import gather_features
from jhgnn.training.state import Params, model_structure
from jhgnn.training.step import apply_model


def predict_minibatches(problem: MinibatchProblem, config: Config, params: Params) -> ModelOutput:
    """Logits float32 `[num_targets, num_classes]` and embeddings `[num_targets, hidden]`, NumPy arrays."""
    outputs = _sampled(problem, config, params) if config.sampling.walks else _layerwise(problem, config, params)
    count = problem.spec.num_nodes[problem.spec.target]
    logits, embeddings = (np.concatenate([np.asarray(each[i]) for each in outputs])[:count] for i in range(2))
    return ModelOutput(logits, embeddings)  # type: ignore[arg-type]


def _batches(count: int, size: int) -> list[np.ndarray]:
    ids = np.full(-(-count // size) * size, PADDING, np.int32)
    ids[:count] = np.arange(count)
    return list(ids.reshape(-1, size))


def _layerwise(problem: MinibatchProblem, config: Config, params: Params) -> list[Any]:
    structure, embeddings = model_structure(config.model, problem.spec), layerwise_embeddings(problem, config, params)

    @jax.jit
    def classify(params: Params, rows: jax.Array) -> ModelOutput:
        model: Any = nnx.merge(structure, params)
        return model.classifier(rows)

    chunks = _batches(len(embeddings), min(CHUNK_ROWS, len(embeddings)))
    return [jax.tree.map(np.asarray, classify(params, gather_rows(embeddings, ids))) for ids in chunks]


def _sampled(problem: MinibatchProblem, config: Config, params: Params) -> list[Any]:
    target, plan = problem.spec.target, problem.plan
    count = problem.spec.num_nodes[target]
    size = min(config.sampling.batch_size, count)
    sampler = HostSampler(problem.sampled, plan, config.sampling.threads)
    buckets = fixed(plan.bound_capacities({target: size}))
    endpoints = tuple((draw.name, draw.source, draw.target) for draw in plan.draws)
    run = jax.jit(functools.partial(_forward, model_structure(config.model, problem.spec)))
    outputs = []
    for step, ids in enumerate(_batches(count, size)):
        blocks, _ = sampler.sample({target: ids}, config.run.seed, step, buckets)
        inputs = SampledInputs(gather_features(problem.features, blocks), blocks, endpoints)
        outputs.append(jax.tree.map(np.asarray, run(params, inputs)))
    return outputs


def _forward(structure: nnx.GraphDef, params: Params, inputs: SampledInputs) -> ModelOutput:
    tables = {name: take(table, inputs.blocks.nodes[name]) for name, table in tables_of(params).items()}
    return apply_model(structure, with_tables(params, tables), inputs)
