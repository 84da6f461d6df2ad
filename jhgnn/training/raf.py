"""Training with relations first: the mesh axis `rel` divides the relations into the targets, `data` the targets.

Weights stay on every device, and every device updates them alike. A learnable row, with its moments, lives on one
device alone, which updates it: one of the shard that reads most rows of its type (`jhgnn.distributed.meta.owners`), or
that the plan names. Checkpoints are in shards, as on parts. Evaluation runs the model whole on every device, with
learnable rows fetched.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.distributed.meta.plan import read_plan
from jhgnn.errors import InputError
from jhgnn.graph.sampled import FrozenCounts, SampledBlocks
from jhgnn.nn.branches import by_branches, last_layer_has_residual
from jhgnn.nn.embeddings import tables_of
from jhgnn.sampling.block_arrays import block_arrays
from jhgnn.sampling.capacities import Buckets, presampled
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import Capacities
from jhgnn.stores.exchange import PairCounts, Pairwise
from jhgnn.training.diagnosis import HINT
from jhgnn.training.execution import Batch, Feed, num_bytes
from jhgnn.training.frontier_meeting import Frontier, FrontierMeeting, frontier_meetings
from jhgnn.training.joined_tables import JOINED, JoinedTables
from jhgnn.training.mesh import DATA, REL, REPLICATED, SHARDED, DeviceMesh, Specs, local
from jhgnn.training.owned_reader import OwnedReader, OwnedRows
from jhgnn.training.problem import Problem
from jhgnn.training.programs import Compiled
from jhgnn.training.raf_feed import SPECS, RelFeed, RelSource
from jhgnn.training.raf_rows import Draws, Reads, most_requests
from jhgnn.training.raf_shards import RelPiece, RelShard, relation_shards
from jhgnn.training.raf_step import BranchReader, PieceReader, RelBatch, RelUpdateProgram, abstract_packing
from jhgnn.training.remat import check_supported
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_feed import SampledFeed
from jhgnn.training.sampled_layout import Layout, Variant, learn_layout, presampled_seeds, presampled_shares
from jhgnn.training.sampled_programs import SampledPrograms
from jhgnn.training.sampled_shapes import device_bytes
from jhgnn.training.sampled_step import SampledReader
from jhgnn.training.state import Params, TrainState
from jhgnn.training.update import UpdateReport


class RelationsFirst(Sampled):
    """See the module.

    Attributes:
        shards: what each place on `rel` draws and computes.
        only: the place on `rel` that this process compiles its update for; None: one program is for all.
        parts: where learnable rows live; None where all types have features.
    """

    shards: tuple[RelShard, ...]
    only: int | None
    parts: JoinedTables | None

    def __init__(self, problem: Problem) -> None:
        """Deals out the branches, or reads the recipe's plan.

        Raises:
            InputError: as `Sampled` and `relation_shards`; a device count that the shards do not divide; a model whose
                fusion cannot be met in; an optimizer that scales learnable rows by norms of whole tables; a program
                for each process where there is one process, or a process has several shards.
        """
        sampling = dataclasses.replace(problem.config.sampling, side="host")  # each shard's own sampler is on the host
        super().__init__(dataclasses.replace(problem, config=dataclasses.replace(problem.config, sampling=sampling)))
        self.shards = relation_shards(self.problem, self.sampling)
        self.mesh = DeviceMesh(self.config.distributed.devices, relation_shards=len(self.shards))
        self.only = place_to_compile(self.config.distributed.programs, self.mesh)
        self._check_division()
        self._check_pieces()
        if not by_branches(self.structure, self.abstract_params):
            raise InputError(
                f"distributed.strategy = 'raf': the fusion of model.name = {self.config.model.name!r} is neither a sum"
                " over relations nor attention over metapaths"
            )
        self.parts = self._owned()

    def _owned(self) -> JoinedTables | None:
        """Draws the first batches, and gives each learnable row to a device of the shard that reads most rows of its
        type, or that the plan names.
        """
        num_nodes = {name: table.shape[0] for name, table in tables_of(self.abstract_params).items()}
        if not num_nodes:
            return None
        if self.config.training.optimizer == "lamb":
            raise InputError(
                "training.optimizer = 'lamb' scales updates by norms of whole tables, and distributed.strategy = 'raf'"
                " has some rows of them on each device; use 'adamw'"
            )
        plan = self.config.distributed.plan
        planned = read_plan(plan).row_owners if plan else {}
        placement = self._branch_reads.placement(num_nodes, planned, self.mesh.size, len(self.shards))
        return JoinedTables(placement, self.mesh)

    @functools.cached_property
    def _branch_samplers(self) -> tuple[tuple[HostSampler, ...], ...]:
        """Of each shard's pieces, over their own plans."""
        threads, sampled = self.config.sampling.threads, self.sampling.sampled
        return tuple(tuple(HostSampler(sampled, piece.plan, threads) for piece in each.pieces) for each in self.shards)

    @functools.cached_property
    def _branch_buckets(self) -> tuple[tuple[Buckets, ...], ...]:
        """Capacities of each shard's pieces, learnt by sampling their branches."""

        def learnt(sampler: HostSampler, piece: RelPiece) -> Buckets:
            seeds = (piece.seeds(own) for own in presampled_seeds(self))
            return presampled(sampler, self.config.run.seed, seeds, quantiles=(1.0,))

        return tuple(
            tuple(learnt(sampler, piece) for sampler, piece in zip(own, shard.pieces, strict=True))
            for own, shard in zip(self._branch_samplers, self.shards, strict=True)
        )

    @functools.cached_property
    def _branch_reads(self) -> Reads:
        """Learnable rows that each device reads of its branches in the first batches."""
        types = tuple(tables_of(self.abstract_params))
        draws = [
            [
                Draws(sampler, buckets, tuple(name for name in types if name in piece.own.reads), piece.seeds)
                for sampler, buckets, piece in zip(*own, shard.pieces, strict=True)
            ]
            for *own, shard in zip(self._branch_samplers, self._branch_buckets, self.shards, strict=True)
        ]
        return Reads.drawn(draws, self._first_seeds(), self.config.run.seed)

    def _first_seeds(self) -> Iterator[list[Mapping[str, np.ndarray]]]:
        """The first batches' seeds, of each place on `data`."""
        for step, shares in enumerate(presampled_shares(self)):
            yield [self.seeds_of(own, self.config.run.seed, step) for own in shares]

    def _check_division(self) -> None:
        if len(self.mesh.mesh.axis_names) == 2:  # not yet while the base class is set up
            super()._check_division()

    def _check_pieces(self) -> None:
        share = self.config.sampling.batch_size // self.mesh.size
        for piece in (piece for shard in self.shards for piece in shard.pieces):
            span = piece.span(share)
            if span.start == span.stop:
                raise InputError(
                    f"distributed.plan gives a shard targets {piece.low} to {piece.high - 1} of {piece.of}, of which"
                    f" none are left of the {share} at each of {self.mesh.size} places: use fewer devices, or a larger"
                    " sampling.batch_size"
                )

    def describe(self) -> list[str]:
        of_shards = [
            f"relations of shard {number}: {'; '.join(map(_in_words, shard.pieces))}"
            for number, shard in enumerate(self.shards)
        ]
        lines = [*super().describe(), f"mesh: {self.mesh.size} data x {len(self.shards)} rel", *of_shards]
        if self.only is not None:
            lines.append("programs: each process compiles those of its own shard")
        if self.parts is not None:
            owners = [f"{name} by {self._owner(name)}" for name in self.parts.placement.homes]
            lines.append(f"learnable rows: {', '.join(owners)}; at most {self._rows_kept:,} on a device")
        return lines

    def _owner(self, node_type: str) -> str:
        """Which shard owns the rows of a type, for a person."""
        assert self.parts is not None
        placement = self.parts.placement
        found = set((placement.homes[node_type] // placement.rows[node_type] % len(self.shards)).tolist())
        return f"shard {found.pop()}" if len(found) == 1 else "all shards"

    @property
    def _rows_kept(self) -> int:
        """Learnable rows for which a device has room."""
        return 0 if self.parts is None else max(self.parts.placement.rows.values())

    def facts(self) -> dict[str, Any]:
        return super().facts() | {
            "strategy": "raf",
            "programs": "one" if self.only is None else "own",
            "relation_shards": [list(shard.names) for shard in self.shards],
            "learnable_rows_on_a_device": self._rows_kept,
        }

    @property
    def resident_specs(self) -> Specs:
        """Of what stays on the devices nothing is cut."""
        return REPLICATED

    @functools.cached_property
    def layout(self) -> Layout:
        """What evaluation is compiled for, of the whole model on each device."""
        layout, parts = learn_layout(self, None), self.parts
        if parts is None:
            return layout
        types, count = tuple(parts.placement.homes), len(self.shards)
        assert isinstance(layout.sampler, HostSampler)
        draws = Draws(layout.sampler, layout.buckets, types, lambda share: share)
        reads = Reads.drawn([[draws]] * count, self._first_seeds(), self.config.run.seed)
        variants: list[Variant] = []
        for bucket, capacities in enumerate(layout.buckets.capacities):
            slots = {name: capacities[-1].get(name) for name in types}
            most = most_requests(parts.placement, [[slots]] * parts.placement.num_places)
            learnt = [Variant(bucket, reads.requests(parts.placement, most))] if bucket == 0 else []
            variants += [*learnt, Variant(bucket, most)]
        resident = dataclasses.replace(layout.resident, homes={JOINED: parts.homes})
        return dataclasses.replace(layout, resident=resident, variants=tuple(dict.fromkeys(variants)))

    def reader(self, bucket: int) -> SampledReader:
        """What reads a batch of the whole model; see `Sampled`."""
        if self.parts is None:
            return super().reader(bucket)
        variant = self.layout.variants[bucket]
        return self._owned_reader(self.layout.buckets.capacities[variant.bucket], variant.requests)

    def _owned_reader(self, capacities: Capacities, requests: FrozenCounts | PairCounts) -> OwnedReader:
        assert self.parts is not None
        assert not isinstance(requests, FrozenCounts)
        rows = OwnedRows(self.parts.starts, Pairwise(requests, self.mesh.axes))
        return OwnedReader(self.task, self.sampling, capacities, rows)

    @functools.cached_property
    def rel_source(self) -> RelSource:
        """What the batches of all shards are made from; the last bucket holds any batch."""
        config, samplers = self.config, self._branch_samplers
        learnt = [[buckets.capacities for buckets in own] for own in self._branch_buckets]
        count = max(len(piece) for own in learnt for piece in own)
        requests: tuple[PairCounts, ...] = ()
        if self.parts is not None:
            placement = self.parts.placement
            slots = [
                [
                    {name: piece[-1][-1].get(name) for name in placement.homes if name in reads.own.reads}
                    for piece, reads in zip(own, shard.pieces, strict=True)
                ]
                for own, shard in zip(learnt, self.shards, strict=True)
            ]
            most = most_requests(placement, slots * self.mesh.size)
            first = self._branch_reads.requests(placement, most)
            count = max(count, 2 if first != most else 1)
            requests = (first, *[most] * (count - 1))
        capacities = tuple(
            tuple(tuple(piece[min(bucket, len(piece) - 1)] for piece in own) for own in learnt)
            for bucket in range(count)
        )
        readers = tuple(
            tuple(self._reader(shard, own) for shard, own in zip(self.shards, of_bucket, strict=True))
            for of_bucket in capacities
        )
        return RelSource(
            self.mesh,
            config.sampling,
            self.shards,
            samplers,
            capacities,
            readers,
            self.sampling.compressed,
            self.seeds_of,
            self._features_of,
            requests,
            self.only,
        )

    def _features_of(self, blocks: SampledBlocks, reads: Sequence[str], rows: Any = None) -> dict[str, Any]:
        store = self.features
        gather = store.gather if rows is None else rows
        if self.sampling.features_on_device[0]:
            return {}
        return {name: gather(name, blocks.nodes[name]) for name in store.node_types if name in reads}

    def _reader(self, shard: RelShard, capacities: Sequence[Capacities]) -> BranchReader:
        def array(*shape: int, dtype: Any = jnp.int32) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype)

        share, pieces, shapes = self.config.sampling.batch_size // self.mesh.size, [], []
        for piece, own in zip(shard.pieces, capacities, strict=True):
            blocks = block_arrays(piece.plan, own, array, compressed=self.sampling.compressed)
            shapes.append((blocks, self._features_of(blocks, piece.own.reads, self.sampling.features.abstract)))
            drawn = {draw.name for draw in piece.plan.draws if any(draw.widths)}
            endpoints = tuple(each for each in self.sampling.endpoints if each[0] in drawn)
            pieces.append(PieceReader(piece.own, endpoints, piece.span(share), piece.into, piece.given))
        return BranchReader(tuple(pieces), *abstract_packing(shapes), tuple(tables_of(self.abstract_params)))

    @property
    def num_buckets(self) -> int:
        return len(self.rel_source.capacities)

    def rel_update_program(self, bucket: int = 0) -> RelUpdateProgram:
        """What is traced for a bucket."""
        source = self.rel_source
        reader = self.reader(0)
        if self.parts is not None:
            reader = self._owned_reader(reader.capacities, source.requests[bucket])
        return RelUpdateProgram(
            self.structure,
            self.task,
            reader,
            self.config.training,
            self.steps_per_epoch,
            num_devices=self.mesh.size * len(self.shards),
            axes=(DATA, REL),
            readers=source.readers[bucket],
            metapaths=self.spec.metapaths if self.model.fuses_over_targets else (),
            has_residual=last_layer_has_residual(self.structure, self.abstract_params),
            places=self.mesh.size,
            only=self.only,
            meetings=self.frontier_meetings(bucket),
            hidden=self.config.model.hidden,
        )

    def frontier_meetings(self, bucket: int = 0) -> tuple[FrontierMeeting, ...]:
        """Where the sums of the frontiers of cut branches meet, hop by hop; all pieces have as many slots for one."""
        made: list[list[tuple[Frontier, int]]] = [[] for _ in self.shards]
        given: list[list[tuple[Frontier, int]]] = [[] for _ in self.shards]
        for number, (shard, capacities) in enumerate(zip(self.shards, self.rel_source.capacities[bucket], strict=True)):
            for piece, slots in zip(shard.pieces, capacities, strict=True):
                own = piece.own
                if piece.into:
                    made[number].append((piece.into, slots[own.hop].get(own.node_type)))
                if piece.given:
                    given[number].append((piece.given, slots[own.hop + 1].get(own.given)))
        return frontier_meetings(made, given)

    def abstract_rel_batch(self, bucket: int = 0) -> RelBatch:
        """Shapes and dtypes of a batch, with an axis over this process's places or devices."""
        devices, places = len(self.mesh.local_devices), len(self.mesh.local_shards)
        share = self.config.sampling.batch_size // self.mesh.size
        sizes = self.rel_source.sizes(bucket)
        return RelBatch(
            jax.ShapeDtypeStruct((places, share), jnp.int32),
            {name: jax.ShapeDtypeStruct((devices, size), jnp.dtype(name)) for name, size in sizes.items()},
            jax.ShapeDtypeStruct((devices,), jnp.bool_),
        )

    def lower_update(self, bucket: int = 0) -> jax.stages.Lowered:
        votes = jax.ShapeDtypeStruct((len(self.mesh.local_shards), 2), jnp.float32)
        state, batch = self.placed(self.abstract_state), self.abstract_rel_batch(bucket)
        arguments = (state, self._abstract_resident, batch, votes)
        specs = (self.state_specs, self.resident_specs, SPECS, SHARDED)
        results = (self.state_specs, REPLICATED)
        return self.mesh.lower(self.rel_update_program(bucket), arguments, specs, donate=(0,), results=results)

    def profile_facts(self) -> dict[str, Any]:
        found = super().profile_facts()
        slots = [sum(count for piece in own for _, count in piece[-1].items) for own in self.rel_source.capacities[0]]
        return {"sampling": found["sampling"] | {"slots": max(slots), "relation_shards": len(self.shards)}}

    def resident_bytes(self) -> int:
        held = num_bytes(self.layout.resident)
        held += device_bytes(self, self.placed(self.abstract_state), self.state_specs)
        held += device_bytes(self, self.placed(self.abstract_params), self.params_specs)
        return held + (1 + self.batches_ahead) * num_bytes(self.abstract_rel_batch())

    def with_training(self, **changes: Any) -> "RelationsFirst":
        other = super().with_training(**changes)
        assert isinstance(other, RelationsFirst)
        for name in ("rel_source", "_branch_samplers", "_branch_buckets", "_branch_reads"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def compile(self) -> "RelPrograms":
        check_supported(self.config.training.remat)
        evaluations = 0 if self.layerwise else len(self.layout.variants)
        return RelPrograms(self, *self.compile_all(evaluations, initial=self.parts is None))


def place_to_compile(programs: str, mesh: DeviceMesh) -> int | None:
    """The place on `rel` of all of this process's devices, where it compiles that place's branches alone.

    Args:
        programs: `distributed.programs`.
        mesh: of both axes.

    Raises:
        InputError: programs of their own are asked for where that is not so, or not on CPUs.
    """
    places = {shard for _, shard in mesh.local_devices}
    why = ""
    if jax.process_count() == 1:
        why = "there is one, which has all shards"
    elif len(places) > 1:
        why = f"each has {len(places)} shards; give each one device with distributed.devices = 1"
    elif mesh.platform != "cpu":
        why = f"it has run on CPUs alone, and these are on {mesh.platform!r}"
    if programs == "own" and why:
        raise InputError(f"distributed.programs = 'own' compiles a program for each process: {why}; or use 'one'")
    return None if programs == "one" or why else places.pop()


def _in_words(piece: RelPiece) -> str:
    """What a piece computes, for a person."""
    own_row = ["the own row" + "".join(f" of {' / '.join(way)}" for way in [piece.way] if way)] * piece.own.own_row
    below = ", without what is below" if piece.given else ""
    some = "" if piece.high - piece.low == piece.of else f" for targets {piece.low} to {piece.high - 1} of {piece.of}"
    return f"{', '.join((*piece.branches, *own_row))}{below}{some}"


class RelPrograms(SampledPrograms):
    """See `RelationsFirst`."""

    execution: RelationsFirst

    def __init__(self, execution: RelationsFirst, steps: Sequence[Compiled], evaluations: Sequence[Compiled]) -> None:
        super().__init__(execution, steps, evaluations)
        self._feed: RelFeed | None = None

    def feed(self, seed: int) -> RelFeed:  # type: ignore[override]
        self._feed = RelFeed(self.execution.rel_source, self.execution.batches(seed))
        return self._feed

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, UpdateReport]:
        """A batch that is too large for a device's buffers leaves the state alone and runs again in a bigger bucket."""
        own, votes = batch.arguments
        for bucket in range(batch.bucket, len(self.steps)):
            if bucket > batch.bucket:
                assert self._feed is not None
                own = self._feed.again(batch, bucket)
            state, report = self.steps[bucket](state, self.resident, own, votes)
            if bucket == len(self.steps) - 1 or not bool(local(report.overflowed)):
                self.overflows += int(bucket > 0)
                return state, report
        raise RuntimeError("a batch overflowed the bucket that holds any batch")

    def inference_arguments(self, params: Params, batch: Batch) -> tuple[Any, ...]:
        return super().inference_arguments(params, self._undivided(batch))

    def explain(self, state: TrainState, batch: Batch, where: str) -> str:
        """On the same batch with all relations and learnable rows in one place, which computes the same."""
        if jax.process_count() > 1:  # the other processes are leaving, and what they hold is theirs
            return f"{where}; {HINT}"
        return self.explain_shares(self.whole(state), self._undivided(batch), where)

    def _undivided(self, batch: Batch) -> Batch:
        """The batch as training over `data` alone has it."""
        execution = self.execution
        seed = execution.config.run.seed if self._feed is None else self._feed.batches.seed
        feed = SampledFeed(execution.source, execution.batches(seed))
        batches: Iterator[Batch] = feed.iterate(batch.cursor)
        return next(batches)

    def figures(self, feed: Feed, train_s: float) -> dict[str, Any]:
        found: Mapping[str, Any] = super().figures(feed, train_s)
        return dict(found) | {"devices": self.mesh.size * len(self.execution.shards)}
