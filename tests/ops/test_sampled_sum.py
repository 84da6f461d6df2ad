"""The weighted sum of sampled neighbours against float64, as it is on CPUs and as it is on GPUs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.ops.neighbor_sum.sampled import sampled_neighbor_sum
from jhgnn.runtime.platform import compiling_for
from tests.ops import reference, tolerances
from tests.ops.cases import AS_TABLES, GRAPHS, HUBS, as_table, mean_size
from tests.ops.tolerances import assert_close


@pytest.mark.parametrize("platform", ["cpu", pytest.param("cuda", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", AS_TABLES)
def test_weighted_sum_of_a_table_agrees_with_float64(name: str, platform: str) -> None:
    graph = GRAPHS[name]
    table, rng = jax.device_put(as_table(graph)), np.random.default_rng(0)
    x = rng.normal(size=(graph.num_sources, 5)).astype(np.float32)
    cotangent = jnp.asarray(rng.normal(size=(graph.num_targets, 5)), jnp.float32)
    mask = np.asarray(table.mask)
    of_edges = rng.normal(size=graph.num_edges).astype(np.float32)
    weights = np.zeros(mask.shape, np.float32)
    weights[mask] = of_edges

    @jax.jit
    def both(x: jax.Array, weights: jax.Array) -> tuple[jax.Array, ...]:
        out, vjp = jax.vjp(lambda *given: sampled_neighbor_sum(table, *given), x, weights)
        return out, *vjp(cotangent)

    with compiling_for(platform):
        found = both(x, weights)
    expected = reference.weighted_sum(graph, x, of_edges, np.asarray(cotangent))
    ours = (found[0], found[1], np.asarray(found[2])[mask])
    size = tolerances.FLOAT32_HUB if name in HUBS else tolerances.FLOAT32
    for what, own, exact in zip(("out", "d_x", "d_weights"), ours, expected, strict=True):
        assert_close(own, exact, size, mean_size(exact), what)
