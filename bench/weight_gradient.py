"""The gradient of a projection's weight, `x^T d`, by the native kernel and by XLA: `python -m bench.weight_gradient`.

Calls of both in turn; the median rate of each, on the shapes of R-GCN and R-GAT on ACM, IMDB and DBLP.
"""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn import native
from jhgnn.runtime.step_memory import keep_step_memory

SHAPES = [(5257, 64, 64), (14328, 64, 64), (4278, 64, 128), (4278, 64, 192), (3025, 64, 256), (3025, 512, 64)]
"""Rows, width of x, width of d."""
ROUNDS = 60


def by_kernel(x: jax.Array, d: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct((x.shape[1], d.shape[1]), jnp.float32)
    return jnp.asarray(jax.ffi.ffi_call("jhgnn_outer_sum", shape)(x, d))


def by_xla(x: jax.Array, d: jax.Array) -> jax.Array:
    return x.T @ d


def main() -> None:
    keep_step_memory()
    print(f"GFLOP/s, {native.instruction_set()}\nrows, widths: kernel, XLA")
    rng = np.random.default_rng(0)
    for rows, in_width, out_width in SHAPES:
        x, d = (jnp.asarray(rng.standard_normal((rows, width), np.float32)) for width in (in_width, out_width))
        calls = [jax.jit(by_kernel), jax.jit(by_xla)]
        taken: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for call, times in zip(calls, taken, strict=True):
                start = time.perf_counter()
                jax.block_until_ready(call(x, d))
                times.append(time.perf_counter() - start)
        rates = [2e-9 * x.size * out_width / statistics.median(times) for times in taken]
        print(f"{rows}, {in_width} x {out_width}: " + ", ".join(f"{rate:.0f}" for rate in rates))


if __name__ == "__main__":
    main()
