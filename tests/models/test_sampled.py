"""Models on sampled blocks with all neighbours: the full-batch outputs and gradients, with dropout too."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import SampledInputs
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.host import HostSampler
from jhgnn.stores.device import DeviceRows
from jhgnn.training.sampled_step import seeds_by_type
from tests.executions import apply_model, built, configured
from tests.models.heterographs import academic
from tests.training.minibatches import sampled

TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}  # float32 sums in another order, through two layers and back

CASES = {
    "rgcn": {"name": "rgcn", "layers": 2, "layer_norm": True},
    "rgat": {"name": "rgat", "layers": 2, "residual": True},
    "han": {"name": "han", "metapaths": ("PAP", "PSP"), "layers": 2, "residual": True},
    "gcn": {"name": "gcn", "layers": 2},
    "gat": {"name": "gat", "layers": 2, "residual": True},
}


def one_batch(graph, config, seeds):
    """The execution, and one batch of it as the model reads it."""
    config = dataclasses.replace(
        config, sampling=dataclasses.replace(config.sampling, batch_size=len(seeds), fan_out="all")
    )
    execution = sampled(graph, config)
    sampling = execution.sampling
    by_type = seeds_by_type(execution.task.requests(None, seeds, 0, 0), sampling)
    buckets = fixed(sampling.plan.bound_capacities({name: len(ids) for name, ids in by_type.items()}))
    blocks, _ = HostSampler(sampling.sampled, sampling.plan).sample(by_type, 0, 0, buckets)
    blocks = with_edges(blocks, sampling.compressed)
    inputs = SampledInputs(execution.features_of(blocks), blocks, sampling.endpoints, sampling.offsets)
    return execution, jax.device_put(inputs)


def on_rows(params, inputs):
    """The parameters with the batch's rows in place of the tables."""
    store = DeviceRows(tables_of(params))
    return with_tables(params, {name: store.gather(name, inputs.ids(name)) for name in store.node_types})


@pytest.mark.parametrize(
    "case", [case if case in ("rgcn", "han") else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
@pytest.mark.parametrize(
    "dropped", [pytest.param(False, marks=pytest.mark.slow, id="plain"), pytest.param(True, id="dropout")]
)
def test_all_neighbours_give_the_full_batch(case, dropped):
    graph = academic()
    config = configured(**CASES[case], feature_dropout=0.3, attention_dropout=0.4, dropout=0.3)
    full, params = built(graph, config)
    # All papers in another order and a padding slot: HAN's semantic attention is a mean over the batch.
    seeds = np.append(np.random.default_rng(1).permutation(40), -1).astype(np.int32)
    problem, inputs = one_batch(graph, config, seeds)
    structure, sampled_structure = full.structure, problem.structure
    seed = jnp.uint32(9) if dropped else None
    weights = jnp.asarray(np.random.default_rng(2).normal(size=(40, 3)), jnp.float32)

    def full_loss(params):
        return (apply_model(structure, params, full.inputs, seed).logits * weights).sum()

    def sampled_loss(params):
        logits = apply_model(sampled_structure, on_rows(params, inputs), inputs, seed).logits
        return (logits[:40] * weights[seeds[:40]]).sum()

    expected, found = (jax.jit(jax.value_and_grad(loss))(params) for loss in (full_loss, sampled_loss))
    np.testing.assert_allclose(found[0], expected[0], **TOLERANCE)
    assert jax.tree.structure(found[1]) == jax.tree.structure(expected[1])
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected[1]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * largest), found[1], expected[1])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["rgcn", "rgat"])
def test_a_part_of_the_targets_gets_its_full_batch_rows(case):
    graph, config = academic(), configured(**CASES[case], dropout=0.3)
    full, params = built(graph, config)
    seeds = np.array([7, 39, 0, 12, -1, -1], np.int32)
    problem, inputs = one_batch(graph, config, seeds)
    whole, structure = full.structure, problem.structure
    seed = jnp.uint32(3)
    expected = jax.jit(lambda params: apply_model(whole, params, full.inputs, seed).logits)(params)
    found = jax.jit(lambda params: apply_model(structure, on_rows(params, inputs), inputs, seed).logits)(params)
    np.testing.assert_allclose(found[:4], expected[seeds[:4]], **TOLERANCE)
