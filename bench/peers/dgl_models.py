"""HAN, R-GCN and R-GAT of `HeteroGraphConv`, `GATConv`, `GraphConv` and `RelGraphConv`, formats built beforehand."""

from collections.abc import Mapping
from typing import Any

import dgl
import torch
from dgl.nn.pytorch import GATConv, GraphConv, HeteroGraphConv, RelGraphConv
from torch import Tensor, nn
from torch.nn import functional

from bench.comparison.graph_folder import PlainGraph
from bench.peers.recompute import recomputed
from bench.peers.shared import ACTIVATIONS, Relational, SemanticAttention, device, drop, inputs_of


def heterograph(graph: PlainGraph) -> dgl.DGLGraph:
    edges = {
        (source, f"r{number}", target): tuple(map(torch.from_numpy, graph.edges[number]))
        for number, (source, _, target) in enumerate(graph.relations)
    }
    return dgl.heterograph(edges, dict(graph.num_nodes))


def metapath_graphs(graph: PlainGraph, settings: Mapping[str, Any]) -> list[dgl.DGLGraph]:
    """HAN's semantic graphs by DGL's own build."""
    whole = heterograph(graph)
    found = []
    for steps in graph.metapaths.values():
        path = [(graph.relations[step][0], f"r{step}", graph.relations[step][2]) for step in steps]
        metapath_graph = dgl.metapath_reachable_graph(whole, path) if len(path) > 1 else whole[path[0]]
        found.append(metapath_graph.to(device()))
        found[-1].create_formats_()
    return found


def layer_graphs(graph: PlainGraph, settings: Mapping[str, Any]) -> list[dgl.DGLGraph]:
    """One graph a layer, of the relations that it computes; layers of the same relations share one."""
    whole, by_relations = heterograph(graph).to(device()), {}
    for layer in settings["plan"]:
        wanted = tuple(layer["relations"])
        if wanted not in by_relations:
            edge_types = [(graph.relations[n][0], f"r{n}", graph.relations[n][2]) for n in wanted]
            by_relations[wanted] = dgl.edge_type_subgraph(whole, edge_types)
            by_relations[wanted].create_formats_()
    return [by_relations[tuple(layer["relations"])] for layer in settings["plan"]]


class HAN(nn.Module):
    """A GATConv a metapath and semantic attention, as in DGL's example of HAN."""

    def __init__(self, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, heads = settings["hidden"], settings["heads"]
        self.target, self.settings = graph.target, settings
        self.inputs = inputs_of([graph.target], graph, settings)
        self.gats = nn.ModuleList(
            GATConv(
                self.inputs.widths[graph.target],
                hidden // heads,
                heads,
                attn_drop=settings["attention_dropout"],
                negative_slope=settings["negative_slope"],
                activation=ACTIVATIONS[settings["activation"]],
                allow_zero_in_degree=True,
            )
            for _ in graph.metapaths
        )
        self.fusion = SemanticAttention(hidden, settings["semantic_hidden"])
        self.classifier = nn.Linear(hidden, graph.num_classes)

    def forward(self, graphs: list[dgl.DGLGraph], features: Mapping[str, Tensor]) -> Tensor:
        x = drop(self.inputs(features)[self.target], self.settings["feature_dropout"], self.training)
        return self.fused(graphs, [x] * len(graphs))

    def fused(self, graphs: list[dgl.DGLGraph], rows: list[Tensor]) -> Tensor:
        """Logits from the rows that each metapath's graph reads."""
        return self.classifier(recomputed("layer", self.settings, self.layer, graphs, rows))

    def layer(self, graphs: list[dgl.DGLGraph], rows: list[Tensor]) -> Tensor:
        gats = zip(self.gats, graphs, rows, strict=True)
        z = [recomputed("stage", self.settings, gat, graph, x).flatten(1) for gat, graph, x in gats]
        return recomputed("stage", self.settings, self.fusion, torch.stack(z, dim=1))


class RGCN(Relational):
    """HeteroGraphConv of GraphConv with the mean as its norm."""

    def convolve(self, triples: Mapping[int, tuple[str, str, str]], widths: Mapping[str, int]) -> nn.Module:
        return HeteroGraphConv(
            {
                f"r{n}": GraphConv(widths[source], self.settings["hidden"], norm="right", bias=False)
                for n, (source, _, _) in triples.items()
            }
        )

    def aggregate(self, conv: nn.Module, graph: dgl.DGLGraph, rows: dict[str, Tensor]) -> Mapping[str, Tensor]:
        return conv(graph, rows)


class RGAT(Relational):
    """HeteroGraphConv of GATConv: a matrix for each end of a relation between types, one within a type."""

    def convolve(self, triples: Mapping[int, tuple[str, str, str]], widths: Mapping[str, int]) -> nn.Module:
        heads = self.settings["heads"]
        return HeteroGraphConv(
            {
                f"r{n}": GATConv(
                    widths[source] if source == target else (widths[source], widths[target]),
                    self.settings["hidden"] // heads,
                    heads,
                    attn_drop=self.settings["attention_dropout"],
                    negative_slope=self.settings["negative_slope"],
                    bias=False,
                )
                for n, (source, _, target) in triples.items()
            }
        )

    def aggregate(self, conv: nn.Module, graph: dgl.DGLGraph, rows: dict[str, Tensor]) -> Mapping[str, Tensor]:
        return conv(graph, rows)


def typed_edges(graph: PlainGraph, settings: Mapping[str, Any]) -> list[tuple[dgl.DGLGraph, Tensor, Tensor]]:
    """Of a graph with one node type: the homogeneous graph, edge types, and 1 / in-degree within the relation."""
    whole = heterograph(graph)
    degrees = [whole.in_degrees(etype=etype)[whole.edges(etype=etype)[1]] for etype in whole.etypes]
    norm = torch.cat([1.0 / degree for degree in degrees])[:, None].to(device())
    merged = dgl.to_homogeneous(whole).to(device())
    merged.create_formats_()
    return [(merged, merged.edata[dgl.ETYPE], norm)] * settings["layers"]


class MergedRGCN(nn.Module):
    """RelGraphConv on the graph of one node type, its edges sorted by relation."""

    def __init__(self, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.target, self.dropout, hidden = graph.target, settings["dropout"], settings["hidden"]
        self.inputs = inputs_of([graph.target], graph, settings)
        widths = [self.inputs.widths[graph.target]] + [hidden] * (settings["layers"] - 1)
        self.convs = nn.ModuleList(
            RelGraphConv(width, hidden, len(graph.relations), activation=functional.relu, self_loop=True)
            for width in widths
        )
        self.classifier = nn.Linear(hidden, graph.num_classes)

    def forward(self, graphs: list[tuple[dgl.DGLGraph, Tensor, Tensor]], features: Mapping[str, Tensor]) -> Tensor:
        x = self.inputs(features)[self.target]
        for index, (conv, (graph, edge_types, norm)) in enumerate(zip(self.convs, graphs, strict=True)):
            x = drop(x, self.dropout, self.training) if index else x
            x = conv(graph, x, edge_types, norm, presorted=True)
        return self.classifier(x)
