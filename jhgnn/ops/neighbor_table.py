"""Weighted sums along the rows of a sampled neighbour table: the one heavy step of the `fanout` implementations.

Neither direction holds `[num_targets, width, heads, dim]` messages on CPU. There XLA runs a gather that feeds a
reduction as two passes over memory; column by column they fuse (14,000 targets x 20, 64 wide, on 2 busy cores: 9 ms
against 91 ms at once). Elsewhere the whole is left to XLA, so as not to wait for the launches of many small kernels.
"""

import jax
import jax.numpy as jnp

UNROLL = 4  # columns in one body of the loop


@jax.custom_vjp
def weighted_sum(senders: jax.Array, weights: jax.Array, values: jax.Array) -> jax.Array:
    """Sum over a row's columns of weight times the sender's value.

    Args:
        senders: int32 `[num_targets, width]`, in range.
        weights: `[num_targets, width, heads]` or `[num_targets, width]`, 0 for padding; its dtype is summed in.
        values: `[num_sources, heads, dim]` or `[num_sources, dim]`, finite.

    Returns:
        `[num_targets, heads, dim]` or `[num_targets, dim]` in the weights' dtype. Residuals are the arguments; there is
        no forward mode.
    """
    return jax.lax.platform_dependent(senders, weights, values, cpu=sum_by_column, default=sum_at_once)


def sum_by_column(senders: jax.Array, weights: jax.Array, values: jax.Array) -> jax.Array:
    def add(total: jax.Array, column: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        of, weight = column
        return total + weight[..., None] * _rows(values, of, weight), None

    empty = jnp.zeros((senders.shape[0], *values.shape[1:]), weights.dtype)
    return jax.lax.scan(add, empty, (senders.T, weights.swapaxes(0, 1)), unroll=UNROLL)[0]


def sum_at_once(senders: jax.Array, weights: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.sum(weights[..., None] * _rows(values, senders, weights), axis=1)


Residuals = tuple[jax.Array, jax.Array, jax.Array]


def _forward(senders: jax.Array, weights: jax.Array, values: jax.Array) -> tuple[jax.Array, Residuals]:
    return weighted_sum(senders, weights, values), (senders, weights, values)


def _backward(residuals: Residuals, cotangent: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    of_weights, of_values = jax.lax.platform_dependent(
        *residuals, cotangent, cpu=gradients_by_column, default=gradients_at_once
    )
    return None, of_weights, of_values.astype(residuals[2].dtype)


def gradients_by_column(
    senders: jax.Array, weights: jax.Array, values: jax.Array, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Cotangents of weights and of values, the latter in the weights' dtype."""

    def add(total: jax.Array, column: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        of, weight = column
        of_weight = jnp.sum(cotangent * _rows(values, of, weight), axis=-1)
        return total.at[of].add(weight[..., None] * cotangent, mode="promise_in_bounds"), of_weight

    empty = jnp.zeros(values.shape, weights.dtype)
    of_values, of_weights = jax.lax.scan(add, empty, (senders.T, weights.swapaxes(0, 1)))
    return of_weights.swapaxes(0, 1), of_values


def gradients_at_once(
    senders: jax.Array, weights: jax.Array, values: jax.Array, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """As `gradients_by_column`."""
    of_weights = jnp.sum(cotangent[:, None] * _rows(values, senders, weights), axis=-1)
    empty = jnp.zeros(values.shape, weights.dtype)
    return of_weights, empty.at[senders].add(weights[..., None] * cotangent[:, None], mode="promise_in_bounds")


def _rows(values: jax.Array, senders: jax.Array, weights: jax.Array) -> jax.Array:
    return values.at[senders].get(mode="promise_in_bounds").astype(weights.dtype)


weighted_sum.defvjp(_forward, _backward)
