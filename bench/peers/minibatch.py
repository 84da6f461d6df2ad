"""Mini-batch training of both peers: batches from their loaders, sparse Adam for embeddings, times of each batch."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from bench.comparison.graph_folder import PlainGraph
from bench.peers.training import loss_of

VARIANTS = {"in turn": 0, "2 workers": 2}
"""How batches are prepared -> worker processes; `in turn`: on the training thread, when they are needed."""


def modules(framework: str) -> Any:
    if framework == "dgl":
        from bench.peers import dgl_minibatch

        return dgl_minibatch
    from bench.peers import pyg_minibatch

    return pyg_minibatch


class MinibatchTrainer:
    """One model being trained on sampled batches."""

    def __init__(self, framework: str, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        self.used, self.settings = modules(framework), settings
        self.sampled, self.train_ids = self.used.prepare(graph, settings), torch.from_numpy(graph.splits["train"])
        self.model = self.used.MODELS[settings["name"]](graph, settings)
        self.labels = torch.from_numpy(graph.labels)
        sparse = list(self.model.inputs.parameters())
        dense = [each for each in self.model.parameters() if not any(each is table for table in sparse)]
        self.optimizers = [torch.optim.Adam(dense, lr=settings["learning_rate"], weight_decay=settings["weight_decay"])]
        if sparse:
            self.optimizers.append(torch.optim.SparseAdam(sparse, lr=settings["learning_rate"]))

    def load(self, variant: str) -> None:
        """Starts a loader, in place of the one before."""
        self.batches = self.used.loader(self.sampled, self.train_ids, self.settings, VARIANTS[variant])

    def batch(self) -> dict[str, float]:
        """Trains on one batch; seconds, of which waiting for it, and its loss."""
        self.model.train()
        start = time.perf_counter()
        graphs, ids, targets = next(self.batches)
        ready = time.perf_counter()
        loss = loss_of(self.model(graphs, ids)[: len(targets)], self.labels[targets], torch.arange(len(targets)))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        done = time.perf_counter()
        return {"batch_s": done - start, "wait_s": ready - start, "loss": float(loss), "targets": len(targets)}

    @property
    def params(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())
