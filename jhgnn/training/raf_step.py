"""The update of relation-aggregation-first training: each shard of `rel` computes its branches, they meet, all finish.

Which branches of the metatree a device computes is decided by its place on `rel`: either all run one program that has
the branches of all, or each process one with those of its own place. A device meets the others twice: in the middle
(`jhgnn.training.rel_meeting`), and for the sum of all weights' gradients, the loss and the counts over both axes.
Learnable rows live on one device each; what a branch reads of others' is fetched before it, and its gradients are
returned after it (`jhgnn.stores.exchange.Pairwise`), so that each row is updated once, by its whole gradient. Programs
that differ have the same collectives of the same shapes, tied to each other in one order. A weight that one shard alone
computes with has a zero gradient on the others, so that the sum is whole in any case; what all shards compute alike
after the meeting counts on the first of them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.nn.branches import BranchInputs, OwnBranches, OwnSums, finished, own_sums
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.recompute import recomputing
from jhgnn.nn.stage import stage
from jhgnn.ops.order import after
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
class PieceReader:
    """How the blocks of one piece of a shard are read.

    Attributes:
        own: its branches.
        endpoints: as in `SampledInputs`.
        span: its targets among those of a place.
    """

    own: OwnBranches
    endpoints: tuple[tuple[str, str, str], ...]
    span: slice

    def inputs(self, resident: Resident, blocks: Any, features: Mapping[str, Any]) -> BranchInputs:
        """What the model reads of its branches."""
        features = dict(features)
        with stage("LOAD"):
            for node_type in resident.features.node_types:
                if node_type in self.own.reads:
                    features[node_type] = resident.features.gather(node_type, blocks.nodes[node_type])
        return BranchInputs(features, blocks, self.endpoints, makes=self.own.makes)


@dataclasses.dataclass(frozen=True, eq=False)
class BranchReader:
    """How one shard reads its buffers, in one bucket.

    Attributes:
        pieces: of the shard.
        packing: of the leaves of `structure`.
        structure: of (blocks, features) of each piece.
        learnt: types with learnable rows, in the order in which they are fetched.
    """

    pieces: tuple[PieceReader, ...]
    packing: Packing
    structure: jax.tree_util.PyTreeDef
    learnt: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of all relations or metapaths."""
        return tuple(name for piece in self.pieces for name in piece.own.names)

    def inputs(self, resident: Resident, buffers: Mapping[str, Array]) -> list[BranchInputs]:
        """What the model reads of each piece."""
        read = jax.tree.unflatten(self.structure, self.packing.unpack(buffers))
        return [piece.inputs(resident, *own) for piece, own in zip(self.pieces, read, strict=True)]

    def ids(self, buffers: Mapping[str, Array]) -> list[dict[str, jax.Array]]:
        """Ids of the learnable rows that each piece reads, int32, -1 for none; of each type with such rows."""
        return self._ids_of(self.packing.unpack(buffers))

    @property
    def num_rows(self) -> list[dict[str, int]]:
        """How many ids there are of each piece and type."""
        return [{name: own.shape[0] for name, own in ids.items()} for ids in self._ids_of(self.packing.shapes)]

    @property
    def most_rows(self) -> int:
        """How many there are of all."""
        return sum(sum(sizes.values()) for sizes in self.num_rows)

    def split(self, rows: jax.Array) -> list[dict[str, jax.Array]]:
        """The rows of each piece, of those of all ids, one after the other, with padding behind."""
        found, begin = [], 0
        for sizes in self.num_rows:
            found.append(split(rows[begin:], sizes))
            begin += sum(sizes.values())
        return found

    def _ids_of(self, leaves: Sequence[Any]) -> list[dict[str, Any]]:
        found, none = [], jnp.zeros(0, jnp.int32)
        for piece, (blocks, _) in zip(self.pieces, jax.tree.unflatten(self.structure, leaves), strict=True):
            met = {name: name in piece.own.reads and name in blocks.nodes for name in self.learnt}
            found.append({name: blocks.nodes[name] if met[name] else none for name in self.learnt})
        return found


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
        only: the place on `rel` whose branches alone the program has; None: all of them, and each device takes its own.
    """

    readers: tuple[BranchReader, ...] = ()
    metapaths: tuple[str, ...] = ()
    has_residual: bool = False
    places: int = 1
    only: int | None = None

    @property
    def present(self) -> tuple[BranchReader, ...]:
        """Of the shards whose branches the program has."""
        return self.readers if self.only is None else (self.readers[self.only],)

    def _sums(self, state: TrainState, resident: Any, batch: RelBatch) -> tuple[PartSums, Touched]:
        dense = with_tables(state.params, {})
        shard = jax.lax.axis_index(REL)
        rows, routes, misfit = self._fetched(shard, state, resident, batch)
        arguments = _Arguments(dense, rows, resident, batch.buffers, dropout_seed(state))
        branches = BranchGradients(
            [self._prepare(reader) for reader in self.present],
            [self._branch(reader) for reader in self.present],
            [self._joined] * len(self.present),
        )
        sums, kept = branches.forward(shard, arguments)
        if rows is not None and self.only is not None:  # another shard's branches may read rows where these do not
            sums = after(sums, rows)
        with stage("SYNC"):
            met, back = jax.vjp(lambda own: self._met(own, batch), sums)
        first = shard == 0

        def rest(dense: Params, met: jax.Array, own_rows: jax.Array) -> tuple[jax.Array, jax.Array]:
            total = self._finish(dense, met, own_rows, state, resident, batch)
            return total.loss, jnp.asarray(total.num_examples, total.loss.dtype)

        gradient = jax.value_and_grad(rest, argnums=(0, 1, 2), has_aux=True)
        (loss, count), (of_rest, of_met, of_rows) = gradient(dense, met, sums.own_rows)
        (of_sums,) = back(of_met)
        # What all shards compute alike counts once.
        of_rest, loss, count, of_rows = jax.tree.map(
            lambda leaf: jnp.where(first, leaf, 0), (of_rest, loss, count, of_rows)
        )
        of_sums = of_sums._replace(own_rows=of_sums.own_rows + of_rows)
        of_branches, of_learnt = branches.backward(shard, arguments, kept, of_sums)
        touched: Touched = {}
        if of_learnt is not None:
            assert isinstance(self.reader, OwnedReader)
            if self.only is not None:
                of_learnt = after(of_learnt, of_branches)
            touched = self.reader.rows.give_back(state.params, resident, routes, of_learnt)
        gradients = jax.tree.map(jnp.add, of_branches, of_rest)
        overflows = (batch.too_small | misfit).astype(jnp.float32)
        return PartSums(with_tables(gradients, {}), loss, count, overflows), touched

    @property
    def _most_rows(self) -> int:
        """Learnable rows that a device of the program reads at most, of all types; one where it reads none."""
        return max(1, *(reader.most_rows for reader in self.present))

    def _fetched(
        self, shard: jax.Array, state: TrainState, resident: Resident, batch: RelBatch
    ) -> tuple[jax.Array | None, Any, jax.Array]:
        """The learnable rows that this device's branches read, padded; their routes; whether they did not fit."""
        if not isinstance(self.reader, OwnedReader):
            return None, {}, jnp.zeros((), bool)
        owned, most = self.reader.rows, self._most_rows

        def numbers(reader: BranchReader) -> Callable[[Mapping[str, Array]], jax.Array]:
            return lambda buffers: _padded(
                jnp.concatenate([owned.numbers(ids) for ids in reader.ids(buffers)]), most, -1
            )

        read = jax.lax.switch(shard, [numbers(reader) for reader in self.present], batch.buffers)
        if self.only is not None:  # where it reads none, XLA knew that and left out what the others wait for
            read = after(read, batch.ids)
        return owned.fetch(state.params, resident, read)

    def _prepare(self, reader: BranchReader) -> Callable[[_Arguments], tuple[Any, Any]]:
        def prepare(arguments: _Arguments) -> tuple[Any, Any]:
            inputs = reader.inputs(arguments.resident, arguments.buffers)
            rows = [{} for _ in inputs] if arguments.rows is None else reader.split(arguments.rows)
            return (arguments.dense, rows), (inputs, arguments.step_seed)

        return prepare

    def _branch(self, reader: BranchReader) -> Callable[[Any, Any], OwnSums]:
        slots = max(len(each.names) for each in self.readers) if self.metapaths else 0

        def branch(differentiated: Any, fixed: Any) -> OwnSums:
            (dense, rows), (inputs, step_seed) = differentiated, fixed
            found = []
            with recomputing(self.training.remat):
                for piece, own, of_piece in zip(reader.pieces, inputs, rows, strict=True):
                    model: Any = nnx.merge(self.structure, with_tables(dense, of_piece))
                    found.append(
                        own_sums(
                            model, own, piece.own, step_seed, over_devices, slots=slots, keeps_rows=self.has_residual
                        )
                    )
            return self._of_all_targets(found, reader)

        return branch

    def _of_all_targets(self, found: Sequence[OwnSums], reader: BranchReader) -> OwnSums:
        """What a shard's pieces make, each of its own targets; where there are several, nothing but sums."""
        if len(self._spans) == 1:
            return found[0]
        share = max(self._spans)[1]
        values = [
            jnp.pad(own.values, ((piece.span.start, share - piece.span.stop), (0, 0)))
            for own, piece in zip(found, reader.pieces, strict=True)
        ]
        none = found[0].own_rows[:1]
        return OwnSums(sum(values[1:], values[0]), found[0].scores, jnp.broadcast_to(none, (share, none.shape[1])))

    @property
    def _spans(self) -> set[tuple[int, int]]:
        """Of all shards' pieces."""
        return {(piece.span.start, piece.span.stop) for reader in self.readers for piece in reader.pieces}

    def _joined(self, gradients: tuple[Params, Sequence[Mapping[str, jax.Array]]]) -> tuple[Params, jax.Array | None]:
        """Gradients of weights and of learnable rows in the shapes of all branches."""
        dense, rows = gradients
        if not rows[0]:
            return dense, None
        return dense, _padded(jnp.concatenate([join(own) for own in rows]), self._most_rows, 0)

    def _met(self, own: OwnSums, batch: RelBatch) -> jax.Array:
        if not self.metapaths:
            return meet_in_sum(own.values)
        numbers = [[self.metapaths.index(name) for name in reader.names] for reader in self.readers]
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


def abstract_packing(pieces: Sequence[tuple[Any, Any]]) -> tuple[Packing, jax.tree_util.PyTreeDef]:
    """How the blocks and features of a shard's pieces lie in its buffers; arrays or their shapes."""
    leaves, structure = jax.tree.flatten([(blocks, dict(features)) for blocks, features in pieces])
    return Packing.of(leaves), structure
