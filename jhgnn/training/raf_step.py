"""The update of relation-aggregation-first training: each shard of `rel` computes its branches, they meet, all finish.

Every device runs one program; which branches of the metatree it computes is decided by its place on `rel`. There are
three collectives in it: the meeting (`jhgnn.training.rel_meeting`), the sum of all weights' gradients, the loss and the
counts over both axes, and, where there are learnable tables, the gradients of the rows that each device touched. A
weight that one shard alone computes with has a zero gradient on the others, so that the sum is whole in any case; what
all shards compute alike after the meeting counts on the first of them.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.nn.branches import BranchInputs, OwnBranches, OwnSums, finished, own_sums
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.recompute import recomputing
from jhgnn.nn.stage import stage
from jhgnn.stores.device import DeviceRows
from jhgnn.stores.touched import TouchedRows
from jhgnn.tasks.task import Sum
from jhgnn.training.branch_gradients import BranchGradients
from jhgnn.training.mesh import REL
from jhgnn.training.micro_batches import PartSums, Touched
from jhgnn.training.packing import Packing
from jhgnn.training.rel_meeting import meet_in_attention, meet_in_sum
from jhgnn.training.sampled_step import Resident
from jhgnn.training.state import Params, TrainState, dropout_seed
from jhgnn.training.update import UpdateProgram, over_devices

Array = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class RelBatch:
    """A device's part of a batch.

    Attributes:
        ids: the examples of its place on `data`, int32 `[share]`, -1 for none.
        buffers: its shard's blocks and features, packed.
        too_small: bool `[]`, whether they did not fit: the batch is to be run again in a bigger bucket.
    """

    ids: Array
    buffers: Mapping[str, Array]
    too_small: Array


@dataclasses.dataclass(frozen=True, eq=False)
class BranchReader:
    """How one shard reads its buffers, in one bucket.

    Attributes:
        own: its branches.
        packing: of the leaves of `structure`.
        structure: of (blocks, features).
        endpoints: as in `SampledInputs`.
    """

    own: OwnBranches
    packing: Packing
    structure: jax.tree_util.PyTreeDef
    endpoints: tuple[tuple[str, str, str], ...]

    def inputs(self, resident: Resident, buffers: Mapping[str, Array]) -> BranchInputs:
        """What the model reads of its branches."""
        blocks, features = jax.tree.unflatten(self.structure, self.packing.unpack(buffers))
        features = dict(features)
        with stage("LOAD"):
            for node_type in resident.features.node_types:
                if node_type in self.own.reads:
                    features[node_type] = resident.features.gather(node_type, blocks.nodes[node_type])
        return BranchInputs(features, blocks, self.endpoints, makes=self.own.makes)

    def touched(self, tables: Mapping[str, jax.Array], inputs: BranchInputs) -> dict[str, jax.Array]:
        """Ids of the rows of each table that the branches read."""
        nodes = inputs.blocks.nodes
        return {
            name: nodes[name] if name in self.own.reads and name in nodes else jnp.zeros(0, jnp.int32)
            for name in tables
        }

    def num_rows(self, name: str) -> int:
        """How many ids `touched` gives of a table."""
        blocks, _ = jax.tree.unflatten(self.structure, self.packing.shapes)
        return int(blocks.nodes[name].shape[0]) if name in self.own.reads and name in blocks.nodes else 0


class _Arguments(NamedTuple):
    """What all branches are given."""

    params: Params
    resident: Resident
    buffers: Mapping[str, Array]
    step_seed: Array


@dataclasses.dataclass(frozen=True, eq=False)
class RelUpdateProgram(UpdateProgram):
    """An update whose sums come from branches that meet over `rel`; the rest is that of every update.

    Attributes:
        readers: of each shard.
        metapaths: names of all, for attention over them; else none.
        has_residual: whether the last layer adds its input to its output.
        places: on the axis `data`.
    """

    readers: tuple[BranchReader, ...] = ()
    metapaths: tuple[str, ...] = ()
    has_residual: bool = False
    places: int = 1

    def _sums(self, state: TrainState, resident: Any, batch: RelBatch) -> tuple[PartSums, Touched]:
        dense = with_tables(state.params, {})
        shard = jax.lax.axis_index(REL)
        arguments = _Arguments(state.params, resident, batch.buffers, dropout_seed(state))
        tables = tables_of(state.params)
        most = {name: max(reader.num_rows(name) for reader in self.readers) for name in tables}
        branches = BranchGradients(
            [self._prepare(reader) for reader in self.readers],
            [self._branch(reader, most) for reader in self.readers],
            [lambda gradients: (gradients[0], {name: _padded(gradients[1][name], most[name], 0) for name in tables})]
            * len(self.readers),
        )
        sums, ids, kept = branches.forward(shard, arguments)
        with stage("SYNC"):
            met, back = jax.vjp(lambda own: self._met(own, batch), sums)
        first = shard == 0

        def rest(dense: Params, met: jax.Array, own_rows: jax.Array) -> tuple[jax.Array, jax.Array]:
            total = self._finish(dense, met, own_rows, state, resident, batch)
            return total.loss, jnp.asarray(total.num_examples, total.loss.dtype)

        gradient = jax.value_and_grad(rest, argnums=(0, 1, 2), has_aux=True)
        (loss, count), (after, of_met, of_rows) = gradient(dense, met, sums.own_rows)
        (of_sums,) = back(of_met)
        # What all shards compute alike counts once.
        after, loss, count, of_rows = jax.tree.map(
            lambda leaf: jnp.where(first, leaf, 0), (after, loss, count, of_rows)
        )
        of_sums = of_sums._replace(own_rows=of_sums.own_rows + of_rows)
        before, rows = branches.backward(shard, arguments, kept, of_sums)
        touched = {name: TouchedRows(ids[name], rows[name]) for name in tables}
        gradients = jax.tree.map(jnp.add, before, after)
        return PartSums(with_tables(gradients, {}), loss, count, batch.too_small.astype(jnp.float32)), touched

    def _prepare(self, reader: BranchReader) -> Callable[[_Arguments], tuple[Any, Any]]:
        def prepare(arguments: _Arguments) -> tuple[Any, Any]:
            inputs = reader.inputs(arguments.resident, arguments.buffers)
            tables = DeviceRows(tables_of(arguments.params))
            ids = reader.touched(tables.tables, inputs)
            rows = {name: tables.gather(name, ids[name]) for name in tables.node_types}
            return (with_tables(arguments.params, {}), rows), (inputs, ids, arguments.step_seed)

        return prepare

    def _branch(self, reader: BranchReader, most: Mapping[str, int]) -> Callable[[Any, Any], tuple[OwnSums, Any]]:
        slots = max(len(each.own.names) for each in self.readers) if self.metapaths else 0

        def branch(differentiated: Any, fixed: Any) -> tuple[OwnSums, Any]:
            (dense, rows), (inputs, ids, step_seed) = differentiated, fixed
            with recomputing(self.training.remat):
                model: Any = nnx.merge(self.structure, with_tables(dense, rows))
                sums = own_sums(
                    model, inputs, reader.own, step_seed, over_devices, slots=slots, keeps_rows=self.has_residual
                )
            return sums, {name: _padded(ids[name], most[name], -1) for name in ids}

        return branch

    def _met(self, own: OwnSums, batch: RelBatch) -> jax.Array:
        if not self.metapaths:
            return meet_in_sum(own.values)
        numbers = [[self.metapaths.index(name) for name in reader.own.names] for reader in self.readers]
        return meet_in_attention(own.values, own.scores, (batch.ids >= 0).sum(), numbers, self.places)

    def _finish(
        self, dense: Params, met: jax.Array, own_rows: jax.Array, state: TrainState, resident: Any, batch: RelBatch
    ) -> Sum:
        """The summed loss of this place's targets, from what the shards met to."""
        none = {name: jnp.zeros((0, table.shape[1]), table.dtype) for name, table in tables_of(state.params).items()}
        model: Any = nnx.merge(self.structure, with_tables(dense, none))
        rows = finished(model, met, own_rows)
        about = (resident.task, batch.ids, state.seed, state.step.astype(jnp.uint32))
        with stage("LC", part="classifier"):
            ((node_type, ids),) = self.task.requests(*about)
            assert ids is not None
            picked = [rows[node_type][: ids.size]]
        return self.task.loss(model, picked, *about)


def _padded(rows: jax.Array, count: int, value: int) -> jax.Array:
    widths = [(0, count - rows.shape[0]), *[(0, 0)] * (rows.ndim - 1)]
    return jnp.pad(rows, widths, constant_values=value)


def abstract_packing(blocks: Any, features: Any) -> tuple[Packing, jax.tree_util.PyTreeDef]:
    """How a shard's blocks and features lie in its buffers; arrays or their shapes."""
    leaves, structure = jax.tree.flatten((blocks, dict(features)))
    return Packing.of(leaves), structure
