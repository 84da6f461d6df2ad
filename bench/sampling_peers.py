"""The peers' side of `bench.sampling`: DGL and PyG samplers on the same graph, in their own interpreter.

Started by `bench.sampling` with the graph's folder and the number of threads. Reads one JSON request a line on stdin
and answers one: milliseconds of each batch, sampled edges and distinct input vertices. Does not import jhgnn.
"""

import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402

FOLDER, THREADS = sys.argv[1], int(sys.argv[2])
LISTING = json.loads(Path(FOLDER, "graph.json").read_text())
SEED_TYPE = LISTING["seed_type"]


def relations() -> Iterator[tuple[tuple[str, ...], torch.Tensor, torch.Tensor]]:
    """(source, name, target), in-edges CSR."""
    for number, triple in enumerate(LISTING["relations"]):
        indptr, senders = (
            np.load(f"{FOLDER}/{number}.{part}.npy", allow_pickle=False) for part in ("indptr", "senders")
        )
        yield tuple(triple), torch.from_numpy(indptr), torch.from_numpy(senders.astype(np.int64))


def dgl_graph(width: str) -> Any:
    import dgl

    data = {triple: ("csc", (indptr, senders, torch.tensor([]))) for triple, indptr, senders in relations()}
    graph = dgl.heterograph(data, LISTING["num_nodes"])
    graph = graph.int() if width == "int32" else graph
    return graph.formats(["csc", "csr"])


def dgl_fan_out(request: dict, seeds: np.ndarray) -> Iterator[tuple[float, int, int]]:
    """NeighborSampler, both of its paths: `dgl` fused sampling and deduplication, `dgl_unfused` in two passes."""
    import dgl

    graph = GRAPHS.setdefault(("dgl", request["width"]), None) or dgl_graph(request["width"])
    GRAPHS["dgl", request["width"]] = graph
    sampler = dgl.dataloading.NeighborSampler(request["fan_out"][::-1], fused=request["fused"])
    dtype = torch.int32 if request["width"] == "int32" else torch.int64
    for batch in seeds:
        ids = {SEED_TYPE: torch.from_numpy(batch).to(dtype)}
        start = time.perf_counter()
        inputs, _, blocks = sampler.sample_blocks(graph, ids)
        spent = time.perf_counter() - start
        yield spent, sum(block.num_edges() for block in blocks), sum(len(ids) for ids in inputs.values())


def dgl_walks(request: dict, seeds: np.ndarray) -> Iterator[tuple[float, int, int]]:
    """RandomWalkNeighborSampler for each metapath, as DGL's own HAN example samples it."""
    import dgl

    graph = GRAPHS.setdefault(("dgl", "int64"), None) or dgl_graph("int64")
    GRAPHS["dgl", "int64"] = graph
    samplers = [
        dgl.sampling.RandomWalkNeighborSampler(
            graph, 1, 0.0, request["num_walks"], request["num_neighbors"], [tuple(triple) for triple in metapath]
        )
        for metapath in request["metapaths"]
    ]
    for batch in seeds:
        ids = torch.from_numpy(batch).to(torch.int64)
        start = time.perf_counter()
        blocks = [dgl.to_block(sampler(ids), ids) for sampler in samplers]
        spent = time.perf_counter() - start
        inputs = np.unique(np.concatenate([block.srcdata[dgl.NID].numpy() for block in blocks]))
        yield spent, sum(block.num_edges() for block in blocks), len(inputs)


def pyg_fan_out(request: dict, seeds: np.ndarray) -> Iterator[tuple[float, int, int]]:
    """NeighborLoader; its way to use several threads is that many worker processes."""
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import NeighborLoader

    data = GRAPHS.get(("pyg",))
    if data is None:
        data = HeteroData()
        for name, count in LISTING["num_nodes"].items():
            data[name].num_nodes = count
        for triple, indptr, senders in relations():
            receivers = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
            data[triple].edge_index = torch.stack([senders, receivers])
        GRAPHS[("pyg",)] = data
    key = ("pyg loader", tuple(request["fan_out"]), seeds.shape)
    if key not in GRAPHS:
        GRAPHS[key] = NeighborLoader(
            data,
            num_neighbors=dict.fromkeys(data.edge_types, request["fan_out"]),
            input_nodes=(SEED_TYPE, torch.from_numpy(seeds.reshape(-1)).to(torch.int64)),
            batch_size=seeds.shape[1],
            num_workers=0 if THREADS == 1 else THREADS,
            persistent_workers=THREADS > 1,
            is_sorted=True,
        )
    start = time.perf_counter()
    for batch in GRAPHS[key]:
        spent = time.perf_counter() - start
        edges = sum(batch[triple].edge_index.shape[1] for triple in batch.edge_types)
        yield spent, edges, sum(batch[name].n_id.numel() for name in batch.node_types)
        start = time.perf_counter()


GRAPHS: dict = {}
SAMPLERS = {"dgl": dgl_fan_out, "dgl_walks": dgl_walks, "pyg": pyg_fan_out}


def versions() -> dict:
    import dgl
    import torch_geometric
    import torch_geometric.typing as typing

    return {
        "dgl": dgl.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "pyg_lib": bool(typing.WITH_PYG_LIB),
        "torch_sparse": bool(typing.WITH_TORCH_SPARSE),
    }


def main() -> None:
    torch.set_num_threads(THREADS)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print; only answers go to the pipe
    print(json.dumps(versions()), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        seeds = np.array(request["seeds"], np.int32)
        gc.collect()
        rows = list(SAMPLERS[request["sampler"]](request, seeds))
        spent, edges, inputs = zip(*rows, strict=True)
        print(json.dumps({"ms": [1e3 * s for s in spent], "edges": edges, "inputs": inputs}), file=answers, flush=True)


if __name__ == "__main__":
    main()
