"""Devices that are not here, as JAX sees them when it compiles for them."""

import functools
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bench.gpu.devices import GPUS

AXIS = "data"


@functools.cache
def mesh(gpu: str, count: int) -> Mesh:
    """So many devices of a kind of `GPUS` in one machine, along the axis `data`."""
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=GPUS[gpu].target_config(), topology=f"1x{count}x1"
    )
    return topologies.make_mesh(topology, (count,), (AXIS,))


def on(gpu: str, tree: Any) -> Any:
    """Shapes of arrays on one device of that kind."""
    whole = NamedSharding(mesh(gpu, 1), PartitionSpec())
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole), tree)
