"""Training whose embedding tables, with their moments, are in a file mapped into memory, and not on the device.

A program reads and updates small tables: rows of the fast tier, and behind them room for those of a batch
(`jhgnn.stores.tiered`). The host stages a batch's rows before its update and writes them back after it, so that every
update reads what the one before it wrote. The update itself is that of whole tables: the same rows, the same numbers.

Files of training have no name, and go with the process. A checkpoint has files of its own, copied from them once the
fast tier was written back; a run that is killed goes on from there.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.config import Config
from jhgnn.graph.erased import ids_of_type
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import ModelInputs
from jhgnn.ops.table_rows import read_rows
from jhgnn.stores.device import map_mirrors
from jhgnn.stores.tiered import CHUNK_BYTES, Fast, TieredRows, hit_rates, mapped_array
from jhgnn.tasks.task import Scores
from jhgnn.training.execution import Batch
from jhgnn.training.mesh import REPLICATED, SHARDED, DeviceMesh
from jhgnn.training.programs import Compiled
from jhgnn.training.sampled_programs import SampledPrograms
from jhgnn.training.sampled_step import Resident, SampledReader, Shard
from jhgnn.training.state import Params, TrainState
from jhgnn.training.update import Read, UpdateReport

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled


class MappedReader(SampledReader):
    """Reads tables of rows that were staged for the batch, which says where they are; else in the batch's order."""

    def touched(self, params: Params, inputs: ModelInputs) -> dict[str, jax.Array]:
        ids = super().touched(params, inputs)
        return {name: jnp.where(own >= 0, jnp.arange(len(own), dtype=jnp.int32), -1) for name, own in ids.items()}

    def read(self, params: Params, resident: Resident, batch: Shard) -> Read:
        inputs = self.inputs(resident, batch)
        places = dict(batch.places) or self.touched(params, inputs)
        rows = {
            name: read_rows(table, places[name], implementation=self.sampling.table_rows)
            for name, table in tables_of(params).items()
        }
        return Read(inputs, places, rows)


@dataclasses.dataclass(frozen=True, eq=False)
class Shapes:
    """What programs are compiled for.

    Attributes:
        kept: rows of the fast tier, by type.
        slots: of each bucket, rows that a batch reads, by type.
    """

    kept: Mapping[str, int]
    slots: Sequence[Mapping[str, int]]

    def describe(self, records: Mapping[str, np.ndarray]) -> str:
        """What is where, for a person."""
        size = sum(own.nbytes for own in records.values())
        kept = ", ".join(f"{self.kept.get(name, 0):,} of {len(own):,} {name}" for name, own in records.items())
        return f"{size / 2**20:.1f} MiB with their moments in a mapped file; on the device {kept}"

    def room(self, name: str) -> int:
        """Rows behind those of the fast tier."""
        return max(own[name] for own in self.slots)

    def abstract(self, tree: Any) -> Any:
        """Shapes of a state, or of parameters alone, with such tables: parameters are read without a fast tier."""
        with_kept = isinstance(tree, TrainState)

        def mirror(own: Any) -> Any:
            return with_tables(
                own, {name: self._table(name, table, with_kept) for name, table in tables_of(own).items()}
            )

        return map_mirrors(mirror, tree)

    def _table(self, name: str, table: Any, with_kept: bool) -> jax.ShapeDtypeStruct:
        rows = self.room(name) + (self.kept.get(name, 0) if with_kept else 0)
        return jax.ShapeDtypeStruct((rows, table.shape[1]), table.dtype)

    def abstract_places(self, bucket: int) -> dict[str, jax.ShapeDtypeStruct]:
        return {name: jax.ShapeDtypeStruct((1, count), jnp.int32) for name, count in self.slots[bucket].items()}


def new_records(config: Config, state: TrainState) -> dict[str, np.ndarray]:
    """Files for all rows of a state of these shapes: node type -> zeros `[num_nodes, 1 + moments, width]`.

    Raises:
        StorageError: there is no space for them.
    """
    tables = tables_of(state.params)
    parts = len(_mirrors(state))
    return {
        name: mapped_array(folder_of(config), (table.shape[0], parts, table.shape[1]), table.dtype)
        for name, table in tables.items()
    }


