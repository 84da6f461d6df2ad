"""Semantic fusion (SF): one representation of a node type from those of its relations or metapaths."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.flatten_util import ravel_pytree

from jhgnn.nn.stage import border
from jhgnn.ops.dense_matmul import dense_matmul

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
    "none": lambda x: x,
}


@jax.custom_jvp
def _fused_relu(total: jax.Array) -> jax.Array:
    """ReLU whose result is `sf_out`, from which its derivative is read, since the next layer keeps it anyway.

    With the derivative from the sum's sign, recomputing would have to aggregate every relation again.
    """
    return border(jnp.maximum(total, 0.0), "sf_out")


@_fused_relu.defjvp
def _fused_relu_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    out = border(jnp.maximum(primals[0], 0.0), "sf_out")  # not _fused_relu: policies do not look for names inside it
    return out, jnp.where(out > 0.0, tangents[0], 0.0)


class SumFusion(nnx.Module):
    """Sum over relations, bias, layer norm if asked for, activation (R-GCN eq. 2)."""

    def __init__(self, width: int, *, activation: str, layer_norm: bool, rngs: nnx.Rngs) -> None:
        self.bias = nnx.Param(jnp.zeros(width))
        self.norm = nnx.LayerNorm(width, rngs=rngs) if layer_norm else None
        self.activation = activation

    def __call__(self, parts: Sequence[jax.Array], num_nodes: int) -> jax.Array:
        """`[num_nodes, width]` each to `[num_nodes, width]` float32; without parts, the bias alone."""
        bias = self.bias[...]
        total = jnp.broadcast_to(bias, (num_nodes, len(bias)))
        for part in parts:
            total = total + part.astype(bias.dtype)
        if self.norm is not None:
            total = self.norm(total)
        if self.activation == "relu":
            return _fused_relu(total)
        return border(ACTIVATIONS[self.activation](total), "sf_out")


class AttentionFusion(nnx.Module):
    """Attention over metapaths, one weight a metapath for all nodes (HAN eq. 7-9).

    The weights are a mean over nodes: over all of them in full-batch training, over the batch's targets in a
    mini-batch. The two are equal where the batch holds every node.
    """

    def __init__(self, width: int, semantic_width: int, *, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(width, semantic_width, rngs=rngs)
        self.query = nnx.Param(nnx.initializers.glorot_uniform()(rngs.params(), (semantic_width, 1)))

    def __call__(
        self,
        parts: Sequence[jax.Array],
        targets: jax.Array | None = None,
        axis: str | None = None,
        means: jax.Array | None = None,
    ) -> jax.Array:
        """`[num_nodes, width]` each to `[num_nodes, width]` float32; needs at least one part.

        Args:
            parts: one a metapath.
            targets: bool `[at most num_nodes]`, which of the first rows the mean is over; None: all rows.
            axis: mapped axis whose devices hold the other targets of the batch, or None.
            means: float32 `[parts, semantic_width]` of a batch of which these rows are a part; None: of the rows.
        """
        # query . mean(tanh(...)) = mean(query . tanh(...)): the mean first leaves one row to multiply.
        rows = self._means(parts, targets, axis) if means is None else list(means)
        scores = jnp.stack([(mean @ self.query[...])[0] for mean in rows])
        betas = jax.nn.softmax(scores)
        total = betas[0] * parts[0].astype(betas.dtype)
        for beta, part in zip(betas[1:], parts[1:], strict=True):
            total = total + beta * part
        return border(total, "sf_out")

    def _means(self, parts: Sequence[jax.Array], targets: jax.Array | None, axis: str | None) -> Sequence[jax.Array]:
        if targets is None:
            return [self._hidden(part).mean(axis=0) for part in parts]
        total, count = self.sums(parts, targets), targets.sum(dtype=jnp.float32)
        if axis is not None:
            vector, unravel = ravel_pytree((total, count))
            total, count = unravel(jax.lax.psum(vector, axis))
        return list(total / jnp.maximum(count, 1.0))

    def sums(self, parts: Sequence[jax.Array], targets: jax.Array) -> jax.Array:
        """What the means divide by the number of targets, `[parts, semantic_width]`."""
        weights = targets.astype(jnp.float32)
        return jnp.stack([weights @ self._hidden(part[: len(weights)]) for part in parts])

    def _hidden(self, part: jax.Array) -> jax.Array:
        kernel, bias = self.hidden.kernel[...], self.hidden.bias
        assert bias is not None
        return jnp.tanh(dense_matmul(part.astype(kernel.dtype), kernel) + bias[...][None])
