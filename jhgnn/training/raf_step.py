"""The update of relation-aggregation-first training: each shard of `rel` computes its branches, they meet, all finish.

Which branches of the metatree a device computes is decided by its place on `rel`: either all run one program that has
the branches of all, or each process one with those of its own place. A device meets the others twice: in the middle
(`jhgnn.training.rel_meeting`), and for the sum of all weights' gradients, the loss and the counts over both axes.
Where branches are cut deeper, shards first compute what leads into the frontiers of the outermost hop, meet there
(`jhgnn.training.frontier_meeting`), and so on hop by hop towards the targets; the backward pass goes the other way.
Learnable rows live on one device each; what a branch reads of others' is fetched before it, and its gradients are
returned after it (`jhgnn.stores.exchange.Pairwise`), so that each row is updated once, by its whole gradient. Programs
that differ have the same collectives of the same shapes, tied to each other in one order. A weight that one shard alone
computes with has a zero gradient on the others, so that the sum is whole in any case; what all shards compute alike
after the meeting counts on the first of them.
"""

import dataclasses
import functools
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
from jhgnn.training.frontier_meeting import Frontier, FrontierMeeting
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
        into, given: the frontiers whose sums it makes and is given, as in `RelPiece`.
    """

    own: OwnBranches
    endpoints: tuple[tuple[str, str, str], ...]
    span: slice
    into: Frontier | None = None
    given: Frontier | None = None

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
        pieces: of the shard, all that are in its buffers.
        packing: of the leaves of `structure`.
        structure: of (blocks, features) of each piece.
        learnt: types with learnable rows, in the order in which they are fetched.
        hop: of the vertices whose sums are made: pieces of other hops are not read.
    """

    pieces: tuple[PieceReader, ...]
    packing: Packing
    structure: jax.tree_util.PyTreeDef
    learnt: tuple[str, ...] = ()
    hop: int = 0

    @property
    def of_hop(self) -> tuple[PieceReader, ...]:
        """The pieces that are read."""
        return tuple(piece for piece in self.pieces if piece.own.hop == self.hop)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all relations or metapaths."""
        return tuple(name for piece in self.pieces for name in piece.own.names)

    def inputs(self, resident: Resident, buffers: Mapping[str, Array]) -> list[BranchInputs]:
        """What the model reads of each piece."""
        return [piece.inputs(resident, *own) for piece, own in self._read(self.packing.unpack(buffers))]

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
        for piece, (blocks, _) in self._read(leaves):
            met = {name: name in piece.own.reads and name in blocks.nodes for name in self.learnt}
            found.append({name: blocks.nodes[name] if met[name] else none for name in self.learnt})
        return found

    def _read(self, leaves: Sequence[Any]) -> list[tuple[PieceReader, Any]]:
        """The pieces with their blocks and features."""
        every = zip(self.pieces, jax.tree.unflatten(self.structure, leaves), strict=True)
        return [(piece, own) for piece, own in every if piece.own.hop == self.hop]


class _Arguments(NamedTuple):
    """What all branches of one hop are given.

    Attributes:
        dense: parameters without learnable rows.
        rows: the learnable rows that this device reads, `[most, width]`, one type after the other; None where there are
            none.
        given: the sums of the next hop's frontiers, as `FrontierMeeting` sends them; None where no branch is cut there.
        resident, buffers: what they read beside.
        step_seed: of dropout.
    """

    dense: Params
    rows: jax.Array | None
    given: jax.Array | None
    resident: Resident
    buffers: Mapping[str, Array]
    step_seed: Array


class _Pass(NamedTuple):
    """The passes of one hop's branches: what the backward one takes."""

    branches: BranchGradients
    arguments: _Arguments
    kept: Any


