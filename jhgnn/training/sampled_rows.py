"""Rows of all nodes from sampled neighbours: where metapaths are walked and have no graphs to read whole, or where each
node sees the neighbours of its own time.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from jhgnn.graph.sampled import PADDING, NeighborTable, SampledBlocks
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import SampledInputs
from jhgnn.ops.registry import OPS
from jhgnn.sampling.capacities import fixed, tight
from jhgnn.sampling.temporal import host_sampler
from jhgnn.stores.device import DeviceRows
from jhgnn.training.execution import Execution
from jhgnn.training.sampled_choices import Sampling
from jhgnn.training.state import Params, structure_of


def rows_of_samples(
    execution: Execution,
    sampling: Sampling,
    features_of: Callable[[SampledBlocks], dict[str, Any]],
    params: Params,
    seed: int,
) -> Mapping[str, np.ndarray]:
    """What the head reads of all target nodes, `[num_targets, hidden]`, batch by batch in ascending order."""
    (target,) = execution.task.targets
    count = execution.spec.num_nodes[target]
    size = min(execution.config.sampling.batch_size, count)
    ids = np.full(-(-count // size) * size, PADDING, np.int32)
    ids[:count] = np.arange(count)
    sampler = host_sampler(sampling.sampled, sampling.plan, execution.config.sampling.threads, sampling.facts)
    entries = sampling.host_entries()
    if sampling.plan.temporal == "none":
        buckets = fixed(sampling.plan.bound_capacities({target: size}))
    else:  # the bound is far above what batches need, since a vertex may stand once for each seed
        added = [sampler.count({target: own}, seed, step) for step, own in enumerate(ids.reshape(-1, size))]
        buckets = tight(sampling.plan, np.max(added, axis=0), {target: size})

    # Blocks as the sampler gives them, without the views that a step's kernels may read.
    plain = OPS[execution.model.aggregation].choose(NeighborTable, views=())[0]
    structure = structure_of(execution.builder(dict.fromkeys(execution.spec.implementations, plain)))

    @jax.jit
    def run(params: Params, inputs: SampledInputs) -> Any:
        tables = DeviceRows(tables_of(params))
        rows = {name: tables.gather(name, inputs.ids(name)) for name in tables.node_types}
        model: Any = nnx.merge(structure, with_tables(params, rows))
        return execution.task.represent(model, inputs, model.encode(inputs))[target]

    made = []
    for step, own in enumerate(ids.reshape(-1, size)):
        blocks, _ = sampler.sample({target: own}, seed, step, buckets)
        blocks = blocks if entries is None else entries.annotated(blocks, own, seed, step)
        inputs = SampledInputs(features_of(blocks), blocks, sampling.endpoints)
        made.append(np.asarray(run(params, inputs)))
    return {target: np.concatenate(made)[:count]}
