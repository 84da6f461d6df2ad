"""HAN, R-GCN and R-GAT of `HANConv`, `HeteroConv`, `SAGEConv`, `GATConv`, `RGCNConv` and `RGATConv`."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, HANConv, HeteroConv, Linear, RGATConv, RGCNConv, SAGEConv, SimpleConv
from torch_geometric.transforms import AddMetaPaths

from bench.comparison.graph_folder import PlainGraph
from bench.peers.recompute import recomputed
from bench.peers.shared import ACTIVATIONS, Relational, SemanticAttention, device, drop, inputs_of

Adjacency = Any  # edge_index, EdgeIndex or sparse COO: what PyG's convolutions take alike
AsAdjacency = Callable[[Tensor, int, int], Adjacency]


def edge_index(pairs: Tensor, num_sources: int, num_targets: int) -> Adjacency:
    """Plain `[2, num_edges]`, sorted by receiver."""
    return pairs[:, pairs[1].argsort(stable=True)].contiguous()


def cached_edge_index(pairs: Tensor, num_sources: int, num_targets: int) -> Adjacency:
    """EdgeIndex sorted by receiver, with both compressed directions cached."""
    found, _ = EdgeIndex(pairs, sparse_size=(num_sources, num_targets)).sort_by("col", stable=True)
    return found.fill_cache_()


def mean_matrix(pairs: Tensor, num_sources: int, num_targets: int) -> Adjacency:
    """The transposed adjacency as a sparse matrix whose rows sum to one, for a sum that is the mean."""
    degree = torch.bincount(pairs[1], minlength=num_targets)
    values = 1.0 / degree[pairs[1]]
    return torch.sparse_coo_tensor(pairs.flip(0), values, (num_targets, num_sources)).coalesce()


def metapath_graphs(graph: PlainGraph, settings: Mapping[str, Any], adjacency: AsAdjacency) -> dict[str, Adjacency]:
    """HAN's semantic graphs by PyG's own transform; metapath of one relation: its edges.

    AddMetaPaths keeps some of the duplicates that parallel edges of a relation lead to, so those are merged first: a
    metapath joins a pair of nodes once, as in jhgnn's and in DGL's `metapath_reachable_graph`.
    """
    data = HeteroData()
    for node_type, count in graph.num_nodes.items():
        data[node_type].num_nodes = count
    for number, (source, _, target) in enumerate(graph.relations):
        pairs = torch.stack(tuple(map(torch.from_numpy, graph.edges[number])))
        data[source, f"r{number}", target].edge_index = pairs
    merged = data.coalesce()
    found, count = {}, graph.num_nodes[graph.target]
    for name, steps in graph.metapaths.items():
        path = [(graph.relations[step][0], f"r{step}", graph.relations[step][2]) for step in steps]
        if len(path) == 1:
            start, end = graph.edges[steps[0]]
            pairs = torch.stack((torch.from_numpy(start), torch.from_numpy(end)))
        else:
            pairs = AddMetaPaths([path], drop_orig_edge_types=True)(merged.clone())[
                graph.target, "metapath_0", graph.target
            ].edge_index
        found[name] = adjacency(pairs.to(device()), count, count)
    return found


def layer_graphs(
    graph: PlainGraph, settings: Mapping[str, Any], adjacency: AsAdjacency
) -> list[dict[tuple[str, str, str], Adjacency]]:
    """One dictionary a layer, of the relations that it computes."""
    built = {}
    for number, (source, _, target) in enumerate(graph.relations):
        pairs = torch.stack(tuple(map(torch.from_numpy, graph.edges[number]))).to(device())
        built[number] = adjacency(pairs, graph.num_nodes[source], graph.num_nodes[target])
    return [{key(graph, number): built[number] for number in layer["relations"]} for layer in settings["plan"]]


def key(graph: PlainGraph, number: int) -> tuple[str, str, str]:
    source, _, target = graph.relations[number]
    return source, f"r{number}", target


class HAN(nn.Module):
    """HANConv as in PyG's example: one biased projection for all metapaths, ReLU."""

    def __init__(self, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = settings["hidden"]
        self.target, self.settings = graph.target, settings
        self.inputs = inputs_of([graph.target], graph, settings)
        self.edge_types = {name: (graph.target, f"m{n}", graph.target) for n, name in enumerate(graph.metapaths)}
        self.conv = HANConv(
            self.inputs.widths,
            hidden,
            ([graph.target], list(self.edge_types.values())),
            heads=settings["heads"],
            negative_slope=settings["negative_slope"],
            dropout=settings["attention_dropout"],
        )
        self.classifier = nn.Linear(hidden, graph.num_classes)

    def forward(self, graphs: Mapping[str, Adjacency], features: Mapping[str, Tensor]) -> Tensor:
        x = drop(self.inputs(features)[self.target], self.settings["feature_dropout"], self.training)
        edges = {self.edge_types[name]: adjacency for name, adjacency in graphs.items()}
        return self.classifier(recomputed("layer", self.settings, self.conv, {self.target: x}, edges)[self.target])


class GATHAN(nn.Module):
    """HAN of a GATConv a metapath, as DGL's and HAN's own code have it."""

    def __init__(self, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, heads = settings["hidden"], settings["heads"]
        self.target, self.settings = graph.target, settings
        self.activation = ACTIVATIONS[settings["activation"]]
        self.inputs = inputs_of([graph.target], graph, settings)
        self.gats = nn.ModuleList(
            GATConv(
                self.inputs.widths[graph.target],
                hidden // heads,
                heads,
                negative_slope=settings["negative_slope"],
                dropout=settings["attention_dropout"],
                add_self_loops=False,
            )
            for _ in graph.metapaths
        )
        self.fusion = SemanticAttention(hidden, settings["semantic_hidden"])
        self.classifier = nn.Linear(hidden, graph.num_classes)

    def forward(self, graphs: Mapping[str, Adjacency], features: Mapping[str, Tensor]) -> Tensor:
        x = drop(self.inputs(features)[self.target], self.settings["feature_dropout"], self.training)
        return self.classifier(recomputed("layer", self.settings, self.layer, graphs, x))

    def layer(self, graphs: Mapping[str, Adjacency], x: Tensor) -> Tensor:
        gats = zip(self.gats, graphs.values(), strict=True)
        z = [self.activation(recomputed("stage", self.settings, gat, x, each)) for gat, each in gats]
        return recomputed("stage", self.settings, self.fusion, torch.stack(z, dim=1))


class RelationalPyG(Relational):
    """HeteroConv of one convolution a relation."""

    def conv(self, source: int, target: int | None) -> nn.Module:
        """One relation's module; `target` is None where both ends are of one type."""
        raise NotImplementedError

    def convolve(self, triples: Mapping[int, tuple[str, str, str]], widths: Mapping[str, int]) -> nn.Module:
        return HeteroConv(
            {
                (source, f"r{n}", target): self.conv(widths[source], None if source == target else widths[target])
                for n, (source, _, target) in triples.items()
            },
            aggr="sum",
        )

    def aggregate(self, conv: nn.Module, graph: Any, rows: dict[str, Tensor]) -> Mapping[str, Tensor]:
        return conv(rows, graph)


class RGCN(RelationalPyG):
    """SAGEConv's mean without its root weight: aggregates features, then projects."""

    def conv(self, source: int, target: int | None) -> nn.Module:
        return SAGEConv((source, source), self.settings["hidden"], aggr="mean", root_weight=False, bias=False)


class ProjectThenAggregate(nn.Module):
    """Linear, then SimpleConv: less to move where features are wider than the hidden rows."""

    def __init__(self, width: int, hidden: int, aggr: str) -> None:
        super().__init__()
        self.linear, self.simple = Linear(width, hidden, bias=False), SimpleConv(aggr=aggr)

    def forward(self, x: Tensor | tuple[Tensor, Tensor], adjacency: Adjacency) -> Tensor:
        source, target = x if isinstance(x, tuple) else (x, x)
        return self.simple((self.linear(source), target), adjacency)


class ProjectedRGCN(RelationalPyG):
    """R-GCN that projects before it aggregates."""

    def conv(self, source: int, target: int | None) -> nn.Module:
        return ProjectThenAggregate(source, self.settings["hidden"], "mean")


class SparseMatrixRGCN(RelationalPyG):
    """The same with the mean in the values of a sparse adjacency."""

    def conv(self, source: int, target: int | None) -> nn.Module:
        return ProjectThenAggregate(source, self.settings["hidden"], "sum")


class RGAT(RelationalPyG):
    """GATConv: a matrix for each end of a relation between types, one within a type."""

    def conv(self, source: int, target: int | None) -> nn.Module:
        heads = self.settings["heads"]
        return GATConv(
            source if target is None else (source, target),
            self.settings["hidden"] // heads,
            heads,
            negative_slope=self.settings["negative_slope"],
            dropout=self.settings["attention_dropout"],
            add_self_loops=False,
            bias=False,
        )


def typed_edges(graph: PlainGraph, settings: Mapping[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """Of a graph with one node type: all edges, sorted by relation, and their relations."""
    pairs = torch.cat([torch.stack(tuple(map(torch.from_numpy, each))) for each in graph.edges], dim=1)
    counts = torch.tensor([len(senders) for senders, _ in graph.edges])
    edge_types = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return [(pairs.to(device()), edge_types.to(device()))] * settings["layers"]


class Merged(nn.Module):
    """Layers over typed edges of one node type."""

    def __init__(self, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.target, self.settings = graph.target, settings
        self.activation, hidden = ACTIVATIONS[settings["activation"]], settings["hidden"]
        self.inputs = inputs_of([graph.target], graph, settings)
        widths = [self.inputs.widths[graph.target]] + [hidden] * (settings["layers"] - 1)
        self.convs = nn.ModuleList(self.conv(width, len(graph.relations)) for width in widths)
        self.classifier = nn.Linear(hidden, graph.num_classes)

    def conv(self, width: int, num_relations: int) -> nn.Module:
        raise NotImplementedError

    def forward(self, graphs: list[tuple[Tensor, Tensor]], features: Mapping[str, Tensor]) -> Tensor:
        x = self.inputs(features)[self.target]
        for index, (conv, (pairs, edge_types)) in enumerate(zip(self.convs, graphs, strict=True)):
            x = drop(x, self.settings["dropout"], self.training) if index else x
            x = self.activation(conv(x, pairs, edge_types))
        return self.classifier(x)


class MergedRGCN(Merged):
    """RGCNConv."""

    def conv(self, width: int, num_relations: int) -> nn.Module:
        return RGCNConv(width, self.settings["hidden"], num_relations, is_sorted=True)


class MergedRGAT(Merged):
    """RGATConv: attention vectors shared by all relations and heads mixed in them, no self-loop; another model."""

    def conv(self, width: int, num_relations: int) -> nn.Module:
        heads = self.settings["heads"]
        return RGATConv(
            width,
            self.settings["hidden"] // heads,
            num_relations,
            heads=heads,
            attention_mechanism="within-relation",
            negative_slope=self.settings["negative_slope"],
            dropout=self.settings["attention_dropout"],
        )
