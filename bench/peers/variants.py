"""Every way of writing a model that was tried in a peer; the quickest counts."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from bench.comparison.graph_folder import PlainGraph
from bench.peers.shared import device, feature_tensors


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way: `graphs` builds what `model` aggregates over (SGB), `features` is dense or sparse.

    `definition` names the jhgnn model settings that this one equals; None: none, it is timed only.
    `one_type` variants need a graph with a single node type.
    """

    graphs: Callable[[PlainGraph, Mapping[str, Any]], Any]
    model: Callable[[PlainGraph, Mapping[str, Any]], nn.Module]
    definition: str | None = "default"
    features: str = "dense"
    compiled: bool = False
    one_type: bool = False


def dgl_variants() -> dict[str, dict[str, Variant]]:
    from bench.peers import dgl_models as m

    han = Variant(m.metapath_graphs, m.HAN)
    rgcn = Variant(m.layer_graphs, m.RGCN)
    rgat = Variant(m.layer_graphs, m.RGAT)
    return {
        "han": {"GATConv": han, "GATConv, sparse features": dataclasses.replace(han, features="sparse")},
        "rgcn": {
            "HeteroGraphConv(GraphConv)": rgcn,
            "HeteroGraphConv(GraphConv), sparse features": dataclasses.replace(rgcn, features="sparse"),
            "RelGraphConv": Variant(m.typed_edges, m.MergedRGCN, one_type=True),
        },
        "rgat": {
            "HeteroGraphConv(GATConv)": rgat,
            "HeteroGraphConv(GATConv), sparse features": dataclasses.replace(rgat, features="sparse"),
        },
    }


def pyg_variants() -> dict[str, dict[str, Variant]]:
    from bench.peers import pyg_models as m

    def adjacency(build: Callable[..., Any], kind: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(build, adjacency=kind)

    plain, cached = m.edge_index, m.cached_edge_index
    han = Variant(adjacency(m.metapath_graphs, plain), m.HAN, definition="pyg")
    gat_han = Variant(adjacency(m.metapath_graphs, cached), m.GATHAN)
    projected = Variant(adjacency(m.layer_graphs, cached), m.ProjectedRGCN)
    matrix = Variant(adjacency(m.layer_graphs, m.mean_matrix), m.SparseMatrixRGCN)
    rgat = Variant(adjacency(m.layer_graphs, plain), m.RGAT)
    cached_rgat = dataclasses.replace(rgat, graphs=adjacency(m.layer_graphs, cached))
    return {
        "han": {
            "HANConv, edge_index": han,
            "HANConv, EdgeIndex": dataclasses.replace(han, graphs=adjacency(m.metapath_graphs, cached)),
            "HANConv, edge_index, torch.compile": dataclasses.replace(han, compiled=True),
            "HANConv, EdgeIndex, sparse features": dataclasses.replace(
                han, graphs=adjacency(m.metapath_graphs, cached), features="sparse"
            ),
            "GATConv, EdgeIndex": gat_han,
        },
        "rgcn": {
            "HeteroConv(SAGEConv), edge_index": Variant(adjacency(m.layer_graphs, plain), m.RGCN),
            "HeteroConv(Linear + SimpleConv), EdgeIndex": projected,
            "HeteroConv(Linear + SimpleConv), sparse adjacency": matrix,
            "HeteroConv(Linear + SimpleConv), sparse adjacency, sparse features": dataclasses.replace(
                matrix, features="sparse"
            ),
            "HeteroConv(Linear + SimpleConv), edge_index, torch.compile": dataclasses.replace(
                projected, graphs=adjacency(m.layer_graphs, plain), compiled=True
            ),
            "RGCNConv": Variant(m.typed_edges, m.MergedRGCN, one_type=True),
        },
        "rgat": {
            "HeteroConv(GATConv), edge_index": rgat,
            "HeteroConv(GATConv), EdgeIndex": cached_rgat,
            "HeteroConv(GATConv), EdgeIndex, sparse features": dataclasses.replace(cached_rgat, features="sparse"),
            "HeteroConv(GATConv), edge_index, torch.compile": dataclasses.replace(rgat, compiled=True),
            "RGATConv": Variant(m.typed_edges, m.MergedRGAT, definition=None, one_type=True),
        },
    }


FRAMEWORKS = {"dgl": dgl_variants, "pyg": pyg_variants}


@dataclasses.dataclass(frozen=True, eq=False)
class Built:
    """A model ready to call: `model(graphs, features)` gives logits of all target nodes."""

    model: nn.Module
    graphs: Any
    features: Mapping[str, Tensor]

    def double(self) -> "Built":
        """The same in float64, for references."""
        return Built(self.model.double(), self.graphs, {t: x.double() for t, x in self.features.items()})

    def logits(self) -> Tensor:
        return self.model(self.graphs, self.features)


def applicable(variant: Variant, graph: PlainGraph) -> bool:
    """Whether a variant covers the graph, and differs on it from the others."""
    if variant.one_type and len(graph.num_nodes) > 1:
        return False
    return variant.features == "dense" or any(hasattr(matrix, "indptr") for matrix in graph.features.values())


def build(variant: Variant, graph: PlainGraph, settings: Mapping[str, Any], graphs: Any) -> Built:
    """The model on the device, uncompiled."""
    model = variant.model(graph, settings).to(device())
    return Built(model, graphs, feature_tensors(graph, variant.features))
