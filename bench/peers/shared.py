"""What the models of both peers share: inputs as tensors, embeddings of featureless types, dropout, the classifier."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.comparison.graph_folder import PlainGraph
from bench.peers.recompute import recomputed

ACTIVATIONS = {"relu": functional.relu, "elu": functional.elu, "tanh": torch.tanh, "none": lambda x: x}


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def feature_tensors(graph: PlainGraph, layout: str) -> dict[str, Tensor]:
    """Features by node type: all dense, or `sparse`: COO where they were sparse."""
    tensors = {}
    for node_type, matrix in graph.features.items():
        if isinstance(matrix, np.ndarray):
            tensors[node_type] = torch.from_numpy(matrix)
        elif layout == "dense":
            tensors[node_type] = torch.from_numpy(matrix.toarray())
        else:
            rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
            places = torch.from_numpy(np.stack([rows, matrix.indices]).astype(np.int64))
            values = torch.from_numpy(matrix.data)
            tensors[node_type] = torch.sparse_coo_tensor(places, values, matrix.shape, check_invariants=True).coalesce()
    return {node_type: x.to(device()) for node_type, x in tensors.items()}


def drop(x: Tensor, rate: float, training: bool) -> Tensor:
    """Dropout of dense rows, or of the stored values of sparse ones."""
    if not training or rate == 0.0:
        return x
    if not x.is_sparse:
        return functional.dropout(x, rate)
    values = functional.dropout(x.values(), rate)
    return torch.sparse_coo_tensor(x.indices(), values, x.shape, is_coalesced=True)


class Inputs(nn.Module):
    """Every given type's rows: its features, or a learnable table."""

    def __init__(self, node_types: list[str], graph: PlainGraph, width: int) -> None:
        super().__init__()
        self.tables = nn.ParameterDict(
            {t: nn.Parameter(torch.empty(graph.num_nodes[t], width)) for t in node_types if t not in graph.features}
        )
        for table in self.tables.values():
            nn.init.xavier_uniform_(table)
        self.widths = {t: graph.features[t].shape[1] if t in graph.features else width for t in node_types}

    def forward(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {t: self.tables[t] if t in self.tables else features[t] for t in self.widths}


class SampledInputs(nn.Module):
    """Rows of the given nodes of every given type: of its features, or of an embedding with sparse gradients."""

    def __init__(self, node_types: list[str], graph: PlainGraph, width: int) -> None:
        super().__init__()
        self.features = {t: torch.from_numpy(graph.features[t]) for t in node_types if t in graph.features}
        self.tables = nn.ModuleDict(
            {t: nn.Embedding(graph.num_nodes[t], width, sparse=True) for t in node_types if t not in graph.features}
        )
        self.widths = {t: graph.features[t].shape[1] if t in graph.features else width for t in node_types}

    def forward(self, ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {t: self.tables[t](ids[t]) if t in self.tables else self.features[t][ids[t]] for t in self.widths}


def inputs_of(node_types: list[str], graph: PlainGraph, settings: Mapping[str, Any]) -> Inputs | SampledInputs:
    """All rows, or those of a batch where the settings have batches."""
    kind = SampledInputs if settings.get("batch_size") else Inputs
    return kind(node_types, graph, settings["hidden"])


class SemanticAttention(nn.Module):
    """HAN's attention over metapaths, as in DGL's example of HAN."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, 1, bias=False))

    def forward(self, z: Tensor) -> Tensor:
        """`[num_nodes, metapaths, width]` to `[num_nodes, width]`."""
        beta = torch.softmax(self.project(z).mean(0), dim=0)
        return (beta.expand(z.shape[0], *beta.shape) * z).sum(1)


class Own(nn.Module):
    """What a relational layer adds to the sum over relations: each node's own projection, a bias, the activation."""

    def __init__(self, makes: list[str], widths: Mapping[str, int], settings: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = settings["hidden"]
        self.linear = nn.ModuleDict({t: nn.Linear(widths[t], hidden, bias=False) for t in makes})
        self.bias = nn.ParameterDict({t: nn.Parameter(torch.zeros(hidden)) for t in makes})
        self.activation = ACTIVATIONS[settings["activation"]]

    def forward(self, aggregated: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        made = {}
        for node_type, linear in self.linear.items():
            total = linear(rows[node_type]) + self.bias[node_type]
            if node_type in aggregated:
                total = total + aggregated[node_type].view_as(total)
            made[node_type] = self.activation(total)
        return made


class Relational(nn.Module):
    """The stack that R-GCN and R-GAT share in both peers; `convolve` makes a layer's module of all its relations."""

    def __init__(self, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.target, self.settings = graph.target, settings
        self.inputs = inputs_of(settings["plan"][0]["reads"], graph, settings)
        widths = self.inputs.widths
        self.convs, self.own = nn.ModuleList(), nn.ModuleList()
        for layer in settings["plan"]:
            triples = {number: graph.relations[number] for number in layer["relations"]}
            self.convs.append(self.convolve(triples, widths))
            self.own.append(Own(layer["makes"], widths, settings))
            widths = dict.fromkeys(layer["makes"], settings["hidden"])
        self.classifier = nn.Linear(settings["hidden"], graph.num_classes)

    def convolve(self, triples: Mapping[int, tuple[str, str, str]], widths: Mapping[str, int]) -> nn.Module:
        raise NotImplementedError

    def aggregate(self, conv: nn.Module, graph: Any, rows: dict[str, Tensor]) -> Mapping[str, Tensor]:
        raise NotImplementedError

    def graph_of(self, graphs: Any, index: int) -> Any:
        """What a layer aggregates over."""
        return graphs[index]

    def targets_of(self, index: int, graph: Any, rows: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """The rows of the nodes that a layer makes new ones of."""
        return rows

    def layer(self, index: int, graph: Any, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        if index:
            rows = {t: drop(x, self.settings["dropout"], self.training) for t, x in rows.items()}
        aggregated = recomputed("stage", self.settings, self.aggregate, self.convs[index], graph, rows)
        return recomputed("stage", self.settings, self.own[index], aggregated, self.targets_of(index, graph, rows))

    def forward(self, graphs: Any, features: Mapping[str, Tensor]) -> Tensor:
        rows = self.inputs(features)
        rows = {t: drop(x, self.settings["feature_dropout"], self.training) for t, x in rows.items()}
        for index in range(len(self.convs)):
            rows = recomputed("layer", self.settings, self.layer, index, self.graph_of(graphs, index), rows)
        return self.classifier(rows[self.target])
