"""What sampled training traces: how a program reads a batch, and how it counts one for evaluation.

Both are written for one device's share of a batch. The share holds blocks that the host has sampled, or examples alone,
for which the program samples itself.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.flatten_util import ravel_pytree

from jhgnn.graph.erased import NAME as ERASED
from jhgnn.graph.erased import ids_of_type
from jhgnn.graph.sampled import FrozenCounts, SampledBlocks
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import ModelInputs, SampledInputs
from jhgnn.nn.recompute import recomputing, without_gradient
from jhgnn.nn.reduction import Partial, Reduce
from jhgnn.nn.reuse import KeptRows
from jhgnn.nn.stage import stage
from jhgnn.sampling.device import DrawHop, sample_on_device
from jhgnn.sampling.entries import EdgeFacts, annotated_on_device
from jhgnn.sampling.plan import Capacities
from jhgnn.stores.device import DeviceRows
from jhgnn.stores.exchange import AllToAll
from jhgnn.stores.sharded import ShardedRows
from jhgnn.stores.sharded_edges import ShardedEdges
from jhgnn.stores.touched import take
from jhgnn.tasks.task import Request, Task
from jhgnn.training.mesh import DATA
from jhgnn.training.micro_batches import CommonFusion, Touched, common_sums
from jhgnn.training.sampled_choices import Sampling
from jhgnn.training.state import Params
from jhgnn.training.update import Read, over_devices, read_from_tables, touched_rows

Array = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Resident:
    """What stays on every device.

    Attributes:
        task: `Task.resident`.
        features: those of all nodes, where programs gather them; else none.
        edges: in-edges by relation, where programs sample; else none.
        facts: what edges stand for, by draw, where programs sample and some edges are left out or weighted; else none.
        homes: of each node by type, where rows are cut over the devices; see `Placement.homes`. `features` are then
            this device's.
        nodes: of each row by type, where edges are cut over the devices: `edges` are then this device's, a row for each
            of its own nodes; -1 for none.
        kept: the first layer's sums over neighbours of hot vertices, where steps reuse them; else none.
    """

    task: Any
    features: DeviceRows
    edges: Mapping[str, Any]
    facts: Mapping[str, EdgeFacts]
    homes: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    nodes: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    kept: Mapping[str, KeptRows] = dataclasses.field(default_factory=dict)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """One device's share of a batch: blocks with the features gathered for them, or examples to sample for.

    Attributes:
        ids: the share's examples, int32 `[share]`, -1 for none.
        blocks: from the host sampler, or None.
        features: rows of the input frontier that the host gathered.
        draw: uint32 `[2]`, seed and step that the device sampler hashes, or that the host's did where rows are reused;
            else None.
        batch_ids: int32 `[batch]`, the whole batch's examples, whose edges are left out; None where none are.
        places: by type, which row of a table stands for each vertex that the batch reads, where tables are mapped.
    """

    ids: Array
    blocks: Any
    features: Mapping[str, Any]
    draw: Array | None = None
    batch_ids: Array | None = None
    places: Mapping[str, Array] = dataclasses.field(default_factory=dict)


def seeds_by_type(requests: Sequence[Request], sampling: Sampling) -> dict[str, Array]:
    """The nodes that requests ask for, whose neighbours are drawn: int32 by type, in the order of the requests."""
    found: dict[str, list[Array]] = {}
    for node_type, ids in requests:
        assert ids is not None
        xp = np if isinstance(ids, np.ndarray) else jnp
        flat = ids.reshape(-1)
        if sampling.offsets:
            (start,) = (start for name, start, _ in sampling.offsets if name == node_type)
            found.setdefault(ERASED, []).append(xp.where(flat >= 0, flat + start, -1))
        else:
            found.setdefault(node_type, []).append(flat)
    joined = {}
    for node_type, parts in found.items():
        xp = np if isinstance(parts[0], np.ndarray) else jnp
        joined[node_type] = (parts[0] if len(parts) == 1 else xp.concatenate(parts)).astype(np.int32)
    return joined


class SampledReader:
    """A `Reader` of sampled blocks, which it draws first where the batch holds examples alone."""

    cut: ClassVar[bool] = False

    def __init__(self, task: Task, sampling: Sampling, capacities: Capacities) -> None:
        self.task, self.sampling, self.capacities = task, sampling, capacities

    def blocks(self, resident: Resident, batch: Shard) -> SampledBlocks:
        """The batch's blocks, or those that are drawn for its examples."""
        sampling, blocks = self.sampling, batch.blocks
        if blocks is None:
            assert batch.draw is not None
            with stage("SAMPLE"):
                seed, step = batch.draw[0], batch.draw[1]
                seeds = seeds_by_type(self.task.requests(resident.task, batch.ids, seed, step), sampling)
                draw_hop = self.draw_hop(resident)
                blocks = sample_on_device(sampling.plan, self.capacities, resident.edges, seeds, seed, step, draw_hop)
                if resident.facts:
                    by_draw = {draw.name: resident.edges[str(draw.steps[0])] for draw in sampling.plan.draws}
                    left = batch.ids if batch.batch_ids is None else batch.batch_ids
                    blocks = annotated_on_device(sampling.plan, blocks, by_draw, resident.facts, left, seed, step)
        return blocks

    def draw_hop(self, resident: Resident) -> DrawHop | None:
        """What draws where edges are cut over the devices; else None."""
        return None

    def inputs(self, resident: Resident, batch: Shard) -> SampledInputs:
        sampling, blocks = self.sampling, self.blocks(resident, batch)
        features = dict(batch.features)
        with stage("LOAD"):
            for node_type in resident.features.node_types:
                if node_type == ERASED or node_type in blocks.nodes or sampling.offsets:
                    ids = blocks.nodes[ERASED] if node_type == ERASED else self._ids(blocks, node_type)
                    rows = resident.features.gather(node_type, ids)
                    if sampling.offsets:  # a slot of another type has rows of zeros
                        rows = jax.tree.map(lambda leaf, met=(ids >= 0)[:, None]: jnp.where(met, leaf, 0), rows)
                    features[node_type] = rows
        return self._with_features(features, blocks, resident, batch.draw)

    def _with_features(
        self, features: dict[str, Any], blocks: SampledBlocks, resident: Resident, draw: Array | None
    ) -> SampledInputs:
        """Inputs of blocks whose features are read; `draw` is the batch's, uint32 `[2]`."""
        sampling, number = self.sampling, draw[1] if resident.kept and draw is not None else None
        return SampledInputs(
            features, blocks, sampling.endpoints, sampling.offsets, sampling.stacks, resident.kept, number
        )

    def _ids(self, blocks: Any, node_type: str) -> jax.Array:
        return ids_of_type(blocks.nodes, node_type, self.sampling.offsets)

    def touched(self, params: Params, inputs: ModelInputs) -> dict[str, jax.Array]:
        assert isinstance(inputs, SampledInputs)
        met = {name: bool(inputs.offsets) or name in inputs.blocks.nodes for name in tables_of(params)}
        return {name: inputs.ids(name) if met[name] else jnp.zeros(0, jnp.int32) for name in met}

    def read(self, params: Params, resident: Resident, batch: Shard) -> Read:
        return read_from_tables(self, params, resident, batch, self.sampling.table_rows)

    def give_back(self, params: Params, resident: Resident, read: Read, gradients: Mapping[str, jax.Array]) -> Touched:
        return touched_rows(read, gradients)

    def pick(self, rows: Mapping[str, jax.Array], inputs: ModelInputs, task: Task, *about: Any) -> list[jax.Array]:
        """See `Reader`: rows asked for stand first, in the order of the requests."""
        taken: dict[str, int] = {}
        found = []
        for node_type, ids in task.requests(*about):
            assert ids is not None
            start = taken.get(node_type, 0)
            taken[node_type] = start + ids.size
            own = rows[node_type][start : start + ids.size]
            found.append(own.reshape(*ids.shape, own.shape[-1]))
        return found

    def overflowed(self, inputs: ModelInputs) -> jax.Array:
        assert isinstance(inputs, SampledInputs)
        return inputs.blocks.overflowed

    def examples(self, batch: Shard) -> jax.Array:
        return batch.ids

    def parts(self, batch: Shard, count: int) -> tuple[Any, Any]:
        if batch.blocks is None:
            parts: Any = batch.ids.reshape(count, -1)
            return parts, lambda ids: dataclasses.replace(batch, ids=ids)
        return (batch.ids, batch.blocks, dict(batch.features), batch.draw), lambda own: dataclasses.replace(
            batch, ids=own[0], blocks=own[1], features=own[2], draw=own[3]
        )


