"""Super-batches: rows of the first layer that are computed for hot vertices beside the steps, one super-batch ahead.

A row is the sum over a vertex's neighbours and relations, before its own part, bias and activation; of HAN the sum over
neighbours along each metapath, before bias, activation and fusion: see `KeptRows`.

A super-batch is n consecutive batches. With the weights as they are before the first step of super-batch k - 1, a
helper computes the rows of super-batch k: of the hot vertices that its batches will meet, which stateless sampling
tells. The rows of the first two super-batches are of the weights at their beginning. So a row that a step reuses is of
weights n to 2n - 1 updates ago, or less in the first super-batch. This schedule is a function of the step alone: where
the helper is late, training waits for it. Each row carries its version, and the compiled step checks it (`KeptRows`).

Source: Ai et al., NeutronOrch (PVLDB 17(8)): the super-batch pipeline.
"""

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import SingleDeviceSharding

from jhgnn.graph.sampled import PADDING
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import SampledInputs
from jhgnn.nn.reuse import NOT_REUSED, KeptRows
from jhgnn.sampling.block_arrays import block_arrays
from jhgnn.sampling.capacities import Buckets, presampled
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.hot import Receivers
from jhgnn.sampling.loader import LoaderError
from jhgnn.stores.device import DeviceRows
from jhgnn.training.execution import Batch, num_bytes
from jhgnn.training.mesh import DATA, REPLICATED, SHARDED, local
from jhgnn.training.programs import compile_lowered
from jhgnn.training.sampled_step import Shard
from jhgnn.training.state import Params, TrainState, dropout_seed

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled

MOST_VERTICES = 4096
"""Hot vertices of a type that the helper computes at once; fewer where their inputs would not fit the memory."""
LEARNT_FROM = 4  # super-batches that shapes are learnt from


class Results(NamedTuple):
    """Rows that were computed together: slots int32 `[n]`, -1 for none, and rows `[n, width]`, both by type."""

    slots: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


class Made(NamedTuple):
    """All rows of a super-batch: what was computed together, one after the other, and the version of all."""

    results: list[Results]
    version: int


