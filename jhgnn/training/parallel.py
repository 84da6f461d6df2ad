"""Data parallelism: the devices that share each batch, how arrays reach them, and programs mapped over them.

`jax.pmap` maps a function over the axis `data`, over the devices of one process or of several; everything that is
summed over devices is summed inside it, explicitly.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jhgnn.errors import InputError
from jhgnn.training.step import Compiled, compile_lowered

AXIS = "data"


class Fleet:
    """The devices of a run, in the order of processes; device i takes shard i of every batch.

    Attributes:
        devices: of all processes.
        local_shards: which of them belong to this process.
    """

    def __init__(self, devices_per_process: int = 0) -> None:
        """`devices_per_process` local devices of each process, 0 for all.

        Raises:
            InputError: a process has fewer.
        """
        own = jax.local_device_count()
        if devices_per_process > own:
            raise InputError(f"distributed.devices = {devices_per_process}, but there are {own} local devices")
        count = devices_per_process or own
        by_process: dict[int, list[jax.Device]] = {}
        for device in jax.devices():
            by_process.setdefault(device.process_index, []).append(device)
        self.devices = tuple(device for _, local in sorted(by_process.items()) for device in local[:count])
        mine = [i for i, device in enumerate(self.devices) if device.process_index == jax.process_index()]
        self.local_shards = range(mine[0], mine[-1] + 1)
        mesh = Mesh(np.array(self.devices), (AXIS,))
        self._replicated, self._sharded = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(AXIS))

    @property
    def size(self) -> int:
        return len(self.devices)

    @property
    def leads(self) -> bool:
        """Whether this process writes the run's files."""
        return jax.process_index() == 0

    def replicate(self, tree: Any) -> Any:
        """The same arrays on every device."""
        return self._place(tree, self._replicated)

    def shard(self, tree: Any) -> Any:
        """Arrays with a leading axis over this process's devices, each device's part on it."""
        return self._place(tree, self._sharded)

    def _place(self, tree: Any, sharding: NamedSharding) -> Any:
        if jax.process_count() == 1:
            return jax.device_put(tree, sharding)
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(local(leaf))), tree
        )

    def compile(
        self, function: Callable[..., Any], arguments: Sequence[Any], *, batch: int, donate: tuple[int, ...] = ()
    ) -> Compiled:
        """Maps and compiles a function; argument number `batch` is split over devices, all others and results are not.

        Args:
            arguments: arrays or their shapes as one process holds them: the batch with its leading axis.
            donate: numbers of the arguments whose memory the results take over.
        """
        return compile_lowered(lambda: self.lower(function, arguments, batch=batch, donate=donate))

    def lower(
        self, function: Callable[..., Any], arguments: Sequence[Any], *, batch: int, donate: tuple[int, ...] = ()
    ) -> jax.stages.Lowered:
        """Maps and traces a function, as `compile` says."""
        axes = tuple(0 if number == batch else None for number in range(len(arguments)))
        mapped = jax.pmap(
            function, axis_name=AXIS, in_axes=axes, out_axes=None, donate_argnums=donate, devices=self.devices
        )
        if jax.process_count() > 1:  # lowering places its arguments there, so it needs some
            arguments = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), arguments)
        return mapped.lower(*arguments)


def local(leaf: Any) -> Any:
    """A replicated array as this process holds it, on one device."""
    return leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf
