"""Costs of kernels for GPUs, from programs that are lowered for one and never run."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jhgnn.native.cuda.rows import Entries, row_sum
from jhgnn.native.cuda.table_rows import gather_rows, write_rows
from jhgnn.ops.neighbor_attention import native_cuda
from jhgnn.profiling.costs import Cost, cost
from jhgnn.profiling.hlo import parse
from tests.ops.cases import GRAPHS, placed


def cost_of(kernel: str, function: Any, *arguments: Any) -> Cost:
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",))
    module = parse(lowered.compiler_ir("hlo").as_hlo_module().to_string())
    (call,) = [
        each
        for computation in module.computations.values()
        for each in computation.instructions.values()
        if each.custom_call_target == f"jhgnn_cuda_{kernel}"
    ]
    return cost(module, call)


def test_a_sum_of_rows_reads_a_row_an_entry() -> None:
    rows = Entries(jnp.array([0, 2, 5], jnp.int32), jnp.zeros(0, jnp.int32), jnp.array([0, 1, 2, 1, 0], jnp.int32))
    x, weights = jnp.ones((3, 8)), jnp.ones(5)
    plain = cost_of("row_sum", lambda x: row_sum(rows, x), x)
    assert plain.flops == 5 * 8
    assert plain.num_bytes == 4 * (3 + 5 + 2 * 8 + 5 * 8)  # borders, indices, sums, and the rows that are read
    assert cost_of("row_sum", lambda x: row_sum(rows, x, weights=weights), x).flops == 2 * 5 * 8


def test_rows_of_tables_cost_what_is_moved() -> None:
    table, ids = jnp.ones((100, 16)), jnp.array([3, -1, 7], jnp.int32)
    moved = 4 * (3 + 2 * 3 * 16)
    assert cost_of("gather_rows", gather_rows, table, ids) == Cost(num_bytes=moved)
    assert cost_of("write_rows", write_rows, table, ids, jnp.ones((3, 16))) == Cost(num_bytes=moved)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_attention_costs_what_its_edges_take(rate: float) -> None:
    graph = placed(GRAPHS["bipartite"])
    edges, heads, width = graph.num_edges, 4, 8
    z, src, dst = (
        jnp.ones((count, heads, *own))
        for count, own in ((graph.num_sources, (width,)), (graph.num_sources, ()), (graph.num_targets, ()))
    )

    def attended(z: jax.Array) -> jax.Array:
        return native_cuda.neighbor_attention(graph, z, src, dst, jnp.uint32(1), 0.2, rate)

    def gradient(z: jax.Array) -> jax.Array:
        return jax.grad(lambda z: attended(z).sum())(z)

    forwards, backwards = cost_of("attention_forward", attended, z), cost_of("attention_backward", gradient, z)
    assert forwards.flops == edges * heads * (5 + 2 * width)
    assert backwards.flops == edges * heads * (10 + 4 * width)
    assert forwards.transcendentals == backwards.transcendentals == edges * heads
    assert (forwards.integer_ops > 0) == (rate > 0) == (backwards.integer_ops > 0)
    assert min(forwards.num_bytes, backwards.num_bytes) > 4 * edges * heads * width
