"""Collectives and their bytes in compiled programs."""

import jax
import jax.numpy as jnp

from jhgnn.profiling.collectives import Exchange, collectives
from jhgnn.profiling.hlo import parse
from jhgnn.training.mesh import DATA, SHARDED, DeviceMesh


def exchanged(function, *arguments):
    mesh = DeviceMesh(2)
    lowered = mesh.lower(function, arguments, (SHARDED,) * len(arguments))
    return collectives(parse(lowered.compile().as_text()))


def test_sums_and_gathers_are_counted_with_the_bytes_of_their_results():
    def both(x, y):
        return jax.lax.psum(x, DATA), jax.lax.all_gather(y, DATA)

    found = exchanged(both, jnp.ones((2, 6, 5), jnp.float32), jnp.ones((2, 3), jnp.int32))
    assert found == {"all-reduce": Exchange(1, 4 * 6 * 5), "all-gather": Exchange(1, 4 * 2 * 3)}


def test_a_program_that_exchanges_nothing_has_none():
    assert collectives(parse(jax.jit(lambda x: x @ x).lower(jnp.ones((4, 4))).compile().as_text())) == {}


ASYNCHRONOUS = """HloModule step

ENTRY %main (x: f32[8]) -> (f32[32], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %gather = (f32[8]{0}, f32[32]{0}) all-gather-start(f32[8]{0} %x), dimensions={0}
  %sum = f32[8]{0} all-reduce(f32[8]{0} %x), to_apply=%add
  %gathered = f32[32]{0} all-gather-done((f32[8]{0}, f32[32]{0}) %gather)
  ROOT %out = (f32[32]{0}, f32[8]{0}) tuple(f32[32]{0} %gathered, f32[8]{0} %sum)
}
"""


def test_an_asynchronous_collective_counts_once_without_its_operands():
    assert collectives(parse(ASYNCHRONOUS)) == {"all-reduce": Exchange(1, 32), "all-gather": Exchange(1, 128)}
