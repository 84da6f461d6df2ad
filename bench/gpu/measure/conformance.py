"""Whether ops give on the device what float64 gives edge by edge: `native` and `bucketed`, forwards and backwards.

Graphs, references and tolerances are those of the tests (`tests/ops`), which run the same on CPUs.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.gpu.measure.timing import preparing
from bench.gpu.measure.worker import Run
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import VIEWS, SparseFeatures
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_max import neighbor_max
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.ops.neighbor_sum import neighbor_sum
from jhgnn.ops.registry import OPS
from jhgnn.ops.sparse_matmul import sparse_matmul
from jhgnn.runtime.platform import target_platform
from tests.ops import reference, tolerances
from tests.ops.cases import AS_TABLES, GRAPHS, HUBS, as_table, mean_size

IMPLEMENTATIONS = ("native", "bucketed")
FIRST = ("bipartite", "hub_in", "hub_out", "isolated", "parallel", "tiled")
"""The graphs that have shown most faults: hubs both ways, rows without entries, several tiles."""
LARGE = "tiled"
RATE, SEED = 0.4, 11
"""Of dropout of edges in attention."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One op by one implementation on one graph."""

    op: str
    implementation: str
    graph: str
    takes: type = SemanticGraph
    heads: int = 3
    width: int = 5
    dtype: str = "float32"


def rows(run: Run, part: str, implementations: Sequence[str] = IMPLEMENTATIONS) -> Iterator[dict[str, Any]]:
    """A row a check: the largest error of its results over what is allowed, at most 1 where it conforms.

    Runs while other items of the group compile; a kernel that breaks the process's device ends no checks but its own,
    where implementations are checked by processes of their own.
    """
    with preparing(run.folder):
        yield from _rows(run, part, implementations)


def _rows(run: Run, part: str, implementations: Sequence[str]) -> Iterator[dict[str, Any]]:
    for check in first_checks() if part == "first" else rest_checks(run):
        if check.implementation not in implementations:
            continue
        if run.sizes.few_graphs and check.graph == LARGE:
            continue
        obstacle = obstacle_of(check)
        row = {"kind": "conformance"} | {k: v for k, v in dataclasses.asdict(check).items() if k != "takes"}
        row["takes"] = check.takes.__name__
        yield row | ({"skipped": obstacle} if obstacle else outcome(check))


def outcome(check: Check) -> dict[str, Any]:
    """What a check found; an error of it is told and ends none of the others."""
    try:
        over = shares(check)
    except Exception as error:  # a kernel that cannot be started is a finding, and the next ones still count
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return {"ok": False, "error": f"{type(error).__name__}: {lines[0][:300]}"}
    worst = max(over, key=lambda name: over[name] if np.isfinite(over[name]) else np.inf)
    return {"ok": all(share <= 1.0 for share in over.values()), "worst": worst, "error_over_allowed": over[worst]}


def first_checks() -> Iterator[Check]:
    """The whole-graph ops of a training step, on the graphs that find most."""
    for graph in FIRST:
        for implementation in IMPLEMENTATIONS:
            for op in ("neighbor_attention", "neighbor_mean"):
                yield Check(op, implementation, graph)


def rest_checks(run: Run) -> Iterator[Check]:
    """Sampled tables, weighted sums, sparse products, the other graphs, widths and bfloat16."""
    for implementation in IMPLEMENTATIONS:
        for graph in ("bipartite", "hub_in"):
            for op in ("neighbor_attention", "neighbor_mean"):
                yield Check(op, implementation, graph, NeighborTable)
            yield Check("neighbor_sum", implementation, graph)
        yield Check("sparse_matmul", implementation, "bipartite", SparseFeatures)
        yield Check("neighbor_max", implementation, "bipartite")
    for heads, width in run.sizes.widths:
        yield Check("neighbor_attention", "native", "bipartite", heads=heads, width=width)
        yield Check("neighbor_attention", "native", "dense", heads=heads, width=width, dtype="bfloat16")
        yield Check("neighbor_mean", "native", "dense", heads=heads, width=width, dtype="bfloat16")
    if run.sizes.few_graphs:
        return
    for graph in sorted(GRAPHS.keys() - set(FIRST)):
        for implementation in IMPLEMENTATIONS:
            for op in ("neighbor_attention", "neighbor_mean", "neighbor_sum"):
                yield Check(op, implementation, graph)
    for graph in sorted(set(AS_TABLES) - {"bipartite", "hub_in"}):
        yield Check("neighbor_attention", "native", graph, NeighborTable)


def obstacle_of(check: Check) -> str:
    """Why a check cannot be made here; empty where it can."""
    try:
        return OPS[check.op].find(check.implementation, check.takes, target_platform()).obstacle()
    except ValueError as error:
        return str(error)


