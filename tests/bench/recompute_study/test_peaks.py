"""Which tensors lie in memory at a program's peak, and which are the reason for a higher one."""

import jax
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

from bench.recompute_study import peaks
from jhgnn.nn.stage import stage

EDGES, NODES, WIDTH = 4096, 256, 64


def step(*, twice: bool) -> jax.stages.Compiled:
    """Sums rows that are gathered onto edges; twice at the same time, if asked."""

    def rows(x: jax.Array, ids: jax.Array) -> jax.Array:
        with stage("NA", 0):
            gathered = jax.lax.optimization_barrier(jnp.sin(x)[ids])
            other = jax.lax.optimization_barrier(jnp.cos(x)[ids]) if twice else gathered
            return jnp.sum(gathered @ other.T)

    return jax.jit(rows).lower(jnp.ones((NODES, WIDTH)), jnp.zeros(EDGES, jnp.int32)).compile()


def test_a_tensor_of_the_peak_has_stage_operation_and_shape_and_all_bytes_are_accounted_for():
    program = step(twice=False)
    found = peaks.at_peak(program)
    result_bytes = 4  # which is no temporary
    assert sum(found.values()) == program.memory_analysis().temp_size_in_bytes + result_bytes
    (gathered,) = (name for name in found if name.startswith(f"NA gather f32[{EDGES},"))
    assert found[gathered] == 4 * EDGES * WIDTH


def test_the_reason_for_more_memory_is_the_tensor_that_the_other_has_not():
    less, more = (peaks.at_peak(step(twice=twice)) for twice in (False, True))
    (name, num_bytes), *_ = peaks.grown(less, more)
    assert name.startswith(f"NA gather f32[{EDGES},")
    assert num_bytes == 4 * EDGES * WIDTH


TENSORS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100))


@given(TENSORS, TENSORS, st.integers(1, 6))
def test_what_grew_is_positive_and_falls(less, more, most):
    found = peaks.grown(less, more, most)
    assert len(found) <= most
    assert [grown for _, grown in found] == sorted((grown for _, grown in found), reverse=True)
    assert all(grown == more[name] - less.get(name, 0) > 0 for name, grown in found)
    if len(found) < most:
        assert {name for name, _ in found} == {name for name in more if more[name] > less.get(name, 0)}
