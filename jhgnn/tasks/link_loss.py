"""The loss of links: true heads and tails against negatives."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jhgnn.nn.dropout import drop_rows, site_seed
from jhgnn.sampling.negatives import Side


class LinkSide(NamedTuple):
    """One end of some links: the query, its true answer, and the negatives that compete with it.

    Attributes:
        side: the end that is asked for.
        given: rows of the other end, which is given, `[n, hidden]`.
        true: rows of the true nodes, `[n, hidden]`.
        candidates: rows of the negatives, `[negatives, hidden]` for all links, or `[n, negatives, hidden]` for each.
        own: bool `[n, negatives]`, which of them are the link's own true node and do not count.
    """

    side: Side
    given: jax.Array
    true: jax.Array
    candidates: jax.Array
    own: jax.Array


def side_losses(
    link_side: LinkSide,
    relations: jax.Array,
    *,
    kind: Literal["softmax", "binary"],
    dropout: float,
    seed: jax.Array,
    ids: jax.Array,
) -> jax.Array:
    """The loss of each link for one of its ends, float32 `[n]`.

    `softmax` is the cross entropy of the true node among the negatives; `binary` the logistic loss of the true node
    plus the mean logistic loss of the negatives. Other true nodes may be among the negatives.

    Args:
        relations: the row of each link's relation, `[n, hidden]`.
        dropout: rate of dropout of the queries; `seed`, uint32 scalar, and `ids`, int32 `[n]`, decide what drops.
    """
    side, given, true, candidates, own = link_side
    query = given * relations
    if dropout:
        query = drop_rows(query, site_seed(seed, f"scorer/{side}"), dropout, ids)
    positive = jnp.sum(query * true, axis=1)
    negative = query @ candidates.T if candidates.ndim == 2 else jnp.einsum("nd,nkd->nk", query, candidates)
    if kind == "softmax":
        negative = jnp.where(own, -jnp.inf, negative)
        shift = jax.lax.stop_gradient(jnp.maximum(negative.max(axis=1, initial=-jnp.inf), positive))
        others = jnp.exp(negative - shift[:, None]).sum(axis=1)
        return jnp.log(others + jnp.exp(positive - shift)) + shift - positive
    count = jnp.maximum((~own).sum(axis=1), 1)
    wrong = jnp.where(own, 0.0, jax.nn.softplus(negative)).sum(axis=1) / count
    return jax.nn.softplus(-positive) + wrong
