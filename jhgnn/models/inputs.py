"""What a model reads: its arrays (`GraphInputs`, arguments of the step) and their static description (`GraphSpec`)."""

import dataclasses
from collections.abc import Mapping

import jax

from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GraphInputs:
    """Features of each node type that has any, and the semantic graphs by name."""

    features: dict[str, jax.Array | SparseFeatures]
    graphs: dict[str, SemanticGraph]


@dataclasses.dataclass(frozen=True)
class GraphSpec:
    """The sizes that a model is built for.

    Attributes:
        num_nodes: nodes of each type.
        feature_widths: columns of each type that has features; the others get learnable embeddings.
        target: the node type to classify.
        num_classes: outputs of the classifier.
        relations: semantic graph name -> the relation it holds, for models over relations.
        metapaths: names of the semantic graphs from target to target, for HAN.
        implementations: semantic graph name -> implementation of its neighbor aggregation.
        sparse_implementation: of the projection of sparse features.
    """

    num_nodes: Mapping[str, int]
    feature_widths: Mapping[str, int]
    target: str
    num_classes: int
    relations: Mapping[str, Relation]
    metapaths: tuple[str, ...]
    implementations: Mapping[str, str]
    sparse_implementation: str
