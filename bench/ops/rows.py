"""The rows of `bench.ops`: every op on every case, measured."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.ops.bound import bound_ms
from bench.ops.cases import HEADS, WIDTH
from bench.ops.contenders import Contender, compiled, measure
from bench.ops.order import NUM_EDGES, SOURCES, orders
from bench.ops.peers import Peers, peer
from bench.semantic_graph_build import read_graphs
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.ops.registry import OPS
from jhgnn.ops.sparse_matmul import sparse_matmul
from jhgnn.runtime.platform import target_platform

LARGEST_PER_EDGE_BYTES = 600 * 2**20
"""Implementations that hold [num_edges, 64] floats are left out above this: they keep several such arrays."""
LARGEST_DENSE_PAIRS = 2**28


def aggregation(op: str, graphs: list[SemanticGraph], backward: bool) -> dict[str, Contender]:
    """Our implementations of one op over all graphs of a case."""
    rng = np.random.default_rng(0)
    contenders: dict[str, Contender] = {}
    arrays = []
    for graph in graphs:
        z = jnp.asarray(rng.normal(size=(graph.num_sources, HEADS, WIDTH)), jnp.float32)
        logits = [jnp.asarray(rng.normal(size=(n, HEADS)), jnp.float32) for n in (graph.num_sources, graph.num_targets)]
        cotangent = jnp.asarray(rng.normal(size=(graph.num_targets, HEADS, WIDTH)), jnp.float32)
        arrays.append((z, *logits, cotangent))
    num_edges = sum(graph.num_edges for graph in graphs)
    for name in OPS[op].names(SemanticGraph, target_platform()):
        if name == "segment" and num_edges * HEADS * WIDTH * 4 > LARGEST_PER_EDGE_BYTES:
            continue
        if name == "dense" and sum(g.num_sources * g.num_targets for g in graphs) > LARGEST_DENSE_PAIRS:
            continue
        if OPS[op].find(name, SemanticGraph).obstacle():
            continue
        placed = [graph.place(OPS[op].views(name)) for graph in graphs]
        contenders[name] = compiled(_over_graphs(op, name, backward), placed, arrays)
    return contenders


def _over_graphs(op: str, implementation: str, backward: bool) -> Callable[..., Any]:
    one = call_of(op, implementation, backward)
    return lambda graphs, arrays: [one(graph, *own) for graph, own in zip(graphs, arrays, strict=True)]


def call_of(op: str, implementation: str, backward: bool) -> Callable[..., Any]:
    """The op on a graph, from (graph, z, src, dst, cotangent); with its gradients if `backward`."""

    def run(graph: Any, z: jax.Array, src: jax.Array, dst: jax.Array, cotangent: jax.Array) -> Any:
        if op == "neighbor_attention":
            function: Callable[..., jax.Array] = lambda *primals: neighbor_attention(  # noqa: E731
                graph, *primals, implementation=implementation
            )
            primals: tuple[jax.Array, ...] = (z, src, dst)
        else:
            function = lambda x: neighbor_mean(graph, x, implementation=implementation)  # noqa: E731
            primals, cotangent = (z.reshape(len(z), -1),), cotangent.reshape(len(cotangent), -1)
        if not backward:
            return function(*primals)
        out, vjp = jax.vjp(function, *primals)
        return out, vjp(cotangent)

    return run


def aggregation_rows(
    name: str, graphs: list[SemanticGraph], peers: Peers | None, options: argparse.Namespace, measured: dict[str, float]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        if peers is not None and len(graphs) == 1:
            peers.load(graphs[0], Path(folder))
        for op in ("neighbor_attention", "neighbor_mean"):
            for backward in (False, True):
                contenders = aggregation(op, graphs, backward)
                if peers is not None and len(graphs) == 1:
                    contenders["dgl"] = peer(peers, "dgl", op, backward)
                    if graphs[0].num_edges * HEADS * WIDTH * 4 <= LARGEST_PER_EDGE_BYTES:
                        contenders["pyg"] = peer(peers, "pyg", op, backward)
                results = measure(contenders, options.rounds, options.budget_s)
                bound = sum(bound_ms(graph, op, backward, measured) for graph in graphs)
                row: dict[str, object] = {
                    "case": name,
                    "op": op,
                    "pass": "forward + backward" if backward else "forward",
                    "num_edges": sum(graph.num_edges for graph in graphs),
                    "density": round(float(np.mean([graph.density for graph in graphs])), 6),
                    "bound_ms": round(bound, 3),
                    "results": results,
                }
                if "native" in results:
                    row["native_share_of_bound"] = round(bound / float(str(results["native"]["ms"])), 3)
                shown = {key: result["ms"] for key, result in results.items()}
                print(f"{name:12s} {op:18s} {row['pass']:18s} bound {bound:8.2f} ms  {shown}", flush=True)
                rows.append(row)
    return rows


def feature_rows(data_root: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    """sparse_matmul of real bag-of-words features, beside the dense product of the same matrix."""
    rows: list[dict[str, object]] = []
    for dataset, graph in read_graphs(data_root).items():
        for node_type, features in graph.features.items():
            if not hasattr(features, "tocsr") or not named(options, f"{dataset}_{node_type}"):
                continue
            matrix = SparseFeatures.from_scipy(features)
            weight = jnp.asarray(np.random.default_rng(0).normal(size=(matrix.num_columns, 64)), jnp.float32)
            cotangent = jnp.ones((matrix.num_rows, 64), jnp.float32)

            contenders = {
                name: compiled(_sparse_product(name), matrix.place(), weight, cotangent)
                for name in OPS["sparse_matmul"].names(SparseFeatures, target_platform())
                if not OPS["sparse_matmul"].find(name, SparseFeatures).obstacle()
            }
            if matrix.num_rows * matrix.num_columns <= LARGEST_DENSE_PAIRS:
                dense = jnp.asarray(features.toarray(), jnp.float32)  # type: ignore[union-attr]
                contenders["dense"] = compiled(lambda x, w, g: (x @ w, x.T @ g), dense, weight, cotangent)
            row: dict[str, object] = {
                "case": f"{dataset}_{node_type}",
                "op": "sparse_matmul",
                "pass": "forward + backward",
                "num_edges": matrix.num_values,
                "density": round(matrix.density, 6),
                "results": measure(contenders, options.rounds, options.budget_s),
            }
            print(row["case"], row["op"], {k: r["ms"] for k, r in row["results"].items()}, flush=True)  # type: ignore[attr-defined]
            rows.append(row)
    return rows


def _sparse_product(implementation: str) -> Callable[..., Any]:
    def run(matrix: SparseFeatures, weight: jax.Array, cotangent: jax.Array) -> Any:
        out, vjp = jax.vjp(lambda w: sparse_matmul(matrix, w, implementation=implementation), weight)
        return out, vjp(cotangent)

    return run


def scatter_watch(options: argparse.Namespace) -> list[dict[str, object]]:
    """Keeps watch over JAX issues 39959 and 38806: sums into few segments by scatter, and over sorted segments."""
    num_values, num_segments = 200_000, 16
    rng = np.random.default_rng(0)
    ids = jnp.asarray(np.sort(rng.integers(0, num_segments, num_values)), jnp.int32)
    values = jnp.ones((num_values, 8), jnp.float32)
    contenders = {
        "scatter_add": compiled(lambda i, v: jnp.zeros((num_segments, 8)).at[i].add(v), ids, values),
        "sorted_segment_sum": compiled(
            lambda i, v: jax.ops.segment_sum(v, i, num_segments, indices_are_sorted=True), ids, values
        ),
    }
    results = measure(contenders, options.rounds, options.budget_s)
    return [
        {"case": "few_segments", "op": "scatter_watch", "pass": "forward", "num_edges": num_values, "results": results}
    ]


def order_rows(options: argparse.Namespace) -> list[dict[str, object]]:
    """The mean over four semantic graphs, grouped by source type and not."""
    rows: list[dict[str, object]] = []
    for name, num_sources in SOURCES.items():
        if named(options, name):
            contenders = {order: Contender(run, {}) for order, run in orders(num_sources, "native").items()}
            results = measure(contenders, 3 * options.rounds, options.budget_s)
            print(name, {key: result["ms"] for key, result in results.items()}, flush=True)
            row = {"case": name, "op": "order of semantic graphs", "pass": "forward", "num_edges": 4 * NUM_EDGES}
            rows.append(row | {"results": results})
    return rows


def named(options: argparse.Namespace, name: str) -> bool:
    return not options.only or any(part in name for part in options.only)
