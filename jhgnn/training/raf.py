"""Training with relations first: the mesh axis `rel` divides the relations into the targets, `data` the targets.

Weights and learnable tables stay on every device, and every device updates them alike, so checkpoints and evaluation
are those of other mini-batch training. Evaluation runs the model whole on every device.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jhgnn.errors import InputError
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.nn.branches import by_branches, last_layer_has_residual
from jhgnn.sampling.block_arrays import block_arrays
from jhgnn.sampling.capacities import presampled
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import Capacities
from jhgnn.training.execution import Batch, Feed, num_bytes
from jhgnn.training.mesh import DATA, REL, REPLICATED, SHARDED, DeviceMesh, local
from jhgnn.training.problem import Problem
from jhgnn.training.programs import Compiled
from jhgnn.training.raf_feed import SPECS, RelFeed, RelSource
from jhgnn.training.raf_shards import RelShard, relation_shards
from jhgnn.training.raf_step import BranchReader, RelBatch, RelUpdateProgram, abstract_packing
from jhgnn.training.remat import check_supported
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_feed import SampledFeed
from jhgnn.training.sampled_layout import presampled_seeds
from jhgnn.training.sampled_programs import SampledPrograms
from jhgnn.training.state import Params, TrainState
from jhgnn.training.update import UpdateReport


class RelationsFirst(Sampled):
    """See the module.

    Attributes:
        shards: what each place on `rel` draws and computes.
    """

    shards: tuple[RelShard, ...]

    def __init__(self, problem: Problem) -> None:
        """Deals out the branches, or reads the recipe's plan.

        Raises:
            InputError: as `Sampled` and `relation_shards`; a device count that the shards do not divide; a model whose
                fusion cannot be met in.
        """
        sampling = dataclasses.replace(problem.config.sampling, side="host")  # each shard's own sampler is on the host
        super().__init__(dataclasses.replace(problem, config=dataclasses.replace(problem.config, sampling=sampling)))
        self.shards = relation_shards(self.problem, self.sampling)
        self.mesh = DeviceMesh(self.config.distributed.devices, relation_shards=len(self.shards))
        self._check_division()
        if not by_branches(self.structure, self.abstract_params):
            raise InputError(
                f"distributed.strategy = 'raf': the fusion of model.name = {self.config.model.name!r} is neither a sum"
                " over relations nor attention over metapaths"
            )

    def _check_division(self) -> None:
        if len(self.mesh.mesh.axis_names) == 2:  # not yet while the base class is set up
            super()._check_division()

    def describe(self) -> list[str]:
        of_shards = [
            f"relations of shard {number}: {', '.join(shard.own.names)}{' and the own row' * shard.own.own_row}"
            for number, shard in enumerate(self.shards)
        ]
        return [*super().describe(), f"mesh: {self.mesh.size} data x {len(self.shards)} rel", *of_shards]

    def facts(self) -> dict[str, Any]:
        return super().facts() | {
            "strategy": "raf",
            "relation_shards": [list(shard.own.names) for shard in self.shards],
        }

    @functools.cached_property
    def rel_source(self) -> RelSource:
        """Learns each shard's capacities by sampling its branches."""
        config, seed = self.config, self.config.run.seed
        samplers = tuple(
            HostSampler(self.sampling.sampled, shard.plan, config.sampling.threads) for shard in self.shards
        )
        learnt = [
            presampled(sampler, seed, presampled_seeds(self), quantiles=(1.0,)).capacities for sampler in samplers
        ]
        count = max(map(len, learnt))
        capacities = tuple(tuple(own[min(bucket, len(own) - 1)] for own in learnt) for bucket in range(count))
        readers = tuple(
            tuple(self._reader(shard, own) for shard, own in zip(self.shards, of_bucket, strict=True))
            for of_bucket in capacities
        )
        return RelSource(
            self.mesh,
            config.sampling,
            samplers,
            capacities,
            readers,
            self.sampling.compressed,
            self.seeds_of,
            self._features_of,
        )

    def _features_of(self, blocks: SampledBlocks, reads: Sequence[str], rows: Any = None) -> dict[str, Any]:
        store = self.features
        gather = store.gather if rows is None else rows
        if self.sampling.features_on_device[0]:
            return {}
        return {name: gather(name, blocks.nodes[name]) for name in store.node_types if name in reads}

    def _reader(self, shard: RelShard, capacities: Capacities) -> BranchReader:
        def array(*shape: int, dtype: Any = jnp.int32) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype)

        blocks = block_arrays(shard.plan, capacities, array, compressed=self.sampling.compressed)
        features = self._features_of(blocks, shard.own.reads, self.sampling.features.abstract)
        packing, structure = abstract_packing(blocks, features)
        drawn = {draw.name for draw in shard.plan.draws if any(draw.widths)}
        endpoints = tuple(each for each in self.sampling.endpoints if each[0] in drawn)
        return BranchReader(shard.own, packing, structure, endpoints)

    @property
    def num_buckets(self) -> int:
        return len(self.rel_source.capacities)

    def rel_update_program(self, bucket: int = 0) -> RelUpdateProgram:
        """What is traced for a bucket."""
        return RelUpdateProgram(
            self.structure,
            self.task,
            self.reader(0),
            self.config.training,
            self.steps_per_epoch,
            num_devices=self.mesh.size * len(self.shards),
            axes=(DATA, REL),
            readers=self.rel_source.readers[bucket],
            metapaths=self.spec.metapaths if self.model.fuses_over_targets else (),
            has_residual=last_layer_has_residual(self.structure, self.abstract_params),
            places=self.mesh.size,
        )

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
        arguments = (self.abstract_state, self._abstract_resident, self.abstract_rel_batch(bucket), votes)
        specs = (self.state_specs, REPLICATED, SPECS, SHARDED)
        return self.mesh.lower(self.rel_update_program(bucket), arguments, specs, donate=(0,))

    def profile_facts(self) -> dict[str, Any]:
        found = super().profile_facts()
        slots = [sum(count for _, count in own[-1].items) for own in self.rel_source.capacities[0]]
        return {"sampling": found["sampling"] | {"slots": max(slots), "relation_shards": len(self.shards)}}

    def resident_bytes(self) -> int:
        held = (self.layout.resident, self.abstract_state, self.abstract_params)
        return num_bytes(held) + (1 + self.batches_ahead) * num_bytes(self.abstract_rel_batch())

    def with_training(self, **changes: Any) -> "RelationsFirst":
        other = super().with_training(**changes)
        assert isinstance(other, RelationsFirst)
        if "rel_source" in self.__dict__:
            other.__dict__["rel_source"] = self.rel_source
        return other

    def compile(self) -> "RelPrograms":
        check_supported(self.config.training.remat)
        evaluations = 0 if self.layerwise else len(self.layout.buckets.capacities)
        return RelPrograms(self, *self.compile_all(evaluations))


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
        """On the same batch with all relations in one place, which computes the same."""
        return super().explain(state, self._undivided(batch), where)

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