def folder_of(config: Config) -> Path:
    """Where files of training are: in the run's folder, or where the system keeps temporary files."""
    folder = Path(config.run.dir)
    return folder if config.run.dir and folder.is_dir() else Path(tempfile.gettempdir())


class MappedPrograms(SampledPrograms):
    """`Sampled` with mapped tables, compiled.

    On the device a state has the tables of `Fast`; parameters that are kept, as the best are, have whole ones in files.
    """

    def __init__(self, execution: "Sampled", steps: Sequence[Compiled], evaluations: Sequence[Compiled]) -> None:
        super().__init__(execution, steps, evaluations)
        self.stores = self._stores(execution.records)

    def _stores(self, records: Mapping[str, np.ndarray]) -> dict[str, TieredRows]:
        shapes = self.execution.mapped_shapes
        place = functools.partial(_placed, self.mesh)
        return {name: TieredRows(own, shapes.room(name), place) for name, own in records.items()}

    def with_step(self, step: Compiled) -> "MappedPrograms":
        other = super().with_step(step)
        other.stores = other._stores(new_records(self.execution.config, self.execution.abstract_state))
        return other

    # States

    def place(self, tree: Any) -> Any:
        if isinstance(tree, TrainState):
            for name, store in self.stores.items():
                store.load(tuple(mirror[name] for mirror in _mirrors(tree)))
            return self._begun(tree)
        if isinstance(tree, dict):
            return with_tables(super().place(with_tables(tree, {})), _map(np.asarray, tables_of(tree)))
        return super().place(tree)

    def _begun(self, state: TrainState) -> TrainState:
        """The state on the device, from its dense part and what is in the files."""
        dense = super().place(_with_mirrors(state, [{} for _ in _mirrors(state)]))
        kept = self.execution.kept_ids
        fast = {name: store.begin(kept.get(name, np.zeros(0, np.int64))) for name, store in self.stores.items()}
        return _with_fast(dense, fast)

    def initial_state(self, seed: int) -> TrainState:
        """See `Programs`: initial weights are hashes of their places, so a few rows at a time are computed."""
        execution = self.execution
        number = np.uint32(seed)

        def dense(seed: jax.Array) -> TrainState:
            state = execution.traced_state(seed)
            return _with_mirrors(state, [{} for _ in _mirrors(state)])

        for name, store in self.stores.items():
            count, parts, width = store.records.shape
            size = min(count, max(1, CHUNK_BYTES // (parts * width * store.records.itemsize)))
            if not size:
                continue

            def rows(seed: jax.Array, start: jax.Array, name: str = name, size: int = size) -> jax.Array:
                mirrors = _mirrors(execution.traced_state(seed))
                own = [jax.lax.dynamic_slice_in_dim(mirror[name], start, size) for mirror in mirrors]
                return jnp.stack(own, axis=1)

            program = jax.jit(rows)
            for start in (*range(0, count - size, size), count - size):
                store.records[start : start + size] = np.asarray(program(number, start))
        return self._begun(jax.jit(dense)(number))

    def whole(self, tree: Any) -> Any:
        if isinstance(tree, TrainState):
            for name, store in self.stores.items():
                store.flush(tuple(mirror[name] for mirror in _mirrors(tree)))
            parts = range(len(_mirrors(tree)))
            own = [{name: store.records[:, part] for name, store in self.stores.items()} for part in parts]
            return _with_mirrors(super().whole(_with_mirrors(tree, [{} for _ in parts])), own)
        if isinstance(tree, dict):
            copied = self.copied(tree)
            return with_tables(super().whole(with_tables(copied, {})), tables_of(copied))
        return super().whole(tree)

    def shown(self, params: Params) -> Params:
        return self.copied(params)

    def copied(self, params: Params) -> Params:
        dense, folder = super().copied(with_tables(params, {})), folder_of(self.execution.config)
        tables = {
            name: self.stores[name].copied_values(table, folder) if isinstance(table, jax.Array) else table
            for name, table in tables_of(params).items()
        }
        return with_tables(dense, tables)

    # Batches

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, UpdateReport]:
        shard, votes = batch.arguments
        mirrors, staged, places = _mirrors(state), {}, {}
        for name, ids in self._ids(shard).items():
            staged[name], places[name] = self.stores[name].stage(tuple(mirror[name] for mirror in mirrors), ids)
        placed = self.mesh.place(_map(lambda own: own[None], places), SHARDED)
        shard = dataclasses.replace(shard, places=placed)
        state, report = super().update(_with_fast(state, staged), dataclasses.replace(batch, arguments=(shard, votes)))
        mirrors = _mirrors(state)
        for name, store in self.stores.items():
            store.commit(tuple(mirror[name] for mirror in mirrors))
        return state, report

    def _ids(self, shard: Shard) -> dict[str, np.ndarray]:
        """The rows of each table that a batch reads, int32 on the host; none of a type that it does not meet."""
        nodes = {name: np.asarray(ids.addressable_data(0))[0] for name, ids in shard.blocks.nodes.items()}
        offsets = self.execution.sampling.offsets
        return {
            name: ids_of_type(nodes, name, offsets) if offsets or name in nodes else np.zeros(0, np.int32)
            for name in self.stores
        }

    def _read(self, params: Params, shard: Shard) -> Params:
        """Parameters with the rows that a batch reads, in its order, in the place of tables."""
        tables, found = tables_of(params), {}
        for name, ids in self._ids(shard).items():
            store, table = self.stores[name], tables[name]
            padded = np.full(store.room, -1, np.int32)
            padded[: len(ids)] = ids
            found[name] = store.settled(padded) if isinstance(table, jax.Array) else _rows(table, padded)
        return with_tables(params, _map(functools.partial(_placed, self.mesh), found))

    def _settle(self, params: Params) -> None:
        """Before `_read` reads parameters in training."""
        for name, table in tables_of(params).items():
            if isinstance(table, jax.Array):
                self.stores[name].settle(table)

    def evaluate(self, params: Params, splits: Sequence[str], seed: int) -> Scores:
        if self.execution.layerwise:
            return super().evaluate(self.copied(params), splits, seed)
        self._settle(params)
        return super().evaluate(params, splits, seed)

    def _count(self, params: Params, batch: Batch) -> Any:
        return super()._count(self._read(params, batch.arguments[0]), batch)

    def inference_arguments(self, params: Params, batch: Batch) -> tuple[Any, ...]:
        self._settle(params)
        return super().inference_arguments(self._read(params, batch.arguments[0]), batch)

    def explain(self, state: TrainState, batch: Batch, where: str) -> str:
        self._settle(state.params)
        state = state._replace(params=self._read(state.params, batch.arguments[0]))
        return super().explain(state, batch, where)

    def facts(self) -> dict[str, Any]:
        """Bytes of the fast tier, and by type the share of the rows of training that it had."""
        sizes = [len(own.kept) * own.records[0].nbytes for own in self.stores.values() if len(own.records)]
        return {"bytes": sum(sizes), "hit_rate": hit_rates(self.stores)}

    def figures(self, feed: Any, train_s: float) -> dict[str, Any]:
        return super().figures(feed, train_s) | {"table_cache": self.facts()}


def _mirrors(state: TrainState) -> list[Mapping[str, Any]]:
    """The tables of a state, and then whatever the optimizer keeps of each of their numbers."""
    found: list[Mapping[str, Any]] = []

    def mirror(own: Any) -> Any:
        found.append(tables_of(own))
        return own

    map_mirrors(mirror, (state.params, state.opt_state))
    return found


def _with_mirrors(state: TrainState, tables: Sequence[Mapping[str, Any]]) -> TrainState:
    """A state with other tables, in the order of `_mirrors`."""
    left = iter(tables)
    params, opt_state = map_mirrors(lambda own: with_tables(own, next(left)), (state.params, state.opt_state))
    return state._replace(params=params, opt_state=opt_state)


def _with_fast(state: TrainState, fast: Mapping[str, Fast]) -> TrainState:
    parts = range(len(_mirrors(state)))
    return _with_mirrors(state, [{name: own[part] for name, own in fast.items()} for part in parts])


def _rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Rows of a whole table on the host, zeros where an id is -1."""
    rows = np.zeros((len(ids), table.shape[1]), table.dtype)
    rows[ids >= 0] = table[ids[ids >= 0]]
    return rows


def _map(function: Any, tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: function(table) for name, table in tables.items()}


def _placed(mesh: DeviceMesh, array: Any) -> Any:
    return mesh.place(array, REPLICATED)
