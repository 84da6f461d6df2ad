"""The update of relation-aggregation-first training: each shard of `rel` computes its branches, they meet, all finish.

Every device runs one program; which branches of the metatree it computes is decided by its place on `rel`. It meets the
others twice: in the middle (`jhgnn.training.rel_meeting`), and for the sum of all weights' gradients, the loss and the
counts over both axes. Learnable rows live on one device each; what a branch reads of others' is fetched before it, and
its gradients are returned after it (`jhgnn.stores.exchange.Pairwise`), so that each row is updated once, by its whole
gradient. A weight that one shard alone computes with has a zero gradient on the others, so that the sum is whole in any
case; what all shards compute alike after the meeting counts on the first of them.
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
from jhgnn.tasks.task import Sum
from jhgnn.training.branch_gradients import BranchGradients
from jhgnn.training.joined_tables import join, split
from jhgnn.training.mesh import REL
from jhgnn.training.micro_batches import PartSums, Touched
from jhgnn.training.owned_reader import OwnedReader
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
        learnt: types with learnable rows, in the order in which they are fetched.
    """

    own: OwnBranches
    packing: Packing
    structure: jax.tree_util.PyTreeDef
    endpoints: tuple[tuple[str, str, str], ...]
    learnt: tuple[str, ...] = ()

    def inputs(self, resident: Resident, buffers: Mapping[str, Array]) -> BranchInputs:
        """What the model reads of its branches."""
        blocks, features = jax.tree.unflatten(self.structure, self.packing.unpack(buffers))
        features = dict(features)
        with stage("LOAD"):
            for node_type in resident.features.node_types:
                if node_type in self.own.reads:
                    features[node_type] = resident.features.gather(node_type, blocks.nodes[node_type])
        return BranchInputs(features, blocks, self.endpoints, makes=self.own.makes)

    def ids(self, buffers: Mapping[str, Array]) -> dict[str, jax.Array]:
        """Ids of the learnable rows that the branches read, int32, -1 for none; of each type with such rows."""
        blocks, _ = jax.tree.unflatten(self.structure, self.packing.unpack(buffers))
        sizes = self.num_rows
        return {name: blocks.nodes[name] if sizes[name] else jnp.zeros(0, jnp.int32) for name in self.learnt}

    @property
    def num_rows(self) -> dict[str, int]:
        """How many ids there are of each type."""
        blocks, _ = jax.tree.unflatten(self.structure, self.packing.shapes)
        met = {name: name in self.own.reads and name in blocks.nodes for name in self.learnt}
        return {name: int(blocks.nodes[name].shape[0]) if met[name] else 0 for name in self.learnt}


class _Arguments(NamedTuple):
    """What all branches are given.

    Attributes:
        dense: parameters without learnable rows.
        rows: the learnable rows that this device reads, `[most, width]`, one type after the other; None where there are
            none.
        resident, buffers: what they read beside.
        step_seed: of dropout.
    """

    dense: Params
    rows: jax.Array | None
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
        rows, routes, misfit = self._fetched(shard, state, resident, batch)
        arguments = _Arguments(dense, rows, resident, batch.buffers, dropout_seed(state))
        branches = BranchGradients(
            [self._prepare(reader) for reader in self.readers],
            [self._branch(reader) for reader in self.readers],
            [self._joined] * len(self.readers),
        )
        sums, _, kept = branches.forward(shard, arguments)
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
        before, of_learnt = branches.backward(shard, arguments, kept, of_sums)
        touched: Touched = {}
        if of_learnt is not None:
            assert isinstance(self.reader, OwnedReader)
            touched = self.reader.rows.give_back(state.params, resident, routes, of_learnt)
        gradients = jax.tree.map(jnp.add, before, after)
        overflows = (batch.too_small | misfit).astype(jnp.float32)
        return PartSums(with_tables(gradients, {}), loss, count, overflows), touched

    @property
    def _most_rows(self) -> int:
        """Learnable rows that a device reads at most, of all types."""
        return max(sum(reader.num_rows.values()) for reader in self.readers)

    def _fetched(
        self, shard: jax.Array, state: TrainState, resident: Resident, batch: RelBatch
    ) -> tuple[jax.Array | None, Any, jax.Array]:
        """The learnable rows that this device's branches read, padded; their routes; whether they did not fit."""
        if not isinstance(self.reader, OwnedReader):
            return None, {}, jnp.zeros((), bool)
        owned, most = self.reader.rows, self._most_rows

        def numbers(reader: BranchReader) -> Callable[[Mapping[str, Array]], jax.Array]:
            return lambda buffers: _padded(owned.numbers(reader.ids(buffers)), most, -1)

        read = jax.lax.switch(shard, [numbers(reader) for reader in self.readers], batch.buffers)
        return owned.fetch(state.params, resident, read)

    def _prepare(self, reader: BranchReader) -> Callable[[_Arguments], tuple[Any, Any]]:
        def prepare(arguments: _Arguments) -> tuple[Any, Any]:
            inputs = reader.inputs(arguments.resident, arguments.buffers)
            rows = {} if arguments.rows is None else split(arguments.rows, reader.num_rows)
            return (arguments.dense, rows), (inputs, arguments.step_seed)

        return prepare

    def _branch(self, reader: BranchReader) -> Callable[[Any, Any], tuple[OwnSums, Any]]:
        slots = max(len(each.own.names) for each in self.readers) if self.metapaths else 0

        def branch(differentiated: Any, fixed: Any) -> tuple[OwnSums, Any]:
            (dense, rows), (inputs, step_seed) = differentiated, fixed
            with recomputing(self.training.remat):
                model: Any = nnx.merge(self.structure, with_tables(dense, rows))
                sums = own_sums(
                    model, inputs, reader.own, step_seed, over_devices, slots=slots, keeps_rows=self.has_residual
                )
            return sums, ()

        return branch

    def _joined(self, gradients: tuple[Params, Mapping[str, jax.Array]]) -> tuple[Params, jax.Array | None]:
        """Gradients of weights and of learnable rows in the shapes of all branches."""
        dense, rows = gradients
        return dense, _padded(join(rows), self._most_rows, 0) if rows else None

    def _met(self, own: OwnSums, batch: RelBatch) -> jax.Array:
        if not self.metapaths:
            return meet_in_sum(own.values)
        numbers = [[self.metapaths.index(name) for name in reader.own.names] for reader in self.readers]
        return meet_in_attention(own.values, own.scores, (batch.ids >= 0).sum(), numbers, self.places)

    def _finish(
        self, dense: Params, met: jax.Array, own_rows: jax.Array, state: TrainState, resident: Any, batch: RelBatch
    ) -> Sum:
        """The summed loss of this place's targets, from what the shards met to."""
        none: dict[str, jax.Array] = {}
        for table in tables_of(state.params).values():  # that of all types
            none = {name: jnp.zeros((0, table.shape[1]), table.dtype) for name in self.readers[0].learnt}
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
