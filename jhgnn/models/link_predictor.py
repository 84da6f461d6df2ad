"""Link prediction: node representations from R-GCN or R-GAT, or learnt embeddings alone, and a scorer of triples."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig, TaskConfig
from jhgnn.models.classifier import InputEmbeddings
from jhgnn.models.inputs import GraphInputs, GraphSpec
from jhgnn.models.relational import RelationalEncoder
from jhgnn.models.rgat import RGATLayer
from jhgnn.models.rgcn import RGCNLayer
from jhgnn.nn.feature_projection import FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.stage import stage

LAYERS: dict[str, Callable[..., nnx.Module]] = {"rgcn": RGCNLayer, "rgat": RGATLayer}


class LinkRows(NamedTuple):
    """What triples are scored from, float32: heads and tails by node, `[num_nodes, hidden]`, relations likewise."""

    head: jax.Array
    tail: jax.Array
    relation: jax.Array


class LinkPredictor(nnx.Module):
    """Represents the nodes at both ends of the links, and their relations.

    A triple's score is the sum over columns of head times relation times tail (DistMult, Yang et al., ICLR 2015); with
    the scorer `dot` the relation is one everywhere, and nothing is learnt for it.
    """

    def __init__(
        self,
        config: ModelConfig,
        task: TaskConfig,
        spec: GraphSpec,
        ends: tuple[str, str],
        num_relations: int,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        """`ends` are the node types of heads and of tails, which may be one."""
        self.ends, self.skip, self.num_relations = ends, task.skip, num_relations
        self.sparse_implementation, self.dtype = spec.sparse_implementation, jnp.dtype(config.dtype)
        types = tuple(dict.fromkeys(ends))
        reads = config.name == "rgat" or config.self_loop or config.residual or task.skip
        encodes = task.encoder == "graph"
        self.encoder = (
            RelationalEncoder(LAYERS[config.name], config, spec, types, reads_targets=reads, rngs=rngs)
            if encodes
            else None
        )
        self.embeddings = None if encodes else InputEmbeddings(types, spec, config.hidden, rngs=rngs)
        projections = {}
        if task.skip or self.encoder is None:
            for node_type in types:
                if node_type in spec.feature_widths:
                    width = spec.feature_widths[node_type]
                    projections[node_type] = FeatureProjection(["own"], width, config.hidden, rngs=rngs)
        self.projections = nnx.Dict(projections)
        init = nnx.initializers.glorot_uniform()
        learns = task.scorer == "distmult"
        self.r_rd = nnx.Param(init(rngs.params(), (num_relations, config.hidden))) if learns else None
        self.hidden = config.hidden

    def __call__(self, inputs: GraphInputs, step_seed: jax.Array | None = None) -> LinkRows:
        """Rows of all nodes and relations; dropout is on where a uint32 `step_seed` is given."""
        made: dict[str, jax.Array] = {}
        if self.encoder is not None:
            rows = self.encoder.encode(inputs, step_seed)
            made = {node_type: dense_rows(x).astype(jnp.float32) for node_type, x in rows.items()}
        if self.skip or self.encoder is None:
            embeddings = self.embeddings if self.encoder is None else self.encoder.embeddings
            assert embeddings is not None
            for node_type, own in embeddings(inputs).items():
                if node_type in self.ends:
                    shown = self._own(node_type, own)
                    made[node_type] = made[node_type] + shown if node_type in made else shown
        ones = jnp.ones((self.num_relations, self.hidden))
        relation = ones if self.r_rd is None else self.r_rd[...]
        return LinkRows(made[self.ends[0]], made[self.ends[1]], relation)

    def _own(self, node_type: str, x: Rows) -> jax.Array:
        if node_type not in self.projections:
            return dense_rows(x)
        with stage("FP", part=node_type):
            stack = self.projections[node_type].stack()
            projected = project_together(
                x, ["own"], stack, sparse_implementation=self.sparse_implementation, dtype=self.dtype
            )
            return projected["own"].astype(jnp.float32)
