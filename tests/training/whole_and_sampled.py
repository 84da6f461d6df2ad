"""The loss and gradients of a first batch with all neighbours, beside those of the whole graph, for tests."""

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.reduction import alone
from jhgnn.sampling.epoch import Cursor
from jhgnn.stores.device import DeviceRows
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_feed import SampledFeed
from jhgnn.training.sampled_step import Shard
from jhgnn.training.state import Params
from jhgnn.training.whole_graph import WholeGraph


def first_shard(execution: Sampled):
    """The first batch of an execution on one device, whole."""
    for batch in SampledFeed(execution.source, execution.batches(execution.config.run.seed)).iterate(Cursor()):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), batch.arguments[0])
    raise AssertionError


def losses_and_gradients(full: WholeGraph, part: Sampled, params: Params, shard: Shard):
    """(loss, gradients) over the whole graph and over a batch's shard, of the same examples and dropout."""
    state = full.initial_state(1)._replace(params=params, seed=np.uint32(part.config.run.seed))
    ids, resident = jnp.asarray(shard.ids), jax.device_put(part.layout.resident)
    whole_program, program = full.update_program, part.update_program()

    def full_loss(params):
        inputs = whole_program.reader.inputs(full.resident, ids)
        total = whole_program.loss(params, state, inputs, full.resident, ids)
        return total.loss / total.num_examples

    def sampled_loss(params):
        inputs = program.reader.inputs(resident, shard)
        store, touched = DeviceRows(tables_of(params)), program.reader.touched(params, inputs)
        on_rows = with_tables(params, {name: store.gather(name, touched[name]) for name in store.node_types})
        total = program.loss(on_rows, state, inputs, resident, shard, alone)
        return total.loss / total.num_examples

    return tuple(jax.jit(jax.value_and_grad(loss))(params) for loss in (full_loss, sampled_loss))
