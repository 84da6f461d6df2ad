"""The meeting of the shards of `rel`: one sum of what each made of the targets, and nothing on the way back.

What follows the meeting is computed by every shard alike, so each of them knows the gradient of the sum; the gradient
of a sum is that of each of its terms, so nothing has to be sent (the identity of Heta's and Megatron's backward pass).
The gradient of `lax.psum` itself would be summed once more, over shards that all hold the same, and be too large by
their number.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.training.mesh import DATA, REL


@jax.custom_vjp
def meet_in_sum(values: jax.Array) -> jax.Array:
    """The sum over all shards of `[targets, hidden]`, on each of them."""
    return jax.lax.psum(values, REL)


meet_in_sum.defvjp(lambda values: (meet_in_sum(values), None), lambda _, cotangent: (cotangent,))


def meet_in_attention(
    values: jax.Array, scores: jax.Array, num_targets: jax.Array, owned: Sequence[Sequence[int]], places: int
) -> jax.Array:
    """Attention over the metapaths of all shards, `[targets, hidden]`: HAN eq. 7 to 9, the scores being means over the
    whole batch's targets.

    Two collectives, since weights must be known before anything is weighted: one of the scores, as many numbers as
    there are metapaths and one more, over both axes, and one of `[targets, hidden]` over `rel`. On the way back, what a
    score needs of other shards' metapaths is the product of the gradient and the sum that all of them have; where
    several places of `data` share a batch, one more collective adds up theirs.

    Args:
        values: of this shard's metapaths, `[slots, targets, hidden]`.
        scores: their scores summed over this place's targets, `[slots]`.
        num_targets: at this place, scalar.
        owned: the numbers of each shard's metapaths.
        places: on the axis `data`.
    """
    slots, every = values.shape[0], sorted(number for own in owned for number in own)
    table = np.full((len(owned), slots), len(every), np.int32)
    for shard, own in enumerate(owned):
        table[shard, : len(own)] = [every.index(number) for number in own]
    return _attend(len(every), places, values, scores, num_targets, jnp.asarray(table)[jax.lax.axis_index(REL)])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(
    count: int, places: int, values: jax.Array, scores: jax.Array, num_targets: jax.Array, slot: jax.Array
) -> jax.Array:
    return _attend_forward(count, places, values, scores, num_targets, slot)[0]


def _attend_forward(
    count: int, places: int, values: jax.Array, scores: jax.Array, num_targets: jax.Array, slot: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    # The last place takes empty slots. A sum over all, as there are few, and a GPU scatters floats slowly.
    own = jnp.where(slot[:, None] == jnp.arange(count + 1)[None], scores[:, None], 0).sum(axis=0)
    first = jnp.where(jax.lax.axis_index(REL) == 0, num_targets.astype(scores.dtype), 0)
    met = jax.lax.psum(own.at[count].set(first), (DATA, REL))
    total = jnp.maximum(met[count], 1.0)
    betas = jax.nn.softmax(met[:count] / total)
    weights = jnp.where(slot < count, betas.at[jnp.minimum(slot, count - 1)].get(mode="promise_in_bounds"), 0)
    fused = jax.lax.psum(jnp.einsum("k,kvh->vh", weights, values), REL)
    return fused, (values, weights, fused, total)


def _attend_backward(
    _count: int, places: int, kept: tuple[jax.Array, ...], cotangent: jax.Array
) -> tuple[jax.Array | None, ...]:
    values, weights, fused, total = kept
    of_own = jnp.einsum("vh,kvh->k", cotangent, values)
    of_scores = weights * (of_own - (cotangent * fused).sum()) / total
    if places > 1:
        of_scores = jax.lax.psum(of_scores, DATA)
    return weights[:, None, None] * cotangent[None], of_scores, jnp.zeros_like(total), None


_attend.defvjp(_attend_forward, _attend_backward)
