"""The head of node classification, in the loss computation (LC) stage."""

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.nn.stage import stage
from jhgnn.ops.dense_matmul import dense_matmul


class Classifier(nnx.Module):
    """A linear map from embeddings `[rows, width]` to class logits `[rows, num_classes]`, in float32 at least."""

    def __init__(self, width: int, num_classes: int, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.glorot_uniform()
        self.linear = nnx.Linear(width, num_classes, kernel_init=init, rngs=rngs)

    def __call__(self, embeddings: jax.Array) -> jax.Array:
        with stage("LC", part="classifier"):
            bias = self.linear.bias
            assert bias is not None
            wide = embeddings.astype(jnp.promote_types(embeddings.dtype, jnp.float32))
            return dense_matmul(wide, self.linear.kernel[...]) + bias[...][None]
