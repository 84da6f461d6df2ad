"""PyTorch's side of a run, in a process without JAX: cuSPARSE through `torch.sparse`, PyG's ops and epochs."""

import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.nn import GATConv, SimpleConv

from bench.comparison.graph_folder import read_graph
from bench.comparison.protocol import Answer, serve
from bench.peers.shared import device
from bench.peers.training import loss_of, synchronize
from bench.peers.variants import applicable, build, pyg_variants

HEADS, WIDTH = 8, 8


class OpGraph:
    """One graph with its features and the modules on it; projections are the identity, so that only NA is timed."""

    def __init__(self, folder: str) -> None:
        with np.load(Path(folder) / "graph.npz") as file:
            indptr, indices, sizes = (torch.from_numpy(file[name].astype(np.int64)) for name in file_names())
        self.num_src, self.num_dst = sizes.tolist()
        degrees = indptr.diff()
        receivers = torch.repeat_interleave(torch.arange(self.num_dst), degrees)
        self.edge_index = torch.stack([indices, receivers]).to(device())
        torch.manual_seed(0)
        width = HEADS * WIDTH
        self.x = torch.randn(self.num_src, width, device=device(), requires_grad=True)
        self.x_dst = torch.randn(self.num_dst, width, device=device(), requires_grad=True)
        self.cotangent = torch.randn(self.num_dst, width, device=device())
        values = 1.0 / degrees[receivers].to(torch.float32)
        shape = (self.num_dst, self.num_src)
        matrix = torch.sparse_coo_tensor(torch.stack([receivers, indices]), values, shape).coalesce()
        self.incoming = matrix.to_sparse_csr().to(device())
        self.outgoing = matrix.t().coalesce().to_sparse_csr().to(device())
        self.gat = GATConv((width, width), WIDTH, HEADS, add_self_loops=False, bias=False).to(device())
        self.gat.lin_src = self.gat.lin_dst = torch.nn.Identity()
        self.mean = SimpleConv(aggr="mean")

    def forward(self, op: str) -> Tensor:
        size = (self.num_src, self.num_dst)
        module = self.gat if op == "neighbor_attention" else self.mean
        return module((self.x, self.x_dst), self.edge_index, size=size)

    def call(self, peer: str, op: str, backward: bool) -> Callable[[], object]:
        """What is timed; cuSPARSE's gradient is a product with the transposed matrix, which is kept."""
        if peer == "cusparse":
            if backward:
                return lambda: (self.incoming @ self.x.detach(), self.outgoing @ self.cotangent)
            return lambda: self.incoming @ self.x.detach()

        def with_gradients() -> None:
            self.x.grad = self.x_dst.grad = None
            self.forward(op).backward(self.cotangent)

        def alone() -> Tensor:
            with torch.no_grad():
                return self.forward(op)

        return with_gradients if backward else alone


def file_names() -> tuple[str, ...]:
    """Of what `op_times` saves."""
    return "indptr", "indices", "sizes"


@functools.lru_cache(maxsize=1)
def op_graph(folder: str) -> OpGraph:
    return OpGraph(folder)


def op(folder: str, peer: str, op: str, backward: bool, samples: int, sample_s: float) -> Answer:
    """Milliseconds of one op."""
    call = op_graph(folder).call(peer, op, backward)
    return timed(call, samples, sample_s) | facts()


def timed(call: Callable[[], object], samples: int, sample_s: float) -> Answer:
    """As `bench.gpu.measure.timing.timed`: a sample starts its calls one after the other and waits once."""
    for _ in range(3):
        start = time.perf_counter()
        call()
        synchronize()
        once = time.perf_counter() - start
    calls = max(1, min(1000, round(sample_s / max(once, 1e-7))))
    ms = []
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        ms.append(1e3 * (time.perf_counter() - start) / calls)
    spread = {"ms_least": min(ms), "ms_most": max(ms), "samples": len(ms), "calls_a_sample": calls}
    return {"ms": statistics.median(ms)} | spread


class Training:
    """One model of PyG's on one exported graph."""

    def __init__(self, folder: str, settings: str, variant: str) -> None:
        graph, self.settings = read_graph(Path(folder)), json.loads(Path(settings).read_text(encoding="utf-8"))
        chosen = pyg_variants()[self.settings["name"]][variant]
        if not applicable(chosen, graph):
            raise ValueError(f"{variant} has nothing to differ in on {graph.name}")
        torch.manual_seed(0)
        self.built = build(chosen, graph, self.settings, chosen.graphs(graph, self.settings))
        self.labels = torch.from_numpy(graph.labels).to(device())
        self.ids = torch.from_numpy(graph.splits["train"]).to(device())
        rate, decay = self.settings["learning_rate"], self.settings["weight_decay"]
        self.optimizer = torch.optim.Adam(self.built.model.parameters(), lr=rate, weight_decay=decay)

    def epoch(self) -> Tensor:
        """One update without a wait within."""
        self.built.model.train()
        loss = loss_of(self.built.logits(), self.labels, self.ids)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def epochs(folder: str, settings: str, variant: str, samples: int, sample_s: float) -> Answer:
    """Milliseconds of an epoch: waiting after each, and of several in a row."""
    training = Training(folder, settings, variant)
    in_a_row = timed(training.epoch, samples, sample_s)
    alone = timed(training.epoch, samples, 0.0)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    row = {"waiting": alone, "in_a_row": in_a_row, "loss": float(training.epoch()), "peak_bytes": peak}
    return row | facts()


def facts() -> Answer:
    """The versions and the device that answered."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"torch": torch.__version__, "pyg": torch_geometric.__version__, "device": name}


if __name__ == "__main__":
    torch.zeros(1, device=device())  # a device starts for seconds, which are not those of the first request
    serve({"op": op, "epochs": epochs})
