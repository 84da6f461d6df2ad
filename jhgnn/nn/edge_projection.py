"""EdgeProjection: a narrow matrix for each relation whose edges have features, to messages or to logits."""

from collections.abc import Iterable, Mapping

import jax
from flax import nnx

from jhgnn.graph.edge_features import EdgeFeatures


class EdgeProjection(nnx.Module):
    """Matrices `[width, out_width]` by relation, those of relations with edge features alone.

    Args:
        relations: of one layer.
        widths: columns of edge features of each relation that has any.
        out_width: `hidden` for messages, or the heads for logits.
    """

    def __init__(self, relations: Iterable[str], widths: Mapping[str, int], out_width: int, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.glorot_uniform()
        self.w_io = nnx.Dict(
            {name: nnx.Param(init(rngs.params(), (widths[name], out_width))) for name in relations if name in widths}
        )

    def __call__(self, name: str, features: EdgeFeatures, dtype: jax.typing.DTypeLike) -> jax.Array:
        """Projected rows `[rows, out_width]` of a relation's edge features."""
        return features.rows.astype(dtype) @ self.w_io[name][...].astype(dtype)
