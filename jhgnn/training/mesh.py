"""The mesh of a run: its devices on named axes, how arrays reach them, and programs mapped over them.

Devices along the axis `data` compute different targets of a batch. Devices along the axis `rel` compute different
relations of the same targets; a mesh has it only where a strategy asks for it. A `PartitionSpec` for each leaf of state
and batch says along which axis its leading dimension is cut. A spec in the place of a whole argument, or of a subtree,
holds for all of its leaves. Whatever is summed over devices is summed explicitly, inside the programs.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jhgnn.errors import InputError
from jhgnn.training.programs import Compiled, compile_lowered

DATA, REL = "data", "rel"
REPLICATED = PartitionSpec()
SHARDED = PartitionSpec(DATA)
"""Cut along the leading dimension, one part a place of the axis `data`."""
BY_DEVICE = PartitionSpec((DATA, REL))
"""Cut along the leading dimension, one part a device of a mesh of both axes, `rel` within `data`."""
Specs: TypeAlias = Any
"""A `PartitionSpec`, or a pytree of them that an argument's begins with."""


class DeviceMesh:
    """The devices of a run, `[data, rel]`, in the order of processes; place i of `data` takes shard i of every batch.

    Attributes:
        devices: those of all processes.
        size: places on the axis `data`.
        local_shards: numbers of this process's places on that axis.
        local_devices: place on `data` and on `rel` of each of this process's devices.
        local_numbers: their numbers among `devices`.
    """

    def __init__(self, devices_per_process: int = 0, *, relation_shards: int = 1) -> None:
        """
        Args:
            devices_per_process: local devices of each process; 0 for all.
            relation_shards: places on the axis `rel`; they may reach over several processes.

        Raises:
            InputError: a process has fewer devices, or relation shards do not divide over processes.
        """
        present = jax.local_device_count()
        if devices_per_process > present:
            raise InputError(f"distributed.devices = {devices_per_process}, but there are {present} local devices")
        count = devices_per_process or present
        by_process: dict[int, list[jax.Device]] = {}
        for device in jax.devices():
            by_process.setdefault(device.process_index, []).append(device)
        self.devices = tuple(device for _, local in sorted(by_process.items()) for device in local[:count])
        within = relation_shards >= 1 and count % relation_shards == 0
        if not within and (relation_shards < 1 or relation_shards % count or len(self.devices) % relation_shards):
            raise InputError(f"{count} devices of a process do not divide over {relation_shards} relation shards")
        places = np.array(self.devices).reshape(-1, relation_shards)
        own = np.vectorize(lambda device: device.process_index == jax.process_index(), otypes=[bool])(places)
        mine = np.flatnonzero(own.any(axis=1))
        self.local_shards = range(int(mine[0]), int(mine[-1]) + 1)
        numbers = np.flatnonzero(own)
        self.local_numbers = range(int(numbers[0]), int(numbers[-1]) + 1)
        self.local_devices = tuple((int(place), int(shard)) for place, shard in np.argwhere(own))
        self.size, self.relation_shards = places.shape
        axes = (DATA, REL) if relation_shards > 1 else (DATA,)
        shaped = places if relation_shards > 1 else places[:, 0]
        self.mesh = Mesh(shaped, axes, axis_types=(AxisType.Auto,) * len(axes))

    @property
    def axes(self) -> tuple[str, ...]:
        """All of them; a device's index on them together is its number among `devices`."""
        return self.mesh.axis_names

    @property
    def by_device(self) -> PartitionSpec:
        """Cut along the leading dimension, one part a device."""
        return BY_DEVICE if self.relation_shards > 1 else SHARDED

    @property
    def leads(self) -> bool:
        """Whether this process writes the run's files."""
        return jax.process_index() == 0

    @property
    def platform(self) -> str:
        """What programs are compiled for: `cpu`, `gpu` or `tpu`."""
        return self.devices[0].platform

    def place(self, tree: Any, specs: Specs) -> Any:
        """Arrays on the devices; where a spec is `SHARDED`, of a leading axis over this process's places of `data`."""
        shardings = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), _by_leaf(specs, tree), is_leaf=_is_spec)
        if jax.process_count() == 1:
            return jax.device_put(tree, shardings)
        return jax.tree.map(
            lambda leaf, sharding: jax.make_array_from_process_local_data(sharding, np.asarray(local(leaf))),
            tree,
            shardings,
        )

    def take_over(self, tree: Any, specs: Specs) -> Any:
        """`place` of arrays that JAX made on this process's device and that nobody else holds, copying none of them.

        What `place` makes of them in several processes shares their memory, which a step can then not be given to
        write its results into: the first one would hold the whole state twice.
        """
        if jax.process_count() == 1 or len(self.local_devices) > 1:
            return self.place(tree, specs)

        def whole(leaf: jax.Array, spec: PartitionSpec) -> jax.Array:
            count = len(self.devices) if spec == BY_DEVICE else self.size
            shape = leaf.shape if spec == REPLICATED else (count, *leaf.shape[1:])
            return jax.make_array_from_single_device_arrays(shape, NamedSharding(self.mesh, spec), [leaf])

        return jax.tree.map(whole, tree, _by_leaf(specs, tree))

    def compile(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        specs: Sequence[Specs],
        *,
        donate: tuple[int, ...] = (),
        results: Specs = REPLICATED,
    ) -> Compiled:
        """Maps and compiles a function, as `lower` says."""
        return compile_lowered(lambda: self.lower(function, arguments, specs, donate=donate, results=results))

    def lower(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        specs: Sequence[Specs],
        *,
        donate: tuple[int, ...] = (),
        results: Specs = REPLICATED,
    ) -> jax.stages.Lowered:
        """Maps a function over the mesh and traces it.

        `jax.pmap` wraps the case of one axis in one process, `jax.shard_map` all others: of several processes `pmap`
        would place arrays on the devices to lower, as large as all arguments.

        Args:
            function: takes what one device holds: `SHARDED` leaves without their leading axis.
            arguments: arrays or their shapes as one process holds them.
            specs: of `REPLICATED`, `SHARDED` and `BY_DEVICE`, one for each argument or its leaves.
            donate: numbers of the arguments whose memory the results take over.
            results: specs of what it gives back: `REPLICATED` leaves are the same on all devices.
        """
        if self.relation_shards == 1 and jax.process_count() == 1:
            axes = tuple(jax.tree.map(_axis, each, is_leaf=_is_spec) for each in specs)
            made = jax.tree.map(_axis, results, is_leaf=_is_spec)
            mapped = jax.pmap(
                function, axis_name=DATA, in_axes=axes, out_axes=made, donate_argnums=donate, devices=self.devices
            )
            return mapped.lower(*arguments)
        by_leaf = tuple(_by_leaf(each, argument) for each, argument in zip(specs, arguments, strict=True))

        def on_one_device(*own: Any) -> Any:
            found = function(*jax.tree.map(lambda leaf, spec: leaf if spec == REPLICATED else leaf[0], own, by_leaf))
            made = _by_leaf(results, found)
            return jax.tree.map(lambda leaf, spec: leaf if spec == REPLICATED else leaf[None], found, made)

        def shaped(leaf: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
            places = self.size * (self.relation_shards if spec == BY_DEVICE else 1)
            shape = leaf.shape if spec == REPLICATED else (places, *leaf.shape[1:])
            return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=NamedSharding(self.mesh, spec))

        mapped = jax.shard_map(on_one_device, mesh=self.mesh, in_specs=by_leaf, out_specs=results, check_vma=False)
        return jax.jit(mapped, donate_argnums=donate).lower(*jax.tree.map(shaped, tuple(arguments), by_leaf))


def _is_spec(node: Any) -> bool:
    return isinstance(node, PartitionSpec)


def _axis(spec: PartitionSpec) -> int | None:
    return None if spec == REPLICATED else 0


def _by_leaf(specs: Specs, tree: Any) -> Any:
    """A spec for each leaf of a tree, from specs that its own begins with."""
    return jax.tree.map(lambda spec, part: jax.tree.map(lambda _: spec, part), specs, tree, is_leaf=_is_spec)


def local(leaf: Any) -> Any:
    """A replicated array as this process holds it, on one device."""
    return leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf
