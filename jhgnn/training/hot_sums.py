"""Computes the first layer's sums over neighbours of hot vertices, on the host; see `jhgnn.training.super_batches`.

Vertices are computed in pieces: so many of each type at once. Of several processes each computes every so many-th
vertex of a piece. Shapes are learnt by sampling some super-batches, alike in all processes.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import SingleDeviceSharding

from jhgnn.graph.sampled import PADDING
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import SampledInputs
from jhgnn.sampling.block_arrays import block_arrays
from jhgnn.sampling.capacities import Buckets, presampled
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.hot import Receivers
from jhgnn.stores.device import DeviceRows
from jhgnn.training.execution import num_bytes
from jhgnn.training.fetched_rows import CutStores, FetchedRows
from jhgnn.training.programs import compile_lowered
from jhgnn.training.sampled_step import Resident
from jhgnn.training.state import Params, TrainState, dropout_seed

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled

MOST_VERTICES = 4096
"""Hot vertices of a type that a process computes at once; fewer where their inputs would not fit the memory."""
LEARNT_FROM = 4  # super-batches that shapes are learnt from


class Results(NamedTuple):
    """Rows that were computed together: slots int32 `[n]`, -1 for none, and rows `[n, width]`, both by type."""

    slots: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


class HotSums:
    """What computes rows; not for several threads at once.

    Attributes:
        sizes: vertices of each type in a piece, over all processes.
        stores: the rows of the inputs that this host does not have; None where it has, or is given, all of them.
        vertices: rows computed.
    """

    def __init__(self, execution: "Sampled", resident: Resident | None) -> None:
        """Plans what is computed together, and compiles it.

        Args:
            resident: what is on the devices, where rows are cut over them.
        """
        reuse = execution.sampling.reuse
        assert reuse is not None
        self._execution, self._reuse, self._mesh = execution, reuse, execution.mesh
        settings, own_places = execution.config.sampling, execution.mesh.local_shards
        self._processes = self._mesh.size // len(own_places)
        self._process = own_places.start // len(own_places)
        self._batches = execution.batches(execution.config.run.seed)
        self._device = jax.local_devices(backend="cpu")[0]  # beside an accelerator; on a CPU, one of those that train
        self._receivers = Receivers(execution.plain.sampled, execution.plain.plan, settings.threads)
        self._sampler = HostSampler(execution.plain.sampled, reuse.bottom, settings.threads)
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))
        self.stores = self._cut_stores(resident)
        self._seen = [self.met(number) for number in range(self._learnt_from)]
        self.sizes, self._buckets = self._learn(int(settings.prefetch_memory_gib * 2**30))
        self._programs = [self._compiled(bucket) for bucket in range(len(self._buckets.capacities))]
        self.vertices = 0

    def begin(self, batches: EpochBatches) -> None:
        """The batches that come; those of another seed have another order."""
        self._batches, self._order = batches, (-1, np.zeros(0, np.int64))

    # What follows from samples alone

    def met(self, number: int) -> dict[str, np.ndarray]:
        """The slots of the hot vertices that a super-batch will meet, on any device: type -> int32, ascending."""
        batches, every, found = self._batches, self._reuse.every, {}
        for name, count in self._execution.plain.plan.num_nodes.items:
            if name in self._reuse.ids:
                found[name] = np.zeros(count, bool)
        for step in range(number * every, (number + 1) * every):
            cursor = Cursor(*divmod(step, batches.steps_per_epoch))
            if self._order[0] != cursor.epoch:
                self._order = (cursor.epoch, batches.order(cursor.epoch))
            ids = batches.batch(self._order[1], cursor.step)
            seeds = self._execution.seeds_of(ids, batches.seed, step % 2**32)
            for name, met in self._receivers.of(seeds, batches.seed, step % 2**32).items():
                if name in found:
                    found[name][met] = True
        return {name: np.flatnonzero(met[self._reuse.ids[name]]).astype(np.int32) for name, met in found.items()}

    def met_of(self, ids: Mapping[str, np.ndarray]) -> float:
        """How many of some hot vertices the first super-batches of an epoch meet, on the mean."""
        found = []
        for number in range(self._learnt_from):
            met = self.met(number)
            found += [sum(int(np.isin(self._reuse.ids[name][own], ids[name]).sum()) for name, own in met.items())]
        return sum(found) / len(found)

    def read_by(
        self, slots: Mapping[str, np.ndarray], number: int, process: int | None = None
    ) -> dict[str, np.ndarray]:
        """The rows of `stores` that computing some slots of a super-batch reads in a process, this one unless said:
        type -> int32 ids, ascending, each once.
        """
        assert self.stores is not None
        process = self._process if process is None else process
        read = {name: np.zeros(self._execution.plain.plan.num_nodes[name], bool) for name in self.stores.met}
        for piece in self._pieces(slots, process):
            blocks, _ = self._sampler.sample(
                self._vertices(piece), self._batches.seed, self._step(number), self._buckets
            )
            for name, own in read.items():
                ids = blocks.nodes[name]
                own[ids[ids >= 0]] = True
        return {name: np.flatnonzero(own).astype(np.int32) for name, own in read.items()}

    def learnt_reads(self) -> Iterator[dict[str, np.ndarray]]:
        """What each process reads of `stores` in the super-batches that shapes were learnt from, alike in all."""
        for number, met in enumerate(self._seen):
            for process in range(self._processes):
                yield self.read_by(met, number, process)

    # Rows

    def computed(
        self, slots: Mapping[str, np.ndarray], number: int, params: Params, seed: Any, fetched: FetchedRows | None
    ) -> list[Results]:
        """This process's rows in some slots, of neighbours drawn for a super-batch.

        Args:
            params: with whole tables, or without any where `fetched` has their rows.
            seed: of dropout.
            fetched: the rows of `stores` that `read_by` tells; None where there are none.
        """
        params, seed = jax.device_put((params, seed), self._device)
        step, results = self._step(number), []
        for piece in self._pieces(slots, self._process):
            blocks, bucket = self._sampler.sample(self._vertices(piece), self._batches.seed, step, self._buckets)
            on_rows = params if fetched is None else with_tables(params, self._learnt_rows(blocks, fetched))
            rows = self._programs[bucket](on_rows, self._inputs(blocks, fetched), seed, np.int32(step))
            results.append(Results(piece, {name: np.asarray(own) for name, own in rows.items()}))
            self.vertices += sum(int((own >= 0).sum()) for own in piece.values())
        return results

    def _step(self, number: int) -> int:
        """By which a super-batch's neighbours are drawn: that of its first batch."""
        return number * self._reuse.every % 2**32

    def _pieces(self, slots: Mapping[str, np.ndarray], process: int) -> Iterator[dict[str, np.ndarray]]:
        """A process's slots of each type, filled with -1, as many as it computes together."""
        count = max((-(-len(own) // self.sizes[name]) for name, own in slots.items()), default=0)
        for piece in range(count):
            found = {}
            for name, own in slots.items():
                size = self.sizes[name]
                part = own[piece * size : (piece + 1) * size]
                filled = np.concatenate([part, np.full(size - len(part), -1)]).astype(np.int32)
                found[name] = filled[process :: self._processes]  # so that all have equally much to do
            yield found

    def _vertices(self, slots: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        ids = self._reuse.ids
        return {name: np.where(own >= 0, ids[name][np.maximum(own, 0)], PADDING) for name, own in slots.items()}

    def _inputs(self, blocks: Any, fetched: FetchedRows | None) -> SampledInputs:
        sampling = self._execution.sampling
        features = self._features(blocks, fetched)
        return SampledInputs(features, with_edges(blocks, sampling.compressed), sampling.endpoints)

    def _features(self, blocks: Any, fetched: FetchedRows | None) -> dict[str, Any]:
        execution, apart = self._execution, {} if self.stores is None else self.stores.features
        if fetched is None or not apart:
            return execution.features_of(blocks)

        def rows(name: str, ids: np.ndarray) -> Any:
            return fetched.gather(name, ids) if name in apart else execution.features.gather(name, ids)

        return execution.features_of(blocks, rows)

    def _learnt_rows(self, blocks: Any, fetched: FetchedRows) -> dict[str, np.ndarray]:
        """The rows of learnable tables that blocks read; none of a type that is never met."""
        assert self.stores is not None
        return {
            name: fetched.gather(name, blocks.nodes[name])
            if name in self.stores.met
            else np.zeros(shape.shape, shape.dtype)
            for name, shape in self._abstract_learnt(blocks).items()
        }

    def _rows(self, params: Params, inputs: SampledInputs, seed: jax.Array, step: jax.Array) -> dict[str, jax.Array]:
        """Traced: the first layer's sums over neighbours of the vertices that `inputs` were drawn for."""
        tables = DeviceRows(tables_of(params))
        met = {name: name in inputs.blocks.nodes for name in tables.node_types}
        rows = {
            name: tables.gather(name, inputs.ids(name)) if met[name] else tables.tables[name][:0]
            for name in tables.node_types
        }
        return self._sums(with_tables(params, rows), inputs, seed, step)

    def _sums(self, on_rows: Params, inputs: SampledInputs, seed: jax.Array, step: jax.Array) -> dict[str, jax.Array]:
        """Traced: the same, of parameters that hold, in the place of each table, the rows of it that `inputs` read."""
        model: Any = nnx.merge(self._execution.structure, on_rows)
        dropout = dropout_seed(TrainState(step, seed, (), ()))
        made = model.of_neighbors(inputs, dropout)
        return {name: made[name][: self.sizes[name] // self._processes] for name in self._reuse.ids}

    # Shapes and programs

    @property
    def _learnt_from(self) -> int:
        """Super-batches of the first epoch, of which there is one at least."""
        return min(LEARNT_FROM, max(1, self._batches.steps_per_epoch // self._reuse.every))

    def _cut_stores(self, resident: Resident | None) -> CutStores | None:
        execution, bottom = self._execution, self._reuse.bottom
        if execution.parts is None:
            return None
        assert resident is not None
        slots = bottom.bound_capacities(dict.fromkeys(bottom.seed_types, 1))[-1]
        return CutStores(execution, resident, {name for name, count in slots.items if count})

    def _learn(self, limit_bytes: int) -> tuple[dict[str, int], Buckets]:
        """How many vertices of each type are computed together, and the capacities of a process's neighbours."""
        places, seen = self._mesh.size, self._seen
        most = {name: max(len(met[name]) for met in seen) for name in self._reuse.ids}

        def rounded(count: int) -> int:
            unit = places * 8
            return max(unit, -(-count // unit) * unit)

        bound = MOST_VERTICES * self._processes
        while True:
            sizes = {name: rounded(min(bound, count + count // 8)) for name, count in most.items()}
            self.sizes = sizes
            pieces: Iterable[dict[str, np.ndarray]] = [
                piece for met in seen for process in range(self._processes) for piece in self._pieces(met, process)
            ] or [{name: np.full(size // self._processes, -1) for name, size in sizes.items()}]
            seeds = [self._vertices(piece) for piece in pieces]
            buckets = presampled(self._sampler, self._batches.seed, seeds, quantiles=(1.0,))
            if self._input_bytes(buckets) <= limit_bytes or bound <= places * 8:
                return sizes, buckets
            bound //= 2

    def _input_bytes(self, buckets: Buckets) -> int:
        inputs = self._abstract_inputs(buckets, 0)
        return num_bytes((inputs, {} if self.stores is None else self._abstract_learnt(inputs.blocks)))

    def _abstract_inputs(self, buckets: Buckets, bucket: int) -> SampledInputs:
        sampling, apart = self._execution.sampling, {} if self.stores is None else self.stores.features

        def array(*shape: int, dtype: Any = jnp.int32) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype)

        def rows(name: str, ids: Any) -> Any:
            if self.stores is not None and name in apart:
                return self.stores.abstract_rows(name, ids.shape[0])
            return sampling.features.abstract(name, ids)

        capacities = buckets.capacities[bucket]
        blocks = block_arrays(self._reuse.bottom, capacities, array, compressed=sampling.compressed)
        return SampledInputs(self._execution.features_of(blocks, rows), blocks, sampling.endpoints)

    def _abstract_learnt(self, blocks: Any) -> dict[str, Any]:
        """Shapes of the rows of cut tables that blocks read."""
        assert self.stores is not None
        return {
            name: self.stores.abstract_rows(name, blocks.nodes[name].shape[0])
            if name in self.stores.met
            else jax.ShapeDtypeStruct((0, *table.shape[1:]), table.dtype)
            for name, table in tables_of(self._execution.abstract_params).items()
        }

    def _compiled(self, bucket: int) -> Any:
        seed, step = jax.ShapeDtypeStruct((), jnp.uint32), jax.ShapeDtypeStruct((), jnp.int32)
        inputs, params = self._abstract_inputs(self._buckets, bucket), self._execution.abstract_params
        made = jax.jit(self._rows)
        if self.stores is not None:
            made, params = jax.jit(self._sums), with_tables(params, self._abstract_learnt(inputs.blocks))
        arguments = on_one_device((params, inputs, seed, step), self._device)
        return compile_lowered(lambda: made.lower(*arguments))


def on_one_device(tree: Any, device: jax.Device) -> Any:
    """Shapes of arrays on one device."""
    where = SingleDeviceSharding(device)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree)
