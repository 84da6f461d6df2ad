"""Shapes of a mini-batch as programs are compiled for it, and the bytes that training on it keeps on a device."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jhgnn.sampling.block_arrays import block_arrays
from jhgnn.training.execution import num_bytes
from jhgnn.training.mesh import REPLICATED, Specs
from jhgnn.training.sampled_step import Shard

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled


def abstract_shard(execution: "Sampled", bucket: int = 0, num_shards: int | None = None) -> Shard:
    """Shapes and dtypes of a batch, with an axis over this process's devices, and one over parts if several."""
    sampling, parts = execution.sampling, execution.shares.num_parts
    shards = len(execution.mesh.local_shards) if num_shards is None else num_shards
    share = execution.shares.size
    batch_ids = None
    if sampling.facts and sampling.side[0] == "device":
        batch_ids = jax.ShapeDtypeStruct((shards, execution.config.sampling.batch_size), jnp.int32)
    if sampling.side[0] == "device":
        ids = jax.ShapeDtypeStruct((shards, parts * share), jnp.int32)
        return Shard(ids, None, {}, jax.ShapeDtypeStruct((shards, 2), jnp.uint32), batch_ids)

    def array(*shape: int, dtype: Any = jnp.int32) -> Any:
        return jax.ShapeDtypeStruct((shards * parts, *shape), dtype)

    blocks = block_arrays(
        sampling.plan,
        execution.layout.buckets.capacities[bucket],
        array,
        compressed=sampling.compressed,
        weighted=[stack.name for stack in sampling.stacks],
        featured={name: own.of_entries for name, own in sampling.facts.items() if own.of_entries is not None},
    )
    features = {} if sampling.features_on_device[0] else execution.features_of(blocks, sampling.features.abstract)
    found = (array(share), blocks, features, array(2, dtype=jnp.uint32) if sampling.reuse is not None else None)
    if parts > 1:
        found = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((shards, parts, *leaf.shape[1:]), leaf.dtype), found)
    return Shard(*found)


def resident_bytes(execution: "Sampled") -> int:
    """Bytes that stay on a device from step to step, and those of the batches that wait on the host for it."""
    params_bytes = device_bytes(execution, execution.placed(execution.abstract_params), execution.params_specs)
    share = num_bytes(execution.abstract_shard(0, 1))
    sampling, ahead = execution.config.sampling, 0
    if execution.sampling.side[0] == "host" and sampling.prefetch_threads:
        ahead = min(sampling.prefetch_depth * share, int(sampling.prefetch_memory_gib * 2**30))
    state_bytes = device_bytes(execution, execution.placed(execution.abstract_state), execution.state_specs)
    kept_bytes = device_bytes(execution, execution.layout.resident, execution.resident_specs)
    if execution.evaluated is not execution and execution.has_evaluation_program:
        edges, own = execution.evaluated.layout.resident.edges, execution.layout.resident.edges
        kept_bytes += num_bytes([edges[name] for name in edges if name not in own])
    return kept_bytes + state_bytes + params_bytes + share + ahead


def device_bytes(execution: "Sampled", tree: Any, specs: Specs) -> int:
    """Of a tree on one device, from its arrays or their shapes on this process's devices."""
    if execution.parts is None:
        return num_bytes(tree)
    count = len(execution.parts.own_places)
    cut = jax.tree.map(
        lambda spec, part: num_bytes(part) // (1 if spec == REPLICATED else count),
        specs,
        tree,
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )
    return sum(jax.tree.leaves(cut))
