"""Semantic fusion (SF): one representation of a node type from those of its relations or metapaths.

Each fusion has two halves, `partial` and `finish`. Between them, whoever else holds rows or relations may add sums
(`jhgnn.nn.reduction`). What must count once (bias, norm, activation, self-loop) is in the second half.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

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
    """ReLU, named `sf_out`, whose derivative is read from its result, which the next layer keeps anyway.

    A derivative from the argument's sign would need the argument, a sum for which every relation would be aggregated
    again.
    """
    return border(jnp.maximum(total, 0.0), "sf_out")


@_fused_relu.defjvp
def _fused_relu_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    out = border(jnp.maximum(primals[0], 0.0), "sf_out")  # not _fused_relu: policies do not look for names inside it
    return out, jnp.where(out > 0.0, tangents[0], 0.0)


class SumFusion(nnx.Module):
    """Sum over relations, then the node's own part, bias, layer norm if asked for, activation (R-GCN eq. 2)."""

    def __init__(self, width: int, *, activation: str, layer_norm: bool, rngs: nnx.Rngs) -> None:
        self.bias = nnx.Param(jnp.zeros(width))
        self.norm = nnx.LayerNorm(width, rngs=rngs) if layer_norm else None
        self.activation = activation

    def partial(self, parts: Sequence[jax.Array], num_rows: int) -> jax.Array:
        """The sum of `[num_rows, width]` each, in float32; zeros without parts."""
        dtype = self.bias.dtype
        if not parts:
            return jnp.zeros((num_rows, self.bias.shape[0]), dtype)
        total = parts[0].astype(dtype)
        for part in parts[1:]:
            total = total + part.astype(dtype)
        return total

    def finish(self, total: jax.Array, own: jax.Array | None = None) -> jax.Array:
        """From the sum over all relations, and the self-loop's part if there is one, to `[num_rows, width]` float32."""
        if own is not None:
            total = total + own.astype(total.dtype)
        total = total + self.bias[...][None]
        if self.norm is not None:
            total = self.norm(total)
        if self.activation == "relu":
            return _fused_relu(total)
        return border(ACTIVATIONS[self.activation](total), "sf_out")

    def __call__(self, parts: Sequence[jax.Array], num_rows: int, own: jax.Array | None = None) -> jax.Array:
        """Both halves."""
        return self.finish(self.partial(parts, num_rows), own)


class TargetSums(NamedTuple):
    """What HAN's semantic attention averages: float32 `[semantic_width]` for each metapath, over `num_targets`."""

    totals: tuple[jax.Array, ...]
    num_targets: jax.Array | float


class AttentionFusion(nnx.Module):
    """Attention over metapaths, one weight a metapath for all nodes (HAN eq. 7-9).

    The weights come from a mean over nodes: all of the target type in full-batch training, the batch's targets in a
    mini-batch. The two are equal where the batch holds every node.
    """

    def __init__(self, width: int, semantic_width: int, *, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(width, semantic_width, rngs=rngs)
        self.query = nnx.Param(nnx.initializers.glorot_uniform()(rngs.params(), (semantic_width, 1)))

    def partial(self, parts: Sequence[jax.Array], targets: jax.Array | None = None) -> TargetSums:
        """Sums over the rows of `[num_rows, width]` each; at least one part.

        Args:
            parts: one a metapath.
            targets: bool `[at most num_rows]`, which of the first rows count; None: all rows.
        """
        # query . mean(tanh(...)) = mean(query . tanh(...)): the sum first leaves one row to multiply.
        if targets is None:
            return TargetSums(tuple(self.transformed(part).sum(axis=0) for part in parts), float(parts[0].shape[0]))
        weights = targets.astype(jnp.float32)
        totals = tuple(weights @ self.transformed(part[: len(weights)]) for part in parts)
        return TargetSums(totals, targets.sum(dtype=jnp.float32))

    def weights(self, sums: TargetSums) -> jax.Array:
        """The attention of each part, float32 `[parts]`, from the sums over all targets; it adds up to 1."""
        count = sums.num_targets
        count = max(count, 1.0) if isinstance(count, float) else jnp.maximum(count, 1.0)
        means = [total / count for total in sums.totals]
        scores = jnp.stack([(mean @ self.query[...])[0] for mean in means])
        return jax.nn.softmax(scores)

    def finish(self, parts: Sequence[jax.Array], sums: TargetSums) -> jax.Array:
        """The parts weighted by attention, `[num_rows, width]` float32, from the sums over all targets."""
        betas = self.weights(sums)
        total = betas[0] * parts[0].astype(betas.dtype)
        for beta, part in zip(betas[1:], parts[1:], strict=True):
            total = total + beta * part
        return border(total, "sf_out")

    def __call__(self, parts: Sequence[jax.Array], targets: jax.Array | None = None) -> jax.Array:
        """Both halves."""
        return self.finish(parts, self.partial(parts, targets))

    def transformed(self, part: jax.Array) -> jax.Array:
        """tanh( W z + b ), `[rows, semantic_width]`, whose mean over the targets meets the query (HAN eq. 7)."""
        kernel, bias = self.hidden.kernel[...], self.hidden.bias
        assert bias is not None
        return jnp.tanh(dense_matmul(part.astype(kernel.dtype), kernel) + bias[...][None])
