"""Rows of embedding tables by id: the kernels for it beside what XLA makes of indexing and of writing rows."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.gpu.measure.copy_rate import measured_rate
from bench.gpu.measure.timing import measuring, timed
from bench.gpu.measure.worker import Run
from jhgnn.native import cuda
from jhgnn.native.cuda.table_rows import gather_rows, write_rows

NUM_ROWS, NUM_IDS, WIDTH = 1_134_649, 200_000, 64
"""Authors of ogbn-mag, and as many as a mini-batch of R-GCN touches."""


def rows(run: Run) -> Iterator[dict[str, Any]]:
    """A row for each way to read and to write; writes are in place."""
    with measuring(run.folder):
        yield from _rows(run)


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    num_rows, num_ids = (max(8, round(run.sizes.op_scale * count)) for count in (NUM_ROWS, NUM_IDS))
    rng = np.random.default_rng(0)
    ids = jnp.asarray(rng.choice(num_rows, num_ids, replace=False), jnp.int32)
    new = jnp.ones((num_ids, WIDTH), jnp.float32)
    reads: dict[str, Any] = {"xla": lambda table, ids: table.at[ids].get(mode="clip")}
    writes: dict[str, Any] = {"xla": lambda table, ids, new: table.at[ids].set(new, mode="drop", unique_indices=True)}
    if cuda.available():
        reads["native"], writes["native"] = gather_rows, write_rows
    else:
        yield {"kind": "rows", "implementation": "native", "skipped": cuda.HOW_TO_GET_IT}
    rate = measured_rate(run.folder)
    for name in reads:
        table = jnp.zeros((num_rows, WIDTH), jnp.float32)
        read, write = jax.jit(reads[name]), jax.jit(writes[name], donate_argnums=0)
        yield _row("read", name, timed(lambda read=read, table=table: read(table, ids), run.sizes), new.nbytes, rate)  # type: ignore[misc]
        held = [table]

        def written(write: Any = write, held: list[jax.Array] = held) -> jax.Array:
            held[0] = write(held[0], ids, new)
            return held[0]

        yield _row("write", name, timed(written, run.sizes), new.nbytes, rate)


def _row(what: str, name: str, found: dict[str, Any], moved: int, rate: float | None) -> dict[str, Any]:
    share = 2 * moved / (found["ms"] / 1e3) / rate if rate else None
    return {"kind": "rows", "what": what, "implementation": name, "share_of_copy": share} | found
