"""Where a mini-batch stopped being finite: the failed update's loss is run again, one primitive at a time."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax

from jhgnn.training import diagnosis
from jhgnn.training.lazy_rows import tables_of, take, with_tables
from jhgnn.training.micro_batches import cut
from jhgnn.training.minibatch_step import BatchProgram, Resident, Share
from jhgnn.training.parallel import local
from jhgnn.training.state import Params, TrainState

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
    for part in _parts(program, share):
        objective = functools.partial(share_loss, program, state, resident, part)
        found = diagnosis.first_non_finite(objective, state.params)
        if found is None:
            found = diagnosis.first_non_finite(jax.grad(objective), state.params)
        if found is not None:
            return f"{where}; first in {found}; {HINT}"
    return f"{where}; {HINT}"


def share_loss(program: BatchProgram, state: TrainState, resident: Resident, share: Share, params: Params) -> jax.Array:
    """The loss that an update takes the gradient of, summed over the targets of one device, or of a part of its share.

    It stands alone: what devices and parts exchange within a layer (HAN's semantic attention) is left out.
    """
    inputs = dataclasses.replace(program.inputs(resident, share), axis=None)
    ids = program.touched(params, inputs)
    rows = {name: take(table, ids[name]) for name, table in tables_of(params).items()}
    return program.loss(with_tables(params, rows), state, resident, inputs)[0]


def what_is_wrong(epoch: int, batch: int, step: int, loss: float) -> str:
    """The start of the message, counted as the progress bar counts."""
    what = f"the loss is {loss}" if not math.isfinite(loss) else "a gradient is not finite"
    return f"epoch {epoch}, batch {batch} (step {step}): {what}"


def _parts(program: BatchProgram, share: Share) -> Iterator[Share]:
    """What ran one after the other: the shares of this process's devices, in micro-batches where there are some."""
    for number in range(len(jax.tree.leaves(share)[0].addressable_shards)):
        own = jax.tree.map(lambda leaf, number=number: leaf.addressable_data(number)[0], share)
        count = program.config.training.micro_batches
        if count == 1:
            yield own
            continue
        parts, share_of = cut(own, count)
        for index in range(count):
            yield share_of(jax.tree.map(lambda leaf, index=index: leaf[index], parts))
