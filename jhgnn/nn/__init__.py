"""The stages of a layer as Flax NNX modules: feature projection, neighbor aggregation, semantic fusion.

What a model or layer of one's own is built from is named here, and imported when it is first used.
"""

from typing import TYPE_CHECKING

from jhgnn._lazy import lazily

if TYPE_CHECKING:
    from jhgnn.config import ModelConfig
    from jhgnn.nn.block import Block
    from jhgnn.nn.embeddings import InputEmbeddings
    from jhgnn.nn.feature_projection import FeatureProjection, project_together
    from jhgnn.nn.inputs import GraphInputs, GraphSpec
    from jhgnn.nn.layer_plan import LayerPlan, plan_layers
    from jhgnn.nn.neighbor_aggregation import AttentionAggregation, mean_aggregation
    from jhgnn.nn.placed import whole_graph
    from jhgnn.nn.reduction import Partial
    from jhgnn.nn.relation_sums import RelationParts, SumOverRelations
    from jhgnn.nn.semantic_fusion import AttentionFusion, SumFusion

__all__ = [
    "AttentionAggregation",
    "AttentionFusion",
    "Block",
    "FeatureProjection",
    "GraphInputs",
    "GraphSpec",
    "InputEmbeddings",
    "LayerPlan",
    "ModelConfig",
    "Partial",
    "RelationParts",
    "SumFusion",
    "SumOverRelations",
    "mean_aggregation",
    "plan_layers",
    "project_together",
    "whole_graph",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "AttentionAggregation": "jhgnn.nn.neighbor_aggregation",
        "AttentionFusion": "jhgnn.nn.semantic_fusion",
        "Block": "jhgnn.nn.inputs",
        "FeatureProjection": "jhgnn.nn.feature_projection",
        "GraphInputs": "jhgnn.nn.inputs",
        "GraphSpec": "jhgnn.nn.inputs",
        "InputEmbeddings": "jhgnn.nn.embeddings",
        "LayerPlan": "jhgnn.nn.layer_plan",
        "ModelConfig": "jhgnn.config",
        "Partial": "jhgnn.nn.reduction",
        "RelationParts": "jhgnn.nn.relation_sums",
        "SumFusion": "jhgnn.nn.semantic_fusion",
        "SumOverRelations": "jhgnn.nn.relation_sums",
        "mean_aggregation": "jhgnn.nn.neighbor_aggregation",
        "plan_layers": "jhgnn.nn.layer_plan",
        "project_together": "jhgnn.nn.feature_projection",
        "whole_graph": "jhgnn.nn.placed",
    },
)
