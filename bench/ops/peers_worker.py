"""DGL's and PyG's kernels in a process of their own, for `bench.ops`: JSON requests on stdin, one answer a line.

{"load": FOLDER} reads `src.npy`, `dst.npy` and sizes; {"peer": PEER, "op": OP, "backward": BOOL} times one call, and
with "peak": true tells its memory instead.
Runs with the interpreter of the peers' environment.
"""
# ruff: noqa: E402 -- DGL reads its back end from the environment when it is imported

import ctypes
import gc
import json
import os
import sys
import time
import warnings

os.environ["DGLBACKEND"] = "pytorch"
warnings.filterwarnings("ignore")

import dgl
import numpy as np
import torch
import torch_geometric
from dgl import function as fn
from dgl.nn.pytorch import GATConv as DglGat
from torch_geometric.nn import GATConv as PygGat
from torch_geometric.nn import SimpleConv

HEADS, WIDTH = 8, 8


class Case:
    """One graph, its features and the modules on it; projections are the identity, so that only NA is timed."""

    def __init__(self, folder: str) -> None:
        src, dst = (torch.from_numpy(np.load(f"{folder}/{name}.npy").astype(np.int64)) for name in ("src", "dst"))
        with open(f"{folder}/sizes.json") as file:
            self.num_src, self.num_dst = json.load(file)
        self.graph = dgl.create_block((src, dst), num_src_nodes=self.num_src, num_dst_nodes=self.num_dst)
        self.graph.create_formats_()
        self.edge_index = torch.stack([src, dst])
        torch.manual_seed(0)
        self.x = torch.randn(self.num_src, HEADS * WIDTH, requires_grad=True)
        self.x_dst = torch.randn(self.num_dst, HEADS * WIDTH, requires_grad=True)
        self.cotangent = torch.randn(self.num_dst, HEADS * WIDTH)
        self.dgl_gat = DglGat((HEADS * WIDTH, HEADS * WIDTH), WIDTH, HEADS, bias=False, allow_zero_in_degree=True)
        self.dgl_gat.fc_src = self.dgl_gat.fc_dst = torch.nn.Identity()
        wide = (HEADS * WIDTH, HEADS * WIDTH)
        self.pyg_gat = PygGat(wide, WIDTH, HEADS, add_self_loops=False, bias=False)
        self.pyg_gat.lin_src = self.pyg_gat.lin_dst = torch.nn.Identity()
        self.pyg_mean = SimpleConv(aggr="mean")

    def call(self, peer: str, op: str) -> torch.Tensor:
        if (peer, op) == ("dgl", "neighbor_attention"):
            return self.dgl_gat(self.graph, (self.x, self.x_dst)).reshape(self.num_dst, -1)
        if (peer, op) == ("dgl", "neighbor_mean"):
            with self.graph.local_scope():
                self.graph.srcdata["h"] = self.x
                self.graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "h"))
                return self.graph.dstdata["h"]
        if op == "neighbor_attention":
            return self.pyg_gat((self.x, self.x_dst), self.edge_index, size=(self.num_src, self.num_dst))
        return self.pyg_mean((self.x, self.x_dst), self.edge_index, size=(self.num_src, self.num_dst))

    def time(self, peer: str, op: str, backward: bool) -> float:
        """Seconds of one call."""
        self.x.grad = self.x_dst.grad = None
        start = time.perf_counter()
        if backward:
            self.call(peer, op).backward(self.cotangent)
        else:
            with torch.no_grad():
                self.call(peer, op)
        return time.perf_counter() - start

    def peak_bytes(self, peer: str, op: str, backward: bool) -> int:
        """What one call adds to the process; what earlier calls left to the allocator is given back first."""
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # VmHWM counts anew
        before = status_kib("VmRSS")
        self.time(peer, op, backward)
        return 1024 * max(0, status_kib("VmHWM") - before)


def status_kib(key: str) -> int:
    """A field of this process's status, in KiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key))


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    versions = {"dgl": dgl.__version__, "pyg": torch_geometric.__version__, "torch": torch.__version__}
    print(json.dumps(versions), flush=True)
    case: Case | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "load" in request:
            case = None
            case = Case(request["load"])
            print(json.dumps({}), flush=True)
        else:
            assert case is not None
            measure = case.peak_bytes if request.get("peak") else case.time
            print(json.dumps(measure(request["peer"], request["op"], request["backward"])), flush=True)


if __name__ == "__main__":
    main()
