"""The mesh: named axes, what is cut over which, and one program over one axis or two."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.mesh import DATA, REL, REPLICATED, SHARDED, DeviceMesh, local
from jhgnn.training.sampled_feed import SampledFeed
from tests.models.heterographs import academic
from tests.training.minibatches import recipe, sampled


def test_axes_and_places():
    one, two = DeviceMesh(2), DeviceMesh(2, relation_shards=2)
    assert one.mesh.axis_names == (DATA,)
    assert (one.size, one.relation_shards, one.local_shards) == (2, 1, range(2))
    assert two.mesh.axis_names == (DATA, REL)
    assert (two.size, two.relation_shards, two.local_shards) == (1, 2, range(1))
    with pytest.raises(InputError, match=r"distributed\.devices = 3, but there are 2 local devices"):
        DeviceMesh(3)
    with pytest.raises(InputError, match="2 devices of a process do not divide over 3 relation shards"):
        DeviceMesh(2, relation_shards=3)


def test_each_axis_sums_over_its_own_places():
    mesh = DeviceMesh(2, relation_shards=2)

    def sums(weight, batch):
        mine = jax.lax.axis_index(REL) + 1.0
        return weight * jax.lax.psum(batch.sum(), DATA), jax.lax.psum(mine, REL)

    weight, batch = np.float32(2.0), np.arange(3, dtype=np.float32)[None]
    specs = (REPLICATED, SHARDED)
    program = mesh.compile(sums, (weight, batch), specs)
    found = program(*(mesh.place(each, spec) for each, spec in zip((weight, batch), specs, strict=True)))
    assert [float(local(each)) for each in found] == [6.0, 3.0]


def test_nested_specs_cut_their_own_leaves():
    mesh = DeviceMesh(2)
    specs = ({"cut": SHARDED, "same": REPLICATED},)
    tree = {"cut": np.arange(4, dtype=np.float32).reshape(2, 2), "same": np.ones(2, np.float32)}

    def total(tree):
        assert tree["cut"].shape == (2,)
        assert tree["same"].shape == (2,)
        return jax.lax.psum((tree["cut"] * tree["same"]).sum(), DATA)

    program = mesh.compile(total, (tree,), specs)
    assert float(local(program(mesh.place(tree, specs[0])))) == 6.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgcn", pytest.param("han", marks=pytest.mark.slow)])
def test_an_update_on_two_axes_is_that_on_one(name):
    """Shards of `rel` that all hold everything give what one device gives."""
    execution = sampled(academic(), recipe(name))
    program, state = execution.update_program(num_devices=1), execution.initial_state(1)
    batch = next(iter(SampledFeed(execution.source, execution.batches(0)).iterate(Cursor())))
    arguments = (state, execution.layout.resident, *jax.device_get(batch.arguments))
    specs = (execution.state_specs, REPLICATED, SHARDED, SHARDED)
    found = []
    for mesh in (DeviceMesh(1), DeviceMesh(2, relation_shards=2)):
        compiled = mesh.compile(program, arguments, specs)
        placed = [mesh.place(each, spec) for each, spec in zip(arguments, specs, strict=True)]
        found.append(jax.tree.map(lambda leaf: np.asarray(local(leaf)), compiled(*placed)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found[0], found[1])
    assert float(found[0][1].loss) > 0
    assert not jnp.allclose(jax.tree.leaves(found[0][0].params)[0], jax.tree.leaves(state.params)[0])
