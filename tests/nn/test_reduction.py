"""The seam in fusion: sums over parts of the relations or of the targets add up to those over everything, once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jhgnn.nn.semantic_fusion import AttentionFusion
from tests.executions import built, configured
from tests.models.heterographs import academic

RECIPES = {
    "rgcn": {"name": "rgcn", "layers": 2, "layer_norm": True, "self_loop": True, "residual": True},
    "rgcn without self-loop": {"name": "rgcn", "layers": 2, "self_loop": False},
    "rgat": {"name": "rgat", "layers": 2, "self_loop": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RECIPES)
def test_shards_of_relations_add_up_to_the_whole_layer_with_bias_norm_and_self_loop_once(case):
    execution, params = built(academic(), configured(**RECIPES[case]))
    inputs = execution.inputs
    names = sorted(inputs.graphs)
    shards = [
        dataclasses.replace(inputs, graphs={name: inputs.graphs[name] for name in names[first::3]})
        for first in range(3)
    ]
    assert all(shard.graphs for shard in shards)

    def whole(params):
        (rows,) = nnx.merge(execution.structure, params).encode(inputs).values()
        return jnp.sin(rows).sum(), rows

    def of_shards(params):
        model = nnx.merge(execution.structure, params)
        known = []
        for layer in range(2):  # each shard computes its own sums from the rows that all of them have
            partials = [model.partial_sums(shard, None, known) for shard in shards]
            assert {(partial.over, partial.layer) for partial in partials} == {("relations", layer)}
            known.append(jax.tree.map(lambda *parts: sum(parts), *(partial.values for partial in partials)))
        (rows,) = model.encode(shards[0], None, lambda partial: known[partial.layer]).values()
        return jnp.sin(rows).sum(), rows

    expected, found = (jax.jit(jax.grad(each, has_aux=True))(params) for each in (whole, of_shards))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, expected)


def test_parts_of_the_targets_add_up_to_the_attention_over_all_of_them():
    rng = np.random.default_rng(0)
    fusion = AttentionFusion(6, 5, rngs=nnx.Rngs(1))
    fusion.hidden.bias[...] = jnp.asarray(rng.normal(size=5), jnp.float32)
    parts = [jnp.asarray(rng.normal(size=(9, 6)), jnp.float32) for _ in range(3)]
    expected = fusion(parts)
    halves = [[part[:4] for part in parts], [part[4:] for part in parts]]
    first, second = (fusion.partial(half) for half in halves)
    sums = jax.tree.map(lambda a, b: a + b, first, second)
    found = jnp.concatenate([fusion.finish(half, sums) for half in halves])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # Attention over one half alone is another one.
    assert float(jnp.abs(fusion(halves[0]) - expected[:4]).max()) > 1e-4
    # Padding counts for nothing.
    padded = [jnp.concatenate([part, jnp.full((3, 6), 7.0)]) for part in parts]
    np.testing.assert_allclose(fusion(padded, jnp.arange(12) < 9)[:9], expected, rtol=1e-5, atol=1e-6)
