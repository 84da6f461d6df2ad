"""Attention and mean by every implementation, beside cuSPARSE and PyG, and how near they come to a copy's rate."""

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.comparison.protocol import WorkerError
from bench.gpu.measure.copy_rate import cache_bytes, measured_rate
from bench.gpu.measure.timing import measuring, preparing, timed
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
            with preparing(run.folder):
                graph = build()
                folder = run.folder / "ops" / case
                _save(graph, folder)
                prepared = _prepared(graph)
            told = {"kind": "op", "case": case, "num_edges": graph.num_edges, "density": graph.density}
            told["beyond_the_cache"] = gathers(graph, cache)
            with measuring(run.folder):
                for (op, backward), calls in prepared.items():
                    row = told | {"op": op, "pass": "forward + backward" if backward else "forward"}
                    moved = moved_bytes(graph, backward, cache)
                    for found in (*_ours(calls, run), *_peers(torch, folder, op, backward, run)):
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


@dataclasses.dataclass(frozen=True)
class _Call:
    """A compiled op and what it takes, or why there is none."""

    implementation: str
    why: dict[str, str]
    program: Any = None
    takes: tuple[Any, ...] = ()


def _prepared(graph: SemanticGraph) -> dict[tuple[str, bool], list[_Call]]:
    """By op and whether its gradient is taken: a call of each implementation, all compiled side by side."""
    arrays = call_arrays(graph)
    names = [
        name
        for name in ORDER
        if not (name == "dense" and graph.num_sources * graph.num_targets > LARGEST_DENSE_PAIRS)
        and not (name == "segment" and graph.num_edges > MOST_SCATTERED_EDGES)
    ]
    keys = [(op, backward) for op in OP_NAMES for backward in (False, True)]
    with ThreadPoolExecutor() as pool:
        calls = {key: [_compiling(graph, *key, name, arrays, pool) for name in names] for key in keys}
        return {key: [call() for call in each] for key, each in calls.items()}


def call_arrays(graph: SemanticGraph) -> tuple[jax.Array, ...]:
    """What `bench.ops.rows.call_of` takes beside the graph: rows, logits of both ends, a cotangent."""
    rng = np.random.default_rng(0)
    z = jnp.asarray(rng.normal(size=(graph.num_sources, HEADS, WIDTH)), jnp.float32)
    src, dst = (jnp.asarray(rng.normal(size=(n, HEADS)), jnp.float32) for n in (graph.num_sources, graph.num_targets))
    return z, src, dst, jnp.asarray(rng.normal(size=(graph.num_targets, HEADS, WIDTH)), jnp.float32)


def _compiling(
    graph: SemanticGraph, op: str, backward: bool, name: str, arrays: tuple[jax.Array, ...], pool: ThreadPoolExecutor
) -> Callable[[], _Call]:
    """Begins to compile; what comes back waits for the end. Tracing is this thread's, whose platform counts."""
    obstacle = OPS[op].find(name, SemanticGraph, target_platform()).obstacle()
    if obstacle:
        return lambda: _Call(name, {"skipped": obstacle})
    try:
        placed = graph.place(OPS[op].views(name))
        program = pool.submit(jax.jit(call_of(op, name, backward)).lower(placed, *arrays).compile)
    except Exception as error:  # one implementation that fails leaves the others to be measured
        told = _told(error)
        return lambda: _Call(name, {"failed": told})

    def finished() -> _Call:
        try:
            return _Call(name, {}, program.result(), (placed, *arrays))
        except Exception as error:  # likewise
            return _Call(name, {"failed": _told(error)})

    return finished


def _ours(calls: list[_Call], run: Run) -> Iterator[dict[str, Any]]:
    for call in calls:
        row: dict[str, Any] = {"implementation": call.implementation} | call.why
        if call.program is not None:
            try:
                found = timed(lambda call=call: call.program(*call.takes), run.sizes)  # type: ignore[misc]
            except Exception as error:  # one that fails leaves the others to be measured
                yield row | {"failed": _told(error)}
                continue
            memory = call.program.memory_analysis()
            row |= {"temp_bytes": None if memory is None else int(memory.temp_size_in_bytes)} | found
        yield row


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


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
