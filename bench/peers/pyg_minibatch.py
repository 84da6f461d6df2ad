"""Mini-batches in PyG: `NeighborLoader`, for HAN over `AddRandomMetaPaths`; layers on the sampled subgraph."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import HANConv
from torch_geometric.transforms import AddRandomMetaPaths
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from bench.comparison.graph_folder import PlainGraph
from bench.peers.pyg_models import RGAT, ProjectedRGCN, key
from bench.peers.recompute import recomputed
from bench.peers.shared import Relational, SampledInputs, drop

if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
    raise ImportError("NeighborLoader needs pyg-lib or torch-sparse, and neither is installed")


class SampledHAN(nn.Module):
    """HANConv on the sampled metapath edges; the semantic attention is over the batch's nodes."""

    def __init__(self, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.target, self.settings = graph.target, settings
        self.inputs = SampledInputs([graph.target], graph, settings["hidden"])
        self.conv = HANConv(
            self.inputs.widths,
            settings["hidden"],
            ([graph.target], [(graph.target, f"metapath_{n}", graph.target) for n in range(len(graph.metapaths))]),
            heads=settings["heads"],
            negative_slope=settings["negative_slope"],
            dropout=settings["attention_dropout"],
        )
        self.classifier = nn.Linear(settings["hidden"], graph.num_classes)

    def forward(self, edges: Mapping[tuple[str, str, str], Tensor], ids: Mapping[str, Tensor]) -> Tensor:
        x = drop(self.inputs(ids)[self.target], self.settings["feature_dropout"], self.training)
        made = recomputed("layer", self.settings, self.conv, {self.target: x}, edges)
        return self.classifier(made[self.target])


class OnSubgraphs(Relational):
    """The full-batch layers on a sampled subgraph, whose first target rows are the batch's; features are by ids."""

    def graph_of(self, graphs: Any, index: int) -> Any:
        own_relations = set(self.convs[index].convs.keys())
        return {triple: pairs for triple, pairs in graphs.items() if triple in own_relations}


class SampledRGCN(OnSubgraphs, ProjectedRGCN):
    """HeteroConv of Linear and SimpleConv on subgraphs."""


class SampledRGAT(OnSubgraphs, RGAT):
    """HeteroConv of GATConv on subgraphs."""


MODELS = {"han": SampledHAN, "rgcn": SampledRGCN, "rgat": SampledRGAT}


def prepare(graph: PlainGraph, settings: Mapping[str, Any]) -> HeteroData:
    """All relations, or HAN's random metapaths."""
    data = HeteroData()
    data.target = graph.target
    for node_type, count in graph.num_nodes.items():
        data[node_type].num_nodes = count
    for number, pairs in enumerate(graph.edges):
        data[key(graph, number)].edge_index = torch.stack(tuple(map(torch.from_numpy, pairs)))
    if settings["name"] != "han":
        return data
    paths = [[key(graph, step) for step in steps] for steps in graph.metapaths.values()]
    walked = AddRandomMetaPaths(paths, drop_orig_edge_types=True, walks_per_node=settings["walks"])(data)
    for node_type in [each for each in walked.node_types if each != graph.target]:
        del walked[node_type]
    return walked


def loader(
    data: HeteroData, train_ids: Tensor, settings: Mapping[str, Any], num_workers: int
) -> Iterator[tuple[dict[tuple[str, str, str], Tensor], dict[str, Tensor], Tensor]]:
    """Edges, ids of the rows, and target ids of each batch, without end."""
    batches = NeighborLoader(
        data,
        num_neighbors=list(settings["fan_out"]),
        input_nodes=(data.target, train_ids),
        batch_size=settings["batch_size"],
        shuffle=True,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
    )
    while True:
        for batch in batches:
            ids = {node_type: batch[node_type].n_id for node_type in batch.node_types}
            yield batch.edge_index_dict, ids, batch[data.target].n_id[: batch[data.target].batch_size]
