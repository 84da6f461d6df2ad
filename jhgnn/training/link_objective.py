"""The loss of link prediction: true heads and tails against negatives that a batch's links share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jhgnn.config import TaskConfig
from jhgnn.models.link_predictor import LinkRows
from jhgnn.nn.dropout import drop_rows, site_seed
from jhgnn.nn.stage import stage
from jhgnn.sampling.negatives import negative_nodes


class LinkBatch(NamedTuple):
    """Links of one update: int32 `[batch]` each, and which of them count."""

    ids: jax.Array  # positions in the training split
    head: jax.Array
    relation: jax.Array
    tail: jax.Array
    mask: jax.Array  # bool


def triple_scores(rows: LinkRows, head: jax.Array, relation: jax.Array, tail: jax.Array) -> jax.Array:
    """Scores of triples, float32 `[n]`."""
    return jnp.sum(rows.head[head] * rows.relation[relation] * rows.tail[tail], axis=1)


def link_loss(rows: LinkRows, batch: LinkBatch, task: TaskConfig, seed: jax.Array, step: jax.Array) -> jax.Array:
    """Mean over the batch's links, and over their two sides; float32 scalar.

    `softmax` is the cross entropy of the true node among the negatives; `binary` the logistic loss of the true node
    plus the mean logistic loss of the negatives. A negative that is the link's own true node does not count; other true
    nodes may be among them. 0 for a batch without links.

    Args:
        seed, step: uint32 scalars, which the draws of negatives and of dropout hash.
    """
    heads, relations, tails = rows.head[batch.head], rows.relation[batch.relation], rows.tail[batch.tail]
    total = jnp.zeros(())
    with stage("LC", part="loss"):
        for side, given, true, candidates in (
            ("tail", heads, tails, rows.tail),
            ("head", tails, heads, rows.head),
        ):
            query = given * relations
            if task.scorer_dropout:
                query = drop_rows(query, site_seed(seed + step, f"scorer/{side}"), task.scorer_dropout, batch.ids)
            wanted = (batch.tail if side == "tail" else batch.head)[:, None]
            if task.negatives:
                drawn = negative_nodes(seed, step, side, task.negatives, candidates.shape[0])  # type: ignore[arg-type]
                candidates = candidates[drawn]
            else:
                drawn = jnp.arange(candidates.shape[0], dtype=jnp.int32)
            positive = jnp.sum(query * true, axis=1)
            negative = query @ candidates.T
            own = drawn[None, :] == wanted
            if task.loss == "softmax":
                negative = jnp.where(own, -jnp.inf, negative)
                shift = jax.lax.stop_gradient(jnp.maximum(negative.max(axis=1, initial=-jnp.inf), positive))
                others = jnp.exp(negative - shift[:, None]).sum(axis=1)
                each = jnp.log(others + jnp.exp(positive - shift)) + shift - positive
            else:
                count = jnp.maximum((~own).sum(axis=1), 1)
                wrong = jnp.where(own, 0.0, jax.nn.softplus(negative)).sum(axis=1) / count
                each = jax.nn.softplus(-positive) + wrong
            total += jnp.where(batch.mask, each, 0.0).sum()
        loss = total / (2 * jnp.maximum(batch.mask.sum(), 1))
        if task.regularization:
            mean_squares = sum(jnp.mean(part**2) for part in (heads, relations, tails))
            loss += task.regularization * mean_squares
        return loss