@dataclasses.dataclass(frozen=True, eq=False)
class RelUpdateProgram(UpdateProgram):
    """An update whose sums come from branches that meet over `rel`; the rest is that of every update.

    Attributes:
        readers: of each shard.
        metapaths: names of all, for attention over them; else none.
        has_residual: whether the last layer adds its input to its output.
        places: on the axis `data`.
        only: the place on `rel` whose branches alone the program has; None: all of them, and each device takes its own.
        meetings: at the frontiers of branches that are cut, from those of hop 1 on; none where none is.
        hidden: columns of the sums.
    """

    readers: tuple[BranchReader, ...] = ()
    metapaths: tuple[str, ...] = ()
    has_residual: bool = False
    places: int = 1
    only: int | None = None
    meetings: tuple[FrontierMeeting, ...] = ()
    hidden: int = 0

    def _sums(self, state: TrainState, resident: Any, batch: RelBatch) -> tuple[PartSums, Touched]:
        dense, shard = with_tables(state.params, {}), jax.lax.axis_index(REL)
        rows, routes, misfit = self._fetched(shard, state, resident, batch)
        sums, passes = self._forward(shard, state, resident, batch, rows)
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
        of_branches, of_learnt = self._backward(shard, passes, of_sums)
        touched: Touched = {}
        if of_learnt is not None:
            assert isinstance(self.reader, OwnedReader)
            touched = self.reader.rows.give_back(state.params, resident, routes, self._after(of_learnt, of_branches))
        gradients = jax.tree.map(jnp.add, of_branches, of_rest)
        overflows = (batch.too_small | misfit).astype(jnp.float32)
        return PartSums(with_tables(gradients, {}), loss, count, overflows), touched

    def _forward(
        self, shard: jax.Array, state: TrainState, resident: Any, batch: RelBatch, rows: jax.Array | None
    ) -> tuple[OwnSums, list[_Pass]]:
        """This shard's sums of the targets, and the passes, from the outermost frontiers to the targets."""
        dense, given = with_tables(state.params, {}), None
        passes: list[_Pass] = []
        for hop in reversed(self._hops):
            of_hop = None if rows is None else self._of_hop(rows, hop)
            arguments = _Arguments(dense, of_hop, given, resident, batch.buffers, dropout_seed(state))
            branches = BranchGradients(
                [self._prepare(reader) for reader in self._present(hop)],
                [self._branch(number, reader) for number, reader in zip(self._shards, self._present(hop), strict=True)],
                [functools.partial(self._joined, hop)] * len(self._shards),
            )
            sums, kept = branches.forward(shard, arguments)
            passes.append(_Pass(branches, arguments, kept))
            # Another shard's branches may read rows, or be given sums, where these are not.
            sums = self._after(sums, [each for each in (rows, given) if each is not None])
            if hop:
                with stage("SYNC"):
                    given = self.meetings[hop - 1].sent(sums)
        return sums, passes

    def _backward(self, shard: jax.Array, passes: Sequence[_Pass], of_sums: Any) -> tuple[Params, jax.Array | None]:
        """Gradients of weights and of the learnable rows that this device reads, from those of its targets' sums."""
        gradients, of_rows = None, []
        for hop, (branches, arguments, kept) in zip(self._hops, reversed(passes), strict=True):
            of_dense, of_read, of_given = branches.backward(shard, arguments, kept, of_sums)
            gradients = of_dense if gradients is None else jax.tree.map(jnp.add, gradients, of_dense)
            of_rows.append(of_read)
            if of_given is not None:
                with stage("SYNC"):
                    of_sums = self.meetings[hop].returned(self._after(of_given, [of_sums]))
                gradients = self._after(gradients, [of_sums])
        return gradients, None if of_rows[0] is None else jnp.concatenate(of_rows)

    @property
    def _hops(self) -> range:
        """Of the vertices whose sums are made; 0 for the targets."""
        return range(len(self.meetings) + 1)

    @property
    def _shards(self) -> Sequence[int]:
        """Those whose branches the program has."""
        return range(len(self.readers)) if self.only is None else (self.only,)

    def _present(self, hop: int) -> list[BranchReader]:
        """Of the shards whose branches the program has."""
        return [dataclasses.replace(self.readers[shard], hop=hop) for shard in self._shards]

    def _after(self, values: Any, earlier: Any) -> Any:
        """`values`, in programs that differ not before `earlier`, so that all have their collectives in one order."""
        return after(values, earlier) if self.only is not None and earlier else values

    def _most_rows(self, hop: int) -> int:
        """Learnable rows that a device of the program reads at most, of all types; one where it reads none."""
        return max(1, *(reader.most_rows for reader in self._present(hop)))

    def _of_hop(self, rows: jax.Array, hop: int) -> jax.Array:
        """The rows that one hop's branches read, of those of all hops."""
        begin = sum(map(self._most_rows, self._hops[:hop]))
        return rows[begin : begin + self._most_rows(hop)]

    def _fetched(
        self, shard: jax.Array, state: TrainState, resident: Resident, batch: RelBatch
    ) -> tuple[jax.Array | None, Any, jax.Array]:
        """The learnable rows that this device's branches read, hop by hop, those of each padded; their routes; whether
        they did not fit.
        """
        if not isinstance(self.reader, OwnedReader):
            return None, {}, jnp.zeros((), bool)
        owned = self.reader.rows

        def numbers(readers: Sequence[BranchReader]) -> Callable[[Mapping[str, Array]], jax.Array]:
            def of_shard(buffers: Mapping[str, Array]) -> jax.Array:
                none = jnp.zeros(0, jnp.int32)
                found = [
                    jnp.concatenate([none, *(owned.numbers(ids) for ids in reader.ids(buffers))]) for reader in readers
                ]
                return jnp.concatenate(
                    [_padded(own, self._most_rows(hop), -1) for hop, own in zip(self._hops, found, strict=True)]
                )

            return of_shard

        by_shard = zip(*map(self._present, self._hops), strict=True)
        read = jax.lax.switch(shard, [numbers(readers) for readers in by_shard], batch.buffers)
        # Where it reads none, XLA knew that and left out what the others wait for.
        return owned.fetch(state.params, resident, self._after(read, [batch.ids]))

    def _prepare(self, reader: BranchReader) -> Callable[[_Arguments], tuple[Any, Any]]:
        def prepare(arguments: _Arguments) -> tuple[Any, Any]:
            inputs = reader.inputs(arguments.resident, arguments.buffers)
            rows = [{} for _ in inputs] if arguments.rows is None else reader.split(arguments.rows)
            return (arguments.dense, rows, arguments.given), (inputs, arguments.step_seed)

        return prepare

    def _branch(self, shard: int, reader: BranchReader) -> Callable[[Any, Any], Any]:
        """The sums of a shard's targets, or its buffer of `FrontierMeeting`."""
        slots = max(len(each.names) for each in self.readers) if self.metapaths else 0

        def branch(differentiated: Any, fixed: Any) -> Any:
            (dense, rows, given), (inputs, step_seed) = differentiated, fixed
            met = {} if given is None else self.meetings[reader.hop].unpack(shard, given)
            found = []
            with recomputing(self.training.remat):
                for piece, own, of_piece in zip(reader.of_hop, inputs, rows, strict=True):
                    model: Any = nnx.merge(self.structure, with_tables(dense, of_piece))
                    found.append(
                        own_sums(
                            model,
                            own,
                            piece.own,
                            step_seed,
                            over_devices,
                            given=met[piece.given] if piece.given else None,
                            slots=slots,
                            keeps_rows=self.has_residual,
                        )
                    )
            empty = jnp.zeros((0, self.hidden), jax.tree.leaves(dense)[0].dtype)
            if not reader.hop:
                return self._of_all_targets(found, reader, empty)
            sums: dict[Frontier, jax.Array] = {}
            for piece, own in zip(reader.of_hop, found, strict=True):
                assert piece.into is not None
                sums[piece.into] = sums[piece.into] + own.values if piece.into in sums else own.values
            return self.meetings[reader.hop - 1].pack(shard, sums, empty)

        return branch

    def _of_all_targets(self, found: Sequence[OwnSums], reader: BranchReader, empty: jax.Array) -> OwnSums:
        """What a shard's pieces make, each of its own targets; where there are several, or none, nothing but sums."""
        if len(self._spans) == 1 and all(len(each.of_hop) == 1 for each in self.readers):
            return found[0]
        share = max(self._spans)[1]
        values = [_padded(empty, share, 0)] if not found else []
        values += [
            jnp.pad(own.values, ((piece.span.start, share - piece.span.stop), (0, 0)))
            for own, piece in zip(found, reader.of_hop, strict=True)
        ]
        return OwnSums(sum(values[1:], values[0]), empty[:, 0], jnp.zeros((share, 0), empty.dtype))

    @property
    def _spans(self) -> set[tuple[int, int]]:
        """Of all shards' pieces."""
        return {(piece.span.start, piece.span.stop) for reader in self.readers for piece in reader.of_hop}

    def _joined(self, hop: int, gradients: Any) -> tuple[Params, jax.Array | None, jax.Array | None]:
        """Gradients of weights, of learnable rows and of what was given, in the shapes of all branches."""
        dense, rows, given = gradients
        if not isinstance(self.reader, OwnedReader):
            return dense, None, given
        none = jnp.zeros((0, self.hidden), jax.tree.leaves(dense)[0].dtype)
        return dense, _padded(jnp.concatenate([none, *map(join, rows)]), self._most_rows(hop), 0), given

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
