"""The head of link prediction: what links are scored from."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.nn.feature_projection import FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.stage import stage


class LinkRows(NamedTuple):
    """What triples are scored from, float32: rows of nodes, `[num_nodes, hidden]` by type, and of relations."""

    nodes: Mapping[str, jax.Array]
    relation: jax.Array


class LinkScorer(nnx.Module):
    """Scores a triple by the sum over columns of head times relation times tail (DistMult, Yang et al., ICLR 2015).

    With the scorer `dot` all elements of the relation's row are one, and nothing is learnt for it. A node's row is what
    the model's layers made of it. With `skip` its input row is added, projected where the type has features; without
    layers (`encodes` false) the input row stands alone.
    """

    def __init__(
        self,
        config: ModelConfig,
        spec: GraphSpec,
        num_relations: int,
        *,
        scorer: Literal["distmult", "dot"],
        skip: bool,
        encodes: bool,
        rngs: nnx.Rngs,
    ) -> None:
        self.skip, self.encodes = skip, encodes
        self.num_relations, self.hidden = num_relations, config.hidden
        self.sparse_implementation, self.dtype = spec.sparse_implementation, jnp.dtype(config.dtype)
        projections = {}
        if skip or not encodes:
            for node_type in spec.targets:
                if node_type in spec.feature_widths:
                    width = spec.feature_widths[node_type]
                    projections[node_type] = FeatureProjection(["own"], width, config.hidden, rngs=rngs)
        self.projections = nnx.Dict(projections)
        init = nnx.initializers.glorot_uniform()
        learns = scorer == "distmult"
        self.r_rd = nnx.Param(init(rngs.params(), (num_relations, config.hidden))) if learns else None

    @property
    def reads_inputs(self) -> bool:
        """Whether a node's input row is read."""
        return self.skip or not self.encodes

    def relations(self) -> jax.Array:
        """Rows of all relations, `[num_relations, hidden]`."""
        return jnp.ones((self.num_relations, self.hidden)) if self.r_rd is None else self.r_rd[...]

    def represent(self, node_type: str, made: Rows | None, own: Rows | None) -> jax.Array:
        """Scored rows of a type, float32 `[rows, hidden]`, from what the layers made and from the input rows."""
        row = None if made is None or not self.encodes else dense_rows(made).astype(jnp.float32)
        if not self.reads_inputs:
            assert row is not None
            return row
        assert own is not None
        shown = self._own(node_type, own)
        return shown if row is None else row + shown[: row.shape[0]]

    def _own(self, node_type: str, x: Rows) -> jax.Array:
        if node_type not in self.projections:
            return dense_rows(x)
        with stage("FP", part=node_type):
            stack = self.projections[node_type].stack()
            projected = project_together(
                x, ["own"], stack, sparse_implementation=self.sparse_implementation, dtype=self.dtype
            )
            return projected["own"].astype(jnp.float32)
