"""The training loop of both peers: Adam with coupled weight decay, early stopping on the validation loss."""

import copy
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.comparison.f1 import f1_scores
from bench.comparison.graph_folder import PlainGraph
from bench.peers.shared import device
from bench.peers.variants import Built


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def loss_of(logits: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
    if labels.ndim == 1:
        return functional.cross_entropy(logits[ids], labels[ids])
    return functional.binary_cross_entropy_with_logits(logits[ids], labels[ids].to(logits.dtype))


class Trainer:
    """One model being trained."""

    def __init__(self, built: Built, graph: PlainGraph, settings: Mapping[str, Any]) -> None:
        self.built, self.settings, self.numpy_labels = built, settings, graph.labels
        self.labels = torch.from_numpy(graph.labels).to(device())
        self.splits = {split: torch.from_numpy(ids).to(device()) for split, ids in graph.splits.items()}
        self.optimizer = torch.optim.Adam(
            built.model.parameters(), lr=settings["learning_rate"], weight_decay=settings["weight_decay"]
        )

    def epoch(self) -> dict[str, float]:
        """One update; seconds of its parts."""
        self.built.model.train()
        synchronize()
        times = [time.perf_counter()]
        loss = loss_of(self.built.logits(), self.labels, self.splits["train"])
        synchronize()
        times.append(time.perf_counter())
        self.optimizer.zero_grad()
        loss.backward()
        synchronize()
        times.append(time.perf_counter())
        self.optimizer.step()
        synchronize()
        times.append(time.perf_counter())
        forward, backward, update = np.diff(times).tolist()
        return {"epoch_s": times[-1] - times[0], "forward_s": forward, "backward_s": backward, "update_s": update}

    def evaluate(self) -> tuple[np.ndarray, float]:
        """Logits of all targets, and the validation loss."""
        self.built.model.eval()
        with torch.no_grad():
            logits = self.built.logits()
            loss = float(loss_of(logits, self.labels, self.splits["val"]))
        return logits.cpu().numpy(), loss

    def train(self, target_f1: float) -> dict[str, Any]:
        """Trains by the recipe; test scores of the epoch with the best validation loss."""
        best_loss, waited, best_epoch, reached, done = float("inf"), 0, 0, None, 0
        best_logits = np.zeros(0)
        steps_s: list[float] = []
        for epoch in range(1, self.settings["epochs"] + 1):
            if 0 < self.settings["patience"] <= waited:
                break
            steps_s.append(self.epoch()["epoch_s"])
            logits, loss = self.evaluate()
            done = epoch
            if (
                reached is None
                and f1_scores(logits, self.numpy_labels, self.splits["val"].cpu().numpy())[0] >= target_f1
            ):
                reached = epoch
            waited += 1
            if loss < best_loss:
                best_loss, best_logits, best_epoch, waited = loss, copy.copy(logits), epoch, 0
        micro, macro = f1_scores(best_logits, self.numpy_labels, self.splits["test"].cpu().numpy())
        return {
            "test_micro_f1": micro,
            "test_macro_f1": macro,
            "best_epoch": best_epoch,
            "epochs": done,
            "epochs_to_target": reached,
        }
