"""Mini-batches in DGL: `NeighborSampler` and `RandomWalkNeighborSampler` under `DataLoader`, blocks for layers."""

from collections.abc import Iterator, Mapping
from typing import Any

import dgl
from dgl.dataloading import DataLoader, NeighborSampler
from torch import Tensor, nn

from bench.comparison.graph_folder import PlainGraph
from bench.peers.dgl_models import HAN, RGAT, RGCN, heterograph
from bench.peers.shared import Relational, drop


class MetapathWalks:
    """HAN's sampler as in DGL's example: the most visited ends of random walks along each metapath."""

    def __init__(self, whole: dgl.DGLGraph, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        self.samplers = []
        for steps in graph.metapaths.values():
            path = [(graph.relations[step][0], f"r{step}", graph.relations[step][2]) for step in steps]
            self.samplers.append(
                dgl.sampling.RandomWalkNeighborSampler(whole, 1, 0.0, settings["walks"], settings["fan_out"][0], path)
            )
        self.target = graph.target

    def sample(self, whole: dgl.DGLGraph, seeds: Tensor) -> tuple[dict[str, Tensor], Tensor, list[dgl.DGLGraph]]:
        seeds = seeds[self.target] if isinstance(seeds, Mapping) else seeds
        blocks = [dgl.to_block(sampler(seeds), seeds) for sampler in self.samplers]
        return {}, seeds, blocks


class WalkedHAN(HAN):
    """HAN on the blocks of walks, each with rows of its own; the semantic attention is over the batch's targets."""

    def forward(self, graphs: list[dgl.DGLGraph], features: Mapping[str, Tensor]) -> Tensor:
        rows = [self.inputs({self.target: block.srcdata[dgl.NID]})[self.target] for block in graphs]
        return self.fused(graphs, [drop(x, self.settings["feature_dropout"], self.training) for x in rows])


class OnBlocks(Relational):
    """The full-batch layers on blocks: a type's first rows are those of the block's targets; features are by ids."""

    def targets_of(self, index: int, graph: dgl.DGLGraph, rows: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """Of the types that the layer makes; a block has relations into others, which `HeteroGraphConv` then skips."""
        return {t: rows[t][: graph.num_dst_nodes(t)] for t in self.own[index].linear}

    def aggregate(self, conv: nn.Module, graph: dgl.DGLGraph, rows: dict[str, Tensor]) -> Mapping[str, Tensor]:
        index = next(place for place, other in enumerate(self.convs) if other is conv)
        return conv(graph, (rows, self.targets_of(index, graph, rows)))


class SampledRGCN(OnBlocks, RGCN):
    """HeteroGraphConv of GraphConv on blocks."""


class SampledRGAT(OnBlocks, RGAT):
    """HeteroGraphConv of GATConv on blocks."""


MODELS = {"han": WalkedHAN, "rgcn": SampledRGCN, "rgat": SampledRGAT}


Sampled = tuple[dgl.DGLGraph, PlainGraph]


def prepare(graph: PlainGraph, settings: Mapping[str, Any]) -> Sampled:
    """The graph with its formats built."""
    whole = heterograph(graph).formats(["csc", "csr"] if settings["name"] == "han" else ["csc"])
    whole.create_formats_()
    return whole, graph


def loader(
    sampled: Sampled, train_ids: Tensor, settings: Mapping[str, Any], num_workers: int
) -> Iterator[tuple[list[dgl.DGLGraph], dict[str, Tensor], Tensor]]:
    """Blocks, ids of the input rows, and target ids of each batch, without end."""
    whole, graph = sampled
    if settings["name"] == "han":
        sampler: Any = MetapathWalks(whole, graph, settings)
    else:
        sampler = NeighborSampler(settings["fan_out"][::-1])
    batches = DataLoader(
        whole,
        {graph.target: train_ids},
        sampler,
        batch_size=settings["batch_size"],
        shuffle=True,
        num_workers=num_workers,
    )
    while True:
        for inputs, outputs, blocks in batches:
            yield blocks, inputs, outputs[graph.target] if isinstance(outputs, Mapping) else outputs
