"""A malformed graph is an error from every kernel, never a crash; so are buffers that do not fit each other."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.graph.semantic_graph import Csr, SemanticGraph
from jhgnn.native.row_sum import row_sum, row_sums_of_stack, stack_of_row_sums
from jhgnn.ops.basis_rows import basis_rows
from jhgnn.ops.neighbor_attention import native as attention
from jhgnn.ops.neighbor_max import native as maximum
from jhgnn.ops.neighbor_mean import native as mean
from jhgnn.ops.neighbor_sum import native as weighted
from tests.ops.cases import GRAPHS, placed

SIZES = {"bipartite": (37, 29), "hub_in": (200, 3)}


def _attention(graph: SemanticGraph) -> jax.Array:
    z, src, dst = (
        jnp.ones(shape) for shape in ((graph.num_sources, 2, 3), (graph.num_sources, 2), (graph.num_targets, 2))
    )
    op = lambda z: attention.neighbor_attention(graph, z, src, dst, jnp.uint32(0), 0.2, 0.0)  # noqa: E731
    out, vjp = jax.vjp(op, z)
    return vjp(out)[0]


def _gradient(op: Callable[[SemanticGraph, jax.Array], jax.Array]) -> Callable[[SemanticGraph], jax.Array]:
    return lambda graph: jax.grad(lambda x: op(graph, x).sum())(jnp.ones((graph.num_sources, 5)))


OPS = {
    "attention": _attention,
    "mean": _gradient(mean.neighbor_mean),
    "max": _gradient(maximum.neighbor_max),
    "sums": lambda graph: stack_of_row_sums(
        graph.outgoing,
        row_sums_of_stack(graph.incoming, jnp.ones((2, graph.num_sources, 5)), weights=jnp.ones(graph.num_edges)),
        weights=jnp.ones(graph.num_edges),
    ),
    "sum": _gradient(lambda graph, x: weighted.neighbor_sum(graph, x, x[0, 0] * jnp.ones(graph.num_edges))),
}


def _last_index(csr: Csr, index: int) -> Csr:
    return dataclasses.replace(csr, indices=csr.indices.at[-1].set(index))


def _first_indices(csr: Csr, index: int) -> Csr:
    return dataclasses.replace(csr, indices=csr.indices.at[:3].set(index))


BREAKAGES: dict[str, tuple[Callable[[Csr, int], Csr], str]] = {
    "index too large": (lambda csr, n: _last_index(csr, n), "an index is outside 0 to"),
    "index huge": (lambda csr, n: _first_indices(csr, 2**31 - 1), "an index is outside 0 to"),
    "index negative": (lambda csr, n: _first_indices(csr, -1), "an index is outside 0 to"),
    "indptr descends": (
        lambda csr, n: dataclasses.replace(csr, indptr=csr.indptr.at[1].set(2**30)),
        "indptr must ascend",
    ),
    "indptr starts early": (
        lambda csr, n: dataclasses.replace(csr, indptr=csr.indptr.at[0].set(-5)),
        "indptr must ascend",
    ),
    "indptr ends late": (
        lambda csr, n: dataclasses.replace(csr, indptr=csr.indptr.at[-1].add(1)),
        "indptr must ascend",
    ),
}


@pytest.mark.parametrize("breakage", sorted(BREAKAGES))
@pytest.mark.parametrize("direction", ["incoming", "outgoing"])
@pytest.mark.parametrize("op", sorted(OPS))
@pytest.mark.parametrize("name", sorted(SIZES))
def test_malformed_graph_is_an_error(name: str, op: str, direction: str, breakage: str) -> None:
    graph = placed(GRAPHS[name])
    broken, message = BREAKAGES[breakage]
    csr = broken(getattr(graph, direction), SIZES[name][direction == "outgoing"])
    malformed = dataclasses.replace(graph, **{direction: csr})
    jax.block_until_ready(OPS[op](graph))
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=message):
        jax.block_until_ready(OPS[op](malformed))


def test_the_next_call_works_after_an_error() -> None:
    graph = placed(GRAPHS["bipartite"])
    malformed = dataclasses.replace(graph, incoming=_last_index(graph.incoming, 99))
    x = jnp.ones((37, 5))
    expected = mean.neighbor_mean(graph, x)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="outside 0 to 36"):
        jax.block_until_ready(mean.neighbor_mean(malformed, x))
    np.testing.assert_array_equal(mean.neighbor_mean(graph, x), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": jnp.ones(7)}, r"values is \[7\]; need \[edges\]"),
        ({"row_scale": jnp.ones(7)}, r"index_scale is \[7\]; need \[columns\]"),
        ({"x": jnp.ones((37, 2), jnp.float16)}, "float32 and bfloat16"),
        ({"rows": Csr(jnp.zeros((2, 2), jnp.int32), jnp.zeros((2, 2), jnp.int32))}, "must be vectors"),
        ({"rows": Csr(jnp.zeros((2, 2), jnp.int32), jnp.zeros(0, jnp.int32))}, "must be vectors"),
    ],
)
def test_buffers_that_do_not_fit(change: dict, message: str) -> None:
    arguments = {"rows": placed(GRAPHS["bipartite"]).incoming, "x": jnp.ones((37, 2))} | change
    with pytest.raises((ValueError, TypeError, jax.errors.JaxRuntimeError), match=message):
        jax.block_until_ready(row_sum(arguments.pop("rows"), arguments.pop("x"), **arguments))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": jnp.ones(7)}, r"values is \[7\]; need \[edges\]"),
        ({"matrices": [jnp.ones((37, 2)), jnp.ones((36, 2))]}, r"is \[36, 2\]; need 37 rows"),
        ({"matrices": [jnp.ones((37, 2)), jnp.ones((37, 3))]}, "the same columns"),
        ({"matrices": [jnp.ones((37, 2)), jnp.ones((2, 37, 2))]}, "3 matrices to sum, 2 results"),
        ({"matrices": [jnp.ones((37, 2)), jnp.ones((37, 2), jnp.bfloat16)]}, "different element types"),
        ({"matrices": [jnp.ones((37, 2), jnp.float16)]}, "float32 and bfloat16"),
    ],
)
def test_matrices_that_do_not_fit(change: dict, message: str) -> None:
    rows = placed(GRAPHS["bipartite"]).incoming
    arguments = {"matrices": [jnp.ones((37, 2))] * 2, "weights": jnp.ones(rows.indices.shape[0])} | change
    with pytest.raises((ValueError, TypeError, jax.errors.JaxRuntimeError), match=message):
        jax.block_until_ready(stack_of_row_sums(rows, arguments.pop("matrices"), **arguments))


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("indices", lambda slots: slots.at[-1].set(40), "malformed slots"),
        ("indices", lambda slots: slots.at[0].set(-1), "malformed slots"),
        ("matrices", lambda matrices: matrices.at[3].set(2), "malformed slots"),
        ("matrices", lambda matrices: matrices.at[3].set(-5), "malformed slots"),
        ("indptr", lambda indptr: indptr.at[1].set(2**30), "indptr must ascend"),
        ("indptr", lambda indptr: indptr.at[-1].add(1), "indptr must ascend"),
        ("matrices", lambda matrices: matrices[1:], r"matrix_of is \[9\]; need \[entries\]"),
    ],
)
@pytest.mark.parametrize("backward", [False, True])
def test_malformed_slots_are_an_error(backward: bool, field: str, change: Callable, message: str) -> None:
    indptr, ten = jnp.asarray([0, 2, 2, 7, 10], jnp.int32), jnp.arange(10, dtype=jnp.int32)
    slots = OneHotSlots(Csr(indptr, 4 * ten), ten % 2, ten, num_slots=40, own_rows=0, num_entries=10)
    if field == "matrices":
        malformed = dataclasses.replace(slots, matrices=change(slots.matrices))
    else:
        csr = dataclasses.replace(slots.by_feature, **{field: change(getattr(slots.by_feature, field))})
        malformed = dataclasses.replace(slots, by_feature=csr)

    def run(slots: OneHotSlots) -> jax.Array:
        factors = jnp.ones((2, 3)), jnp.ones((3, 4, 5))
        z = lambda c, v: basis_rows(slots, jnp.ones(10), c, v, dtype=jnp.float32)  # noqa: E731
        # Compiled together, the gradient runs without the forward pass, which it does not need.
        return jax.jit(jax.grad(lambda c, v: z(c, v).sum()) if backward else z)(*factors)

    jax.block_until_ready(run(slots))
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=message):
        jax.block_until_ready(run(malformed))
