"""Attention and mean by every implementation, beside cuSPARSE and PyG, and how near they come to a copy's rate."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.comparison.protocol import WorkerError
from bench.gpu.measure.copy_rate import cache_bytes, measured_rate
from bench.gpu.measure.timing import timed
from bench.gpu.measure.torch_process import TorchProcess
from bench.gpu.measure.worker import Run
from bench.ops.bound import gathers, moved_bytes
from bench.ops.cases import DENSITIES, HEADS, WIDTH, chain, mag_relation, of_density, star
from bench.ops.rows import call_of
from bench.ops.thresholds import SWEEP
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.registry import OPS
from jhgnn.runtime.platform import target_platform

ORDER = ("native", "bucketed", "dense", "segment")
LARGEST_DENSE_PAIRS = 2**28
MOST_SCATTERED_EDGES = 2_000_000
"""`segment` is left out above: what it takes where scatters meet is known without waiting for it."""
METAPATH = (4_057, 0.3)
"""Authors of DBLP, and the density of the longest of HAN's metapaths over them."""
OP_NAMES = ("neighbor_attention", "neighbor_mean")


def rows(run: Run, names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each graph, op, pass and implementation or peer; ours first, by graph.

    `share_of_copy` is what cannot be left out of an op's traffic (`bench.ops.bound.moved_bytes`) over its time and the
    rate of a copy; where the device's copy was not measured it is null.
    """
    cache, rate = cache_bytes(jax.devices()[0].device_kind), measured_rate(run.folder)
    with TorchProcess(run.folder, rehearsal=run.rehearsal) as torch:
        if torch.missing:
            yield {"kind": "op", "peers": "left out", "skipped": torch.missing}
        for case, build in graphs(run, names):
            graph = build()
            folder = run.folder / "ops" / case
            _save(graph, folder)
            told = {"kind": "op", "case": case, "num_edges": graph.num_edges, "density": graph.density}
            told["beyond_the_cache"] = gathers(graph, cache)
            for op in OP_NAMES:
                for backward in (False, True):
                    row = told | {"op": op, "pass": "forward + backward" if backward else "forward"}
                    moved = moved_bytes(graph, backward, cache)
                    for found in (*_ours(graph, op, backward, run), *_peers(torch, folder, op, backward, run)):
                        if "ms" in found:
                            found["moved_bytes"] = moved
                            found["share_of_copy"] = moved / (found["ms"] / 1e3) / rate if rate else None
                        yield row | found


def graphs(run: Run, names: list[str]) -> Iterator[tuple[str, Callable[[], SemanticGraph]]]:
    """The named graphs, as large as the run has them; `density` is the sweep from which thresholds are derived."""
    scale = run.sizes.op_scale
    small = round(max(scale, 0.01) * 3_000)
    named: dict[str, Callable[[], SemanticGraph]] = {
        "mag_writes": lambda: mag_relation(scale),
        "metapath": lambda: of_density(METAPATH[1], round(max(scale, 0.01) * METAPATH[0])),
        "star": lambda: star(scale),
        "chain": lambda: chain(scale),
    }
    for name in names:
        if name == "density":
            for density in DENSITIES[-run.sizes.densities :]:
                yield f"{SWEEP}{density:g}", lambda density=density: of_density(density, small)  # type: ignore[misc]
        else:
            yield name, named[name]


def _ours(graph: SemanticGraph, op: str, backward: bool, run: Run) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    z = jnp.asarray(rng.normal(size=(graph.num_sources, HEADS, WIDTH)), jnp.float32)
    src, dst = (jnp.asarray(rng.normal(size=(n, HEADS)), jnp.float32) for n in (graph.num_sources, graph.num_targets))
    cotangent = jnp.asarray(rng.normal(size=(graph.num_targets, HEADS, WIDTH)), jnp.float32)
    for name in ORDER:
        if name == "dense" and graph.num_sources * graph.num_targets > LARGEST_DENSE_PAIRS:
            continue
        if name == "segment" and graph.num_edges > MOST_SCATTERED_EDGES:
            continue
        obstacle = OPS[op].find(name, SemanticGraph, target_platform()).obstacle()
        if obstacle:
            yield {"implementation": name, "skipped": obstacle}
            continue
        try:
            placed = graph.place(OPS[op].views(name))
            lowered = jax.jit(call_of(op, name, backward)).lower(placed, z, src, dst, cotangent)
            program = lowered.compile()
            found = timed(lambda program=program, placed=placed: program(placed, z, src, dst, cotangent), run.sizes)  # type: ignore[misc]
        except Exception as error:  # one implementation that fails leaves the others to be measured
            lines = str(error).strip().splitlines() or [""]
            yield {"implementation": name, "failed": f"{type(error).__name__}: {lines[0][:300]}"}
            continue
        memory = program.memory_analysis()
        temporaries = None if memory is None else int(memory.temp_size_in_bytes)
        yield {"implementation": name, "temp_bytes": temporaries} | found


def _peers(torch: TorchProcess, folder: Path, op: str, backward: bool, run: Run) -> Iterator[dict[str, Any]]:
    if torch.missing:
        return
    peers = ("pyg",) if op == "neighbor_attention" else ("cusparse", "pyg")
    for peer in peers:
        try:
            yield {"implementation": peer} | torch.ask(
                "op",
                folder=str(folder),
                peer=peer,
                op=op,
                backward=backward,
                samples=run.sizes.samples,
                sample_s=run.sizes.sample_s,
            )
        except WorkerError as error:
            yield {"implementation": peer, "failed": str(error)}


def _save(graph: SemanticGraph, folder: Path) -> None:
    """For PyTorch: compressed in-edges, their sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    indptr, indices = (np.asarray(each) for each in (graph.incoming.indptr, graph.incoming.indices))
    sizes = np.array([graph.num_sources, graph.num_targets])
    np.savez(folder / "graph.npz", indptr=indptr, indices=indices, sizes=sizes)