def distinct_ids(ids: jax.Array, num_nodes: int) -> tuple[jax.Array, jax.Array]:
    """Each id once, ascending, int32 `[min(n, num_nodes)]` padded with -1, and where each of `ids` stands there.

    `ids` are int32 `[n]`, -1 for none, whose position is 0. Marks over all nodes instead of a sort.
    """
    room = min(len(ids), num_nodes)
    met = jnp.zeros(num_nodes, bool).at[jnp.where(ids >= 0, ids, num_nodes)].set(True, mode="drop")
    rank = jnp.cumsum(met, dtype=jnp.int32) - 1
    found = (
        jnp.full(room, -1, jnp.int32)
        .at[jnp.where(met, rank, room)]
        .set(jnp.arange(num_nodes, dtype=jnp.int32), mode="drop")
    )
    return found, jnp.where(ids >= 0, take(rank, ids), 0)


class CutReader(SampledReader):
    """Reads sampled blocks whose rows, of features and embeddings, are fetched from the devices that keep them.

    Attributes:
        requests: rows of each type that one device may ask another one for; more are an overflow.
        frontiers: for each hop, vertices that it may ask it about, where edges are cut as well; else no hops.
        num_places: of the axis `data`.
        num_parts: of a share, where models come by; else 1.
    """

    cut: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        sampling: Sampling,
        capacities: Capacities,
        requests: FrozenCounts,
        frontiers: tuple[FrozenCounts, ...],
        num_places: int,
        num_parts: int,
    ) -> None:
        super().__init__(task, sampling, capacities)
        self.requests, self.frontiers, self.num_places, self.num_parts = requests, frontiers, num_places, num_parts

    def draw_hop(self, resident: Resident) -> DrawHop | None:
        if not self.sampling.partitioned:
            return None
        edges = ShardedEdges(resident.edges, resident.nodes, resident.homes, self.frontiers, self.num_places, DATA)
        return edges.draw_hop

    def store(self, params: Params, resident: Resident) -> ShardedRows:
        """All rows of this device."""
        tables = {**resident.features.tables, **tables_of(params)}
        return ShardedRows(tables, resident.homes, AllToAll(self.requests, self.num_places, DATA))

    def read(self, params: Params, resident: Resident, batch: Shard) -> Read:
        blocks, store = self.blocks(resident, batch), self.store(params, resident)
        ids = {name: blocks.nodes.get(name, jnp.zeros(0, jnp.int32)) for name in store.tables}
        with stage("LOAD"):
            fetched = store.fetch(ids)
        blocks = dataclasses.replace(blocks, overflowed=blocks.overflowed | fetched.overflowed)
        features = {name: fetched.rows[name] for name in resident.features.node_types if name in blocks.nodes}
        inputs = self._with_features(features, blocks, resident, batch.draw)
        learnt = tables_of(params)
        return Read(
            inputs,
            {name: ids[name] for name in learnt},
            {name: fetched.rows[name] for name in learnt},
            fetched.routes,
        )

    def gathered(self, params: Params, resident: Resident, batch: Shard) -> tuple[Read, Any, Any]:
        """The rows of all parts of a share, fetched once; the parts; and what reads a part from rows of embeddings.

        That takes (rows, part) and gives inputs, the part's rows, and the part as a share of its own.
        """
        if batch.blocks is None:
            ids: Any = batch.ids.reshape(self.num_parts, -1)
            blocks = jax.lax.map(lambda own: self.blocks(resident, dataclasses.replace(batch, ids=own)), ids)
        else:
            ids, blocks = batch.ids, batch.blocks
        store = self.store(params, resident)
        distinct, positions = {}, {}
        for name in store.tables:
            if name not in blocks.nodes:
                distinct[name] = jnp.zeros(0, jnp.int32)
                continue
            nodes, num_nodes = blocks.nodes[name], resident.homes[name].shape[0]
            distinct[name], places = distinct_ids(nodes.reshape(-1), num_nodes)
            positions[name] = places.reshape(nodes.shape)
        with stage("LOAD"):
            fetched = store.fetch(distinct)
        blocks = dataclasses.replace(blocks, overflowed=blocks.overflowed | fetched.overflowed)
        learnt, draw = tables_of(params), None if batch.draw is None else batch.draw.reshape(-1, 2)[0]
        rows = {name: fetched.rows[name] for name in learnt}

        def read_of(rows: Mapping[str, jax.Array], part: Any) -> tuple[SampledInputs, dict[str, jax.Array], Shard]:
            own_ids, own_blocks, own_positions = part
            features = {
                name: jax.tree.map(lambda leaf, at=at: take(leaf, at), fetched.rows[name])
                for name, at in own_positions.items()
                if name in resident.features.node_types
            }
            inputs = self._with_features(features, own_blocks, resident, draw)
            tables = {
                name: take(table, own_positions[name]) if name in own_positions else table
                for name, table in rows.items()
            }
            return inputs, tables, Shard(own_ids, own_blocks, {})

        read: Any = Read(None, {name: distinct[name] for name in learnt}, rows, fetched.routes)  # type: ignore[arg-type]
        return read, (ids, blocks, positions), read_of

    def give_back(self, params: Params, resident: Resident, read: Read, gradients: Mapping[str, jax.Array]) -> Touched:
        with stage("SYNC"):
            return self.store(params, resident).give_back(read.routes, gradients)