class SuperBatches:
    """Keeps the rows that steps reuse, and has the next ones computed meanwhile.

    One super-batch is in preparation at a time, one piece after the other. So what lies ahead is bounded: the inputs of
    a piece, by `sampling.prefetch_memory_gib`, the rows made, which are no more than those kept, and a copy of the
    parameters.

    Attributes:
        wait_s: seconds that training waited for the helper.
        busy_s: seconds that the helper worked.
        vertices: rows computed by it.
        made: super-batches computed by it.
    """

    def __init__(self, execution: "Sampled") -> None:
        """Plans what is computed together, and compiles it."""
        reuse = execution.sampling.reuse
        assert reuse is not None
        self._execution, self._reuse, self._mesh = execution, reuse, execution.mesh
        settings = execution.config.sampling
        self._batches = execution.batches(execution.config.run.seed)
        self._device = jax.local_devices(backend="cpu")[0]  # beside an accelerator; on a CPU, one of those that train
        self._receivers = Receivers(execution.plain.sampled, execution.plain.plan, settings.threads)
        self._sampler = HostSampler(execution.plain.sampled, reuse.bottom, settings.threads)
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))
        self.sizes, self._buckets = self._learn(int(settings.prefetch_memory_gib * 2**30))
        self._programs = [self._compiled(bucket) for bucket in range(len(self._buckets.capacities))]
        self._copy = self._compiled_copy()
        kept = execution.layout.resident.kept
        self._unmade: Mapping[str, KeptRows] = self._mesh.place(kept, REPLICATED)
        self._merge = self._compiled_merge()
        self._threads = ThreadPoolExecutor(1, "jhgnn-hot") if settings.prefetch_threads else None
        self._current, self._number, self._restored = self._unmade, -1, False
        self._next: Future[Made] | Mapping[str, KeptRows] | None = None
        self._work = threading.Lock()  # a seed's last task may still run when the next seed begins
        self.wait_s = self.busy_s = 0.0
        self.vertices = self.made = 0

    # What steps read

    def begin(self, batches: EpochBatches) -> None:
        """The batches that come, from any one on; rows kept before are forgotten, but for those of `restore`."""
        self._batches, self._order = batches, (-1, np.zeros(0, np.int64))  # another seed has another order
        if not self._restored:
            self.restore(None)
        self._restored = False

    def kept(self, state: TrainState, batch: Batch) -> Mapping[str, KeptRows]:
        """The rows that a batch may reuse, on the devices; called in the order of the batches.

        Raises:
            LoaderError: they could not be computed; the cause is what the helper raised.
        """
        number = self._batches.global_step(batch.cursor) // self._reuse.every
        if number != self._number:
            snapshot, version = self._snapshot(state), int(local(state.step))
            self._current = self._rows_of(number, snapshot, version)
            self._number, self._next = number, self._started(number + 1, snapshot, version)
        return self._current

    def _rows_of(self, number: int, snapshot: tuple[Params, Any], version: int) -> Mapping[str, KeptRows]:
        """The rows of a super-batch: those computed ahead, or, where none were, such as of these weights."""
        ahead = self._next if self._number >= 0 and number == self._number + 1 else None
        if isinstance(ahead, Mapping):
            return self._mesh.place(ahead, REPLICATED)
        started = time.perf_counter()
        if ahead is None:
            ahead, base = self._started(number, snapshot, version), self._unmade
        else:
            base = self._current
        made = self._finished(ahead)
        self.wait_s += time.perf_counter() - started
        for each in made.results:
            base = self._merge(base, self._cut(each), np.int32(made.version))
        return base

    def _finished(self, ahead: "Future[Made]") -> Made:
        try:
            return ahead.result()
        except Exception as error:
            raise LoaderError("rows of hot vertices could not be computed") from error

    def _started(self, number: int, snapshot: tuple[Params, Any], version: int) -> "Future[Made]":
        if self._threads is not None:
            return self._threads.submit(self._make, number, *snapshot, version)
        done: Future[Made] = Future()
        try:
            done.set_result(self._make(number, *snapshot, version))
        except Exception as error:
            done.set_exception(error)
        return done

    def _snapshot(self, state: TrainState) -> tuple[Params, Any]:
        """A copy of the parameters, which the next step takes over, and the seed of dropout."""
        return self._copy(*jax.tree.map(local, (state.params, state.seed)))

    def ages(self, state: TrainState, shard: Shard) -> np.ndarray:
        """The ages in updates of all rows that a batch on the devices reuses, int32 `[rows]`."""
        found = [np.zeros(0, np.int32)]
        step = np.asarray(local(state.step))
        for name, kept in jax.tree.map(local, dict(self._current)).items():
            capacities = shard.blocks.capacities[-2]
            if name not in capacities:
                continue
            nodes = np.asarray(shard.blocks.nodes[name])[..., : capacities[name]].reshape(-1)
            number = np.asarray(shard.draw).reshape(-1, 2)[0, 1]
            of_slots = np.asarray(kept.ages(jnp.asarray(nodes), jnp.uint32(number), jnp.asarray(step)))
            found.append(of_slots[of_slots != NOT_REUSED])
        return np.concatenate(found)

    def too_old(self, state: TrainState, shard: Shard) -> str:
        """What is wrong with the rows that a batch reuses, or nothing."""
        ages, bound = self.ages(state, shard), 2 * self._reuse.every
        wrong = ages[(ages < 0) | (ages >= bound)]
        if not len(wrong):
            return ""
        return f"{len(wrong)} reused rows of hot vertices are not below {bound} updates old, but {int(wrong.max())}"

    def met_of(self, ids: Mapping[str, np.ndarray]) -> float:
        """How many of some hot vertices the first super-batches of an epoch meet, on the mean."""
        count = max(1, self._batches.steps_per_epoch // self._reuse.every)
        found = []
        for number in range(min(LEARNT_FROM, count)):
            met = self._met(number)
            found += [sum(int(np.isin(self._reuse.ids[name][own], ids[name]).sum()) for name, own in met.items())]
        return sum(found) / len(found)

    # Checkpoints

    @property
    def saved(self) -> dict[str, Any]:
        """What a checkpoint holds: the rows of the super-batch at hand and of the next one, on the host.

        It waits for the helper.
        """
        current = jax.tree.map(lambda leaf: np.asarray(local(leaf)), dict(self._current))
        ahead: Mapping[str, KeptRows]
        if isinstance(self._next, Mapping):
            ahead = self._next
        elif self._next is None:
            ahead = current
        else:
            ahead = _with_results(current, self._finished(self._next))
        number = np.array(self._number, np.int32)
        return {"super_batch": number, "current": _results(current), "next": _results(ahead)}

    def restore(self, saved: Any) -> None:
        """Goes on from `saved`, or, with None, from nothing."""
        self._restored = bool(saved)
        self._number = int(local(saved["super_batch"])) if saved else -1
        if self._number < 0:
            self._current, self._next = self._unmade, None
            return
        host, on_host = self._execution.layout.resident.kept, jax.tree.map(lambda leaf: np.asarray(local(leaf)), saved)
        self._current = self._mesh.place(_kept(host, on_host["current"]), REPLICATED)
        self._next = _kept(host, on_host["next"])

    # The helper

    def _make(self, number: int, params: Params, seed: Any, version: int) -> Made:
        """Computes the rows of a super-batch; on the helper's thread."""
        with self._work:
            started = time.perf_counter()
            results = self._computed(self._met(number), number, params, seed)
            self.busy_s += time.perf_counter() - started
            self.made += 1
            return Made(results, version)

    def _computed(self, slots: Mapping[str, np.ndarray], number: int, params: Params, seed: Any) -> list[Results]:
        """The rows in some slots, of neighbours drawn for a super-batch."""
        params, seed = jax.device_put((params, seed), self._device)
        step, results = number * self._reuse.every % 2**32, []
        for piece in self._pieces(slots):
            blocks, bucket = self._sampler.sample(self._vertices(piece), self._batches.seed, step, self._buckets)
            rows = self._programs[bucket](params, self._inputs(blocks), seed, np.int32(step))
            results.append(Results(piece, {name: np.asarray(own) for name, own in rows.items()}))
            self.vertices += sum(int((own >= 0).sum()) for own in piece.values())
        return results

    def of_all(self, params: Params, number: int = 0) -> dict[str, KeptRows]:
        """The rows of all hot vertices, of some weights and the draws of a super-batch, of version 0, on the host."""
        slots = {name: np.arange(len(ids), dtype=np.int32) for name, ids in self._reuse.ids.items()}
        made = Made(self._computed(slots, number, params, np.uint32(0)), 0)
        return _with_results(self._execution.layout.resident.kept, made)

    def _met(self, number: int) -> dict[str, np.ndarray]:
        """The slots of the hot vertices that a super-batch will meet: type -> int32, ascending."""
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

    def _pieces(self, slots: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Slots of each type, filled with -1, as many as are computed together."""
        count = max((-(-len(own) // self.sizes[name]) for name, own in slots.items()), default=0)
        for piece in range(count):
            found = {}
            for name, own in slots.items():
                size = self.sizes[name]
                part = own[piece * size : (piece + 1) * size]
                found[name] = np.concatenate([part, np.full(size - len(part), -1)]).astype(np.int32)
            yield found

    def _vertices(self, slots: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        ids = self._reuse.ids
        return {name: np.where(own >= 0, ids[name][np.maximum(own, 0)], PADDING) for name, own in slots.items()}

    def _inputs(self, blocks: Any) -> SampledInputs:
        features = self._execution.features_of(blocks)
        sampling = self._execution.sampling
        return SampledInputs(features, with_edges(blocks, sampling.compressed), sampling.endpoints)

    def _rows(self, params: Params, inputs: SampledInputs, seed: jax.Array, step: jax.Array) -> dict[str, jax.Array]:
        """Traced: the first layer's sums over neighbours of the vertices that `inputs` were drawn for."""
        tables = DeviceRows(tables_of(params))
        met = {name: name in inputs.blocks.nodes for name in tables.node_types}
        rows = {
            name: tables.gather(name, inputs.ids(name)) if met[name] else tables.tables[name][:0]
            for name in tables.node_types
        }
        model: Any = nnx.merge(self._execution.structure, with_tables(params, rows))
        dropout = dropout_seed(TrainState(step, seed, (), ()))
        made = model.of_neighbors(inputs, dropout)
        return {name: made[name][: self.sizes[name]] for name in self._reuse.ids}

    # Shapes and programs

    def _learn(self, limit_bytes: int) -> tuple[dict[str, int], Buckets]:
        """How many vertices of each type are computed together, and the capacities of their neighbours."""
        places, spe, every = self._mesh.size, self._batches.steps_per_epoch, self._reuse.every
        seen = [self._met(number) for number in range(min(LEARNT_FROM, max(1, spe // every)))]
        most = {name: max(len(met[name]) for met in seen) for name in self._reuse.ids}

        def rounded(count: int) -> int:
            unit = places * 8
            return max(unit, -(-count // unit) * unit)

        bound = MOST_VERTICES
        while True:
            sizes = {name: rounded(min(bound, count + count // 8)) for name, count in most.items()}
            self.sizes = sizes
            pieces = [piece for met in seen for piece in self._pieces(met)]
            seeds = [self._vertices(piece) for piece in pieces or [{n: np.full(s, -1) for n, s in sizes.items()}]]
            buckets = presampled(self._sampler, self._batches.seed, seeds, quantiles=(1.0,))
            if num_bytes(self._abstract_inputs(buckets, 0)) <= limit_bytes or bound <= places * 8:
                return sizes, buckets
            bound //= 2

    def _abstract_inputs(self, buckets: Buckets, bucket: int) -> SampledInputs:
        sampling = self._execution.sampling

        def array(*shape: int, dtype: Any = jnp.int32) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype)

        capacities = buckets.capacities[bucket]
        blocks = block_arrays(self._reuse.bottom, capacities, array, compressed=sampling.compressed)
        features = self._execution.features_of(blocks, sampling.features.abstract)
        return SampledInputs(features, blocks, sampling.endpoints)

    def _compiled_copy(self) -> Any:
        mine = [device for device in self._mesh.devices if device.process_index == jax.process_index()]
        arguments = _on((self._execution.abstract_params, jax.ShapeDtypeStruct((), jnp.uint32)), mine[0])
        copy = jax.jit(lambda *tree: jax.tree.map(jnp.copy, tree))
        return compile_lowered(lambda: copy.lower(*arguments))

    def _compiled(self, bucket: int) -> Any:
        seed, step = jax.ShapeDtypeStruct((), jnp.uint32), jax.ShapeDtypeStruct((), jnp.int32)
        inputs = self._abstract_inputs(self._buckets, bucket)
        arguments = _on((self._execution.abstract_params, inputs, seed, step), self._device)
        return compile_lowered(lambda: jax.jit(self._rows).lower(*arguments))

    def _compiled_merge(self) -> Any:
        """Puts rows that were computed together where steps read them, on every device.

        Each device receives a part of them from the host, and the devices give each other theirs.
        """

        def merge(kept: Mapping[str, KeptRows], part: Results, version: jax.Array) -> dict[str, KeptRows]:
            own = jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, DATA).reshape(-1, *leaf.shape[1:]), part)
            return {name: each.with_rows(own.slots[name], own.rows[name], version) for name, each in kept.items()}

        host = self._execution.layout.resident.kept
        empty = Results(
            {name: np.full(size, -1, np.int32) for name, size in self.sizes.items()},
            {
                name: np.zeros((size, host[name].rows.shape[1]), host[name].rows.dtype)
                for name, size in self.sizes.items()
            },
        )
        arguments = (dict(host), self._divided(empty), np.int32(0))
        return self._mesh.compile(merge, arguments, (REPLICATED, SHARDED, REPLICATED))

    def _divided(self, results: Results) -> Results:
        return jax.tree.map(lambda leaf: leaf.reshape(self._mesh.size, -1, *leaf.shape[1:]), results)

    def _cut(self, results: Results) -> Results:
        """Results on the devices, each of which has its part."""
        host = self._execution.layout.resident.kept
        rows = {name: own.astype(host[name].rows.dtype) for name, own in results.rows.items()}
        return self._mesh.place(self._divided(Results(results.slots, rows)), SHARDED)


def _on(tree: Any, device: jax.Device) -> Any:
    """Shapes of arrays on one device."""
    where = SingleDeviceSharding(device)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree)


def _results(kept: Mapping[str, KeptRows]) -> dict[str, dict[str, np.ndarray]]:
    return {name: {"rows": each.rows, "versions": each.versions} for name, each in kept.items()}


def _kept(like: Mapping[str, KeptRows], results: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, KeptRows]:
    return {
        name: dataclasses.replace(each, rows=results[name]["rows"], versions=results[name]["versions"])
        for name, each in like.items()
    }


def _with_results(kept: Mapping[str, KeptRows], made: Made) -> dict[str, KeptRows]:
    """The same as the devices' merge, on the host."""
    found = {}
    for name, each in kept.items():
        rows, versions = np.array(each.rows), np.array(each.versions)
        for own in made.results:
            valid = own.slots[name] >= 0
            slots = own.slots[name][valid]
            rows[slots], versions[slots] = own.rows[name][valid].astype(rows.dtype), made.version
        found[name] = dataclasses.replace(each, rows=rows, versions=versions)
    return found
