"""A device's share of a batch in parts, one after the other, so that one part's tensors are there at a time.

The update is that of the whole share: sums are added up and divided once, by the number of targets of the whole batch;
a vertex draws the same neighbours in every part, and what parts have in common is summed. HAN's semantic attention is a
mean over the batch's targets: its sums are added up over all parts first, a layer at a time, so that every part sees
the means of the whole batch, and the gradient flows through them.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.nn.recompute import recomputing
from jhgnn.training.lazy_rows import TouchedRows, tables_of, take, with_tables
from jhgnn.training.parallel import AXIS
from jhgnn.training.state import Params, TrainState
from jhgnn.training.step import dropout_seed

if TYPE_CHECKING:
    from jhgnn.training.minibatch_step import BatchProgram, Resident, Share


class LocalSums(NamedTuple):
    """Of one device's share: gradients of all weights but embedding tables, and float32 counts; sums, no means."""

    gradients: Params
    loss: jax.Array
    num_targets: jax.Array
    overflows: jax.Array


Rows = dict[str, TouchedRows]


def cut(share: "Share", parts: int) -> tuple[Any, Callable[[Any], "Share"]]:
    """What differs between the parts, with their axis first, and what makes a share of one of them."""
    if share.blocks is None:
        assert share.seeds is not None
        seeds = share.seeds.reshape(parts, -1)
        return seeds, lambda own: share.__class__(None, {}, own, share.draw, share.votes)
    return (share.blocks, dict(share.features)), lambda own: share.__class__(own[0], own[1], None, None, share.votes)


def sums_of_parts(
    program: "BatchProgram", state: TrainState, resident: "Resident", share: "Share"
) -> tuple[LocalSums, Rows]:
    """The sums of models in which targets do not meet: each part's gradient is taken by itself."""
    parts, share_of = cut(share, program.config.training.micro_batches)

    def sums(part: Any) -> tuple[LocalSums, Rows]:
        return program.part_sums(state, resident, share_of(part))

    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), parts)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(sums, first)[0])

    def add(total: LocalSums, part: Any) -> tuple[LocalSums, Rows]:
        own, rows = sums(part)
        return jax.tree.map(jnp.add, total, own), rows

    total, rows = jax.lax.scan(add, zeros, parts)
    return total, {name: _joined(each) for name, each in rows.items()}


def sums_with_common_means(
    program: "BatchProgram", state: TrainState, resident: "Resident", share: "Share"
) -> tuple[LocalSums, Rows]:
    """The sums of HAN: one gradient through passes over the parts, each part recomputed in its turn."""
    parts, share_of = cut(share, program.config.training.micro_batches)
    tables = tables_of(state.params)
    ids: dict[str, jax.Array] = {}
    if tables:

        def met(_: None, part: Any) -> tuple[None, dict[str, jax.Array]]:
            return None, program.touched(state.params, program.inputs(resident, share_of(part)))

        ids = jax.lax.scan(met, None, parts)[1]

    def objective(dense: Params, rows: dict[str, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        means = common_means(program, dense, rows, state, resident, share)

        @jax.checkpoint
        def add(total: tuple[jax.Array, ...], part: Any) -> tuple[tuple[jax.Array, ...], None]:
            own, own_rows = part
            inputs = program.inputs(resident, share_of(own))
            loss, count = program.loss(with_tables(dense, own_rows), state, resident, inputs, means)
            found = (loss, count, inputs.blocks.overflowed.astype(jnp.float32))
            return tuple(map(jnp.add, total, found)), None

        (loss, count, overflows), _ = jax.lax.scan(add, (jnp.zeros(()),) * 3, (parts, rows))
        return loss, (count, overflows)

    gathered = {name: jax.vmap(take, (None, 0))(table, ids[name]) for name, table in tables.items()}
    gradient = jax.value_and_grad(objective, argnums=(0, 1), has_aux=True)
    (loss, (count, overflows)), (dense, rows) = gradient(with_tables(state.params, {}), gathered)
    touched = {name: _joined(TouchedRows(ids[name], rows[name])) for name in tables}
    return LocalSums(with_tables(dense, {}), loss, count, overflows), touched


def common_means(
    program: "BatchProgram",
    dense: Params,
    rows: dict[str, jax.Array],
    state: TrainState | None,
    resident: "Resident",
    share: "Share",
) -> Sequence[jax.Array]:
    """HAN's semantic attention of every layer: the means over the targets of the whole batch, on all devices.

    `rows` are those of the embedding tables, one a part; without a state there is no dropout.
    """
    parts, share_of = cut(share, program.config.training.micro_batches)
    seed = None if state is None else dropout_seed(state)
    means: list[jax.Array] = []
    for _ in range(program.config.model.layers or 1):

        @jax.checkpoint
        def sums(part: Any, known: Sequence[jax.Array] = tuple(means)) -> tuple[jax.Array, jax.Array]:
            own, own_rows = part
            inputs = program.inputs(resident, share_of(own))
            with recomputing(program.config.training.remat):
                model: Any = nnx.merge(program.structure, with_tables(dense, own_rows))
                found = model.semantic_sums(inputs, seed, known)
            return found, inputs.targets(program.target).sum(dtype=jnp.float32)

        every = jax.lax.map(sums, (parts, rows))
        total, count = jax.lax.psum(jax.tree.map(lambda each: each.sum(axis=0), every), AXIS)
        means = [*means, total / jnp.maximum(count, 1.0)]
    return means


def _joined(rows: TouchedRows) -> TouchedRows:
    return TouchedRows(rows.ids.reshape(-1), rows.gradients.reshape(-1, rows.gradients.shape[-1]))
