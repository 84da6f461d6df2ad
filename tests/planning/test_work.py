"""Work of a compiled program: loops count as often as they run, native kernels by their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from jhgnn import native
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.planning.time_model import SECONDS, predicted_s
from jhgnn.planning.work import Work, work
from jhgnn.profiling.hlo import parse
from tests.executions import configured, whole
from tests.models.heterographs import academic


def of(function, *arguments) -> Work:
    return work(parse(jax.jit(function).lower(*arguments).compile().as_text()))


def test_a_loop_body_counts_as_often_as_it_runs():
    x, w = jnp.ones((16, 32)), jnp.ones((32, 32))

    def repeated(x, w):
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), None), x, None, length=7)[0]

    once, found = of(lambda x, w: jnp.tanh(x @ w), x, w), of(repeated, x, w)
    assert once.dot_flops == 2 * 16 * 32 * 32
    assert found.dot_flops == 7 * once.dot_flops
    assert found.transcendentals == 7 * 16 * 32
    assert found.iterations == 7


def test_gathers_and_scatters_count_their_elements():
    table, ids = jnp.ones((50, 8)), jnp.arange(20)
    assert of(lambda table, ids: table[ids], table, ids).gathered == 20 * 8
    segments = of(lambda rows, ids: jax.ops.segment_sum(rows, ids, 50), jnp.ones((20, 8)), ids)
    assert segments.scattered + segments.iterations >= 20


@pytest.mark.skipif(not native.available(), reason="native kernels are not built")
def test_native_kernels_are_work():
    from jhgnn.ops.neighbor_mean import neighbor_mean

    config = configured(name="rgcn")
    graph = academic()
    problem = whole(graph, config)
    each = next(iter(problem.inputs.graphs.values()))
    found = of(lambda graph, x: neighbor_mean(graph, x, implementation="native"), each, jnp.ones((each.num_sources, 8)))
    assert found.native_flops >= each.num_edges * 8


@pytest.mark.skipif(not native.available(), reason="native kernels are not built")
def test_a_stack_is_the_work_of_its_matrices():
    from jhgnn.ops.sparse_matmul import sparse_matmul, sparse_matmul_stack

    matrix = sparse.random_array((40, 30), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    features, stack = SparseFeatures.from_scipy(matrix).place(), jnp.ones((3, 30, 8))

    def alone(features, weight):
        out, vjp = jax.vjp(lambda w: sparse_matmul(features, w, implementation="native"), weight)
        return out, vjp(out)

    def together(features, stack):
        outs, vjp = jax.vjp(lambda w: sparse_matmul_stack(features, w, implementation="native"), stack)
        return outs, vjp(outs)

    once, found = of(alone, features, stack[0]), of(together, features, stack)
    assert once.native_flops == 2 * 2 * features.num_values * 8
    assert found.native_flops == 3 * once.native_flops


@pytest.mark.skipif(not native.available(), reason="native kernels are not built")
def test_logit_columns_are_work():
    from jhgnn.ops.logit_columns import logit_columns

    def both(stack, vectors):
        out, vjp = jax.vjp(lambda stack, vectors: logit_columns(stack, [0, 1, 1], vectors), stack, vectors)
        return out, vjp(out)

    found = of(both, jnp.ones((2, 40, 32)), jnp.ones((3, 4, 8)))
    assert found.native_flops == (2 + 4) * 40 * 3 * 32


@pytest.mark.skipif(not native.available(), reason="native kernels are not built")
def test_rows_of_combined_bases_are_work():
    from jhgnn.ops.basis_rows import basis_rows
    from tests.ops.test_basis_rows import slots_of

    table = sparse.eye_array(40, format="csr")
    slots = jax.device_put(slots_of([np.arange(9, dtype=np.int32)], table, 0)[0])

    def both(c_rb, v_bio):
        out, vjp = jax.vjp(lambda *both: basis_rows(slots, jnp.ones(40), *both, dtype=jnp.float32), c_rb, v_bio)
        return out, vjp(out)

    found = of(both, jnp.ones((1, 3)), jnp.ones((3, 40, 8)))
    assert found.native_flops == 9 * 8 * ((2 * 3 + 1) + (4 * 3 + 1))


def test_more_work_is_predicted_to_take_longer():
    for platform, rates in SECONDS.items():
        base = Work(num_bytes=1e6, dot_flops=1e6)
        for kind in rates:
            if kind == "temp_bytes":
                assert predicted_s(base, 10**6, platform) > predicted_s(base, 0, platform)
            else:
                more = Work(**(base.__dict__ | {kind: 1e9}))
                assert predicted_s(more, 0, platform) > predicted_s(base, 0, platform)
