"""The machine's ceilings, measured: how fast it copies memory and multiplies matrices."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

COPY_BYTES = 1 << 27
"""128 MiB: larger than the caches, small enough for a laptop."""
MATMUL_SIZE = 1536
TRIALS = 5


def measure_ceilings() -> dict[str, float]:
    """`copy_bytes_per_s` (read plus written) and `matmul_flops_per_s` in float32 on the default device.

    The best of a few trials, since a ceiling is what the machine can do. The copy works in place (a donated buffer):
    fresh pages would measure the operating system.
    """
    shift = jax.jit(lambda each: each + 1.0, donate_argnums=0)
    copy_s = _best(shift, jnp.ones(COPY_BYTES // 4, jnp.float32), in_place=True)
    square = jnp.full((MATMUL_SIZE, MATMUL_SIZE), 1e-3, jnp.float32)
    matmul_s = _best(jax.jit(lambda each: each @ each), square, in_place=False)
    return {
        "copy_bytes_per_s": 2 * COPY_BYTES / copy_s,
        "matmul_flops_per_s": 2 * MATMUL_SIZE**3 / matmul_s,
    }


def bound(intensity: float, ceilings: dict[str, float]) -> str:
    """`memory` or `compute`: the side of the ridge on which an arithmetic intensity (FLOP/byte) lies."""
    ridge = ceilings["matmul_flops_per_s"] / ceilings["copy_bytes_per_s"]
    return "memory" if intensity < ridge else "compute"


def _best(function: Callable[[jax.Array], jax.Array], argument: jax.Array, *, in_place: bool) -> float:
    times = []
    for _ in range(1 + TRIALS):
        start = time.perf_counter()
        result = function(argument).block_until_ready()
        times.append(time.perf_counter() - start)
        argument = result if in_place else argument
    return min(times[1:])