@dataclasses.dataclass(frozen=True, eq=False)
class EvaluationProgram:
    """Counts of one batch, without dropout, for tasks whose figures add up over examples.

    Attributes:
        axes: of the mesh; devices on others than `data` compute the same, though one may have less room than another.
    """

    structure: nnx.GraphDef
    task: Any
    reader: SampledReader
    remat: str
    micro_batches: int
    common_layers: int
    axes: tuple[str, ...] = (DATA,)

    def __call__(self, params: Params, resident: Resident, batch: Shard) -> Any:
        """Counts of the whole batch, and on how many devices a sample overflowed."""
        if self.micro_batches == 1:
            found = self._counts(params, resident, batch, over_devices)
        else:
            found = self._counts_of_parts(params, resident, batch)
        # One vector here as well: over several processes, collectives of one program may meet in different orders.
        vector, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), found))
        others = tuple(axis for axis in self.axes if axis != DATA)
        if not others:
            return unravel(jax.lax.psum(vector, DATA))
        counts, overflowed = unravel(vector)
        first = jax.lax.axis_index(others) == 0
        counts = jax.tree.map(lambda leaf: jnp.where(first, leaf, 0), counts)
        vector, unravel = ravel_pytree((counts, overflowed))
        return unravel(jax.lax.psum(vector, self.axes))

    def _counts_of_parts(self, params: Params, resident: Resident, batch: Shard) -> Any:
        parts, batch_of = self.reader.parts(batch, self.micro_batches)
        known: Sequence[Any] = ()
        if self.common_layers:

            def partial_sums(_: Params, rows: Mapping[str, jax.Array], part: Any, known: Sequence[Any]) -> Partial:
                inputs = _at_newest(self.reader.inputs(resident, batch_of(part)))
                with recomputing(without_gradient(self.remat)):
                    model: Any = nnx.merge(self.structure, with_tables(params, rows))
                    return model.partial_sums(inputs, None, known)

            rows = jax.lax.map(lambda part: self._rows_read(params, resident, batch_of(part))[1], parts)
            calls = CommonFusion(self.common_layers, None, partial_sums, None, over_devices)  # type: ignore[arg-type]
            known = common_sums(calls, params, rows, parts)

        def reduce(partial: Partial) -> Any:
            return known[partial.layer] if known else partial.values

        every = jax.lax.map(lambda part: self._counts(params, resident, batch_of(part), reduce), parts)
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32).sum(axis=0), every)

    def _rows_read(self, params: Params, resident: Resident, batch: Shard) -> tuple[Any, Any]:
        read = self.reader.read(params, resident, batch)
        return read.inputs, read.rows

    def _counts(self, params: Params, resident: Resident, batch: Shard, reduce: Reduce) -> Any:
        inputs, rows = self._rows_read(params, resident, batch)
        inputs = _at_newest(inputs)
        with recomputing(without_gradient(self.remat)):
            model: Any = nnx.merge(self.structure, with_tables(params, rows))
            made = self.task.represent(model, inputs, model.encode(inputs, None, reduce))
        zero = jnp.zeros((), jnp.uint32)
        (picked,) = self.reader.pick(made, inputs, self.task, resident.task, batch.ids, zero, zero)
        return self.task.counts(model, picked, resident.task, batch.ids), inputs.blocks.overflowed


def _at_newest(inputs: SampledInputs) -> SampledInputs:
    """Where rows are reused, as in a profile of training's own batches: taken for as old as the newest."""
    if not inputs.kept:
        return inputs
    newest = jnp.stack([each.versions.max() for each in inputs.kept.values()]).max()
    return dataclasses.replace(inputs, step=newest)
