"""Where a mini-batch stopped being finite: the failed update's loss is run again, one primitive at a time."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from jhgnn.nn.stage import stage
from jhgnn.training import diagnosis
from jhgnn.training.lazy_rows import tables_of, take, with_tables
from jhgnn.training.minibatch_step import BatchProgram, Resident, Share
from jhgnn.training.objective import losses
from jhgnn.training.parallel import local
from jhgnn.training.state import Params, TrainState
from jhgnn.training.step import apply_model, dropout_seed

HINT = "lower training.learning_rate or set training.gradient_clip"


def explain_batch(program: BatchProgram, state: TrainState, resident: Resident, share: Share, where: str) -> str:
    """Says where the loss, or else its gradient, first is not finite, on this process's shares one after another.

    Args:
        program: of the bucket that the batch ran in.
        state: as it was before the update, on all devices.
        resident, share: as the update got them.
        where: what is known: the batch, and what was not finite.
    """
    state, resident = jax.tree.map(local, (state, resident))
    bad = [*diagnosis.non_finite_leaves({"params": state.params, "features": jax.tree.map(local, share.features)})]
    if bad:
        return f"{where}; not finite before the step: {', '.join(bad[:3])}"
    num_shares = len(jax.tree.leaves(share)[0].addressable_shards)
    for number in range(num_shares):
        own = jax.tree.map(functools.partial(_part, number), share)
        objective = functools.partial(share_loss, program, state, resident, own)
        found = diagnosis.first_non_finite(objective, state.params)
        if found is None:
            found = diagnosis.first_non_finite(jax.grad(objective), state.params)
        if found is not None:
            return f"{where}; first in {found}; {HINT}"
    return f"{where}; {HINT}"


def share_loss(program: BatchProgram, state: TrainState, resident: Resident, share: Share, params: Params) -> Any:
    """The loss that an update takes the gradient of, summed over one device's targets.

    It stands alone: what devices exchange within a layer (HAN's semantic attention) is left out.
    """
    inputs = dataclasses.replace(program._inputs(resident, share), axis=None)
    seeds = inputs.blocks.frontier(0, program.target)
    rows = {
        name: take(table, inputs.blocks.nodes.get(name, jnp.zeros(0, jnp.int32)))
        for name, table in tables_of(params).items()
    }
    output = apply_model(program.structure, with_tables(params, rows), inputs, dropout_seed(state))
    with stage("LC", part="loss"):
        labels = resident.labels.at[jnp.maximum(seeds, 0)].get(mode="promise_in_bounds")
        each = losses(output.logits, labels, program.config.training.label_smoothing)
        return jnp.where(seeds >= 0, each, 0.0).sum()


def what_is_wrong(epoch: int, batch: int, step: int, loss: float) -> str:
    """The start of the message, counted as the progress bar counts."""
    what = f"the loss is {loss}" if not math.isfinite(loss) else "a gradient is not finite"
    return f"epoch {epoch}, batch {batch} (step {step}): {what}"


def _part(number: int, leaf: Any) -> Any:
    return leaf.addressable_data(number)[0]