def shares(check: Check) -> dict[str, float]:
    """The largest error of the result and of each gradient, over the tolerance of the tests."""
    if check.op == "sparse_matmul":
        return _of_sparse_product(check)
    graph = GRAPHS[check.graph]
    if check.takes is SemanticGraph:
        placed: Any = graph.place(OPS[check.op].views(check.implementation))
    else:
        placed = jax.device_put(as_table(graph))
    allowed = tolerances.FLOAT32_HUB if check.graph in HUBS else tolerances.FLOAT32
    allowed = tolerances.BFLOAT16 if check.dtype == "bfloat16" else allowed
    if check.op == "neighbor_attention":
        return _of_attention(check, graph, placed, allowed)
    rng = np.random.default_rng(0)
    width = check.heads * check.width
    x = _rounded(rng.integers(-20, 20, (graph.num_sources, width)) / 8, check.dtype)
    cotangent = _rounded(rng.normal(size=(graph.num_targets, width)), check.dtype)
    if check.op == "neighbor_sum":
        weights = rng.normal(size=graph.num_edges).astype(np.float32)
        found = _gradients(neighbor_sum, placed, check.implementation, cotangent, x, weights)
        exact: tuple[np.ndarray, ...] = reference.weighted_sum(graph, np.asarray(x), weights, np.asarray(cotangent))
        names: tuple[str, ...] = ("out", "d_x", "d_weights")
    else:
        op, of = {
            "neighbor_mean": (neighbor_mean, reference.mean),
            "neighbor_max": (neighbor_max, reference.maximum),
        }[check.op]
        found = _gradients(op, placed, check.implementation, cotangent, x)
        exact, names = of(graph, np.asarray(x), np.asarray(cotangent)), ("out", "d_x")
    return _named(names, found, exact, allowed)


def _of_attention(check: Check, graph: SemanticGraph, placed: Any, allowed: float) -> dict[str, float]:
    rng = np.random.default_rng(0)
    heads = check.heads
    shapes = [(graph.num_sources, heads, check.width), (graph.num_sources, heads), (graph.num_targets, heads)]
    primals = [_rounded(rng.normal(size=shape), check.dtype) for shape in shapes]
    cotangent = _rounded(rng.normal(size=(graph.num_targets, heads, check.width)), check.dtype)

    def op(*arguments: Any, implementation: str) -> jax.Array:
        options: dict[str, Any] = {"dropout_rate": RATE, "dropout_seed": np.uint32(SEED)}
        return neighbor_attention(*arguments, **options, implementation=implementation)

    found = _gradients(op, placed, check.implementation, cotangent, *primals)
    arrays = (np.asarray(each) for each in (*primals, cotangent))
    exact = reference.attention(graph, *arrays, rate=RATE, seed=SEED)
    size = check.width * mean_size(np.asarray(primals[0])) * mean_size(np.asarray(cotangent)) / (1.0 - RATE)
    return _named(("out", "d_z", "d_logit_src", "d_logit_dst"), found, exact, allowed, size)


def _of_sparse_product(check: Check) -> dict[str, float]:
    from scipy import sparse

    rng = np.random.default_rng(1)
    dense = rng.normal(size=(500, 700)) * (rng.random((500, 700)) < 0.05)
    matrix = sparse.csr_array(dense.astype(np.float32))
    weight = jnp.asarray(rng.normal(size=(700, 21)), jnp.float32)
    cotangent = jnp.asarray(rng.normal(size=(500, 21)), jnp.float32)
    features = SparseFeatures.from_scipy(matrix).place(VIEWS)
    found = _gradients(sparse_matmul, features, check.implementation, cotangent, weight)
    exact = matrix.astype(np.float64)
    expected = (exact @ np.asarray(weight, np.float64), exact.T @ np.asarray(cotangent, np.float64))
    return _named(("out", "d_weight"), found, expected, tolerances.FLOAT32)


def _gradients(op: Callable[..., Any], subject: Any, implementation: str, cotangent: Any, *primals: Any) -> list[Any]:
    """The result of a compiled op, then its gradients."""

    @jax.jit
    def both(subject: Any, cotangent: jax.Array, *primals: jax.Array) -> tuple[Any, ...]:
        out, vjp = jax.vjp(lambda *given: op(subject, *given, implementation=implementation), *primals)
        return out, *vjp(cotangent)

    return list(jax.block_until_ready(both(subject, cotangent, *primals)))


def _rounded(values: np.ndarray, dtype: str) -> jax.Array:
    return jnp.asarray(values.astype(np.float32), dtype)


def _named(
    names: Sequence[str], found: Sequence[Any], exact: Sequence[np.ndarray], allowed: float, size: float = 0.0
) -> dict[str, float]:
    return {name: _over(a, b, allowed, size) for name, a, b in zip(names, found, exact, strict=True)}


def _over(ours: Any, exact: np.ndarray, allowed: float, size: float = 0.0) -> float:
    """The largest error over what `tests.ops.tolerances.assert_close` allows; infinite where it is none."""
    found = np.asarray(ours, np.float64)
    if found.shape != exact.shape:
        return float("inf")
    if not found.size:
        return 0.0
    worst = float(np.abs(found - exact).max())
    return worst / (allowed * max(size, mean_size(exact), 1.0)) if np.isfinite(worst) else float("inf")
