"""Training on sampled mini-batches, on one device or several, each of which has a share of every batch."""

import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.config import Config
from jhgnn.distributed.cache.rows import Admission
from jhgnn.distributed.shares import Shares, plan_shares
from jhgnn.errors import InputError
from jhgnn.graph.erased import NAME as ERASED
from jhgnn.graph.erased import ids_of_type
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.nn.embeddings import tables_of
from jhgnn.nn.inputs import GraphSpec
from jhgnn.random.counter_hash import mix
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.hot import count_receivers
from jhgnn.sampling.plan import SamplingPlan
from jhgnn.stores.device import DeviceRows
from jhgnn.stores.host import HostRows
from jhgnn.training import sampled_facts, sampled_shapes
from jhgnn.training.execution import Execution
from jhgnn.training.feature_cache import admitted_rows, with_kept_rows
from jhgnn.training.hot import COUNTED_BATCHES, placed_means, with_hot_vertices, without_hot
from jhgnn.training.layerwise import layerwise_rows
from jhgnn.training.mapped_tables import MappedPrograms, MappedReader, Shapes, new_records
from jhgnn.training.mesh import REPLICATED, SHARDED, DeviceMesh, Specs
from jhgnn.training.parts import read_parts
from jhgnn.training.problem import Problem
from jhgnn.training.remat import check_supported
from jhgnn.training.reuse import REUSING, abstract_results, with_reused_rows
from jhgnn.training.sampled_choices import plan_sampling
from jhgnn.training.sampled_feed import BatchSource
from jhgnn.training.sampled_layout import Layout, learn_layout
from jhgnn.training.sampled_programs import SampledPrograms
from jhgnn.training.sampled_rows import rows_of_samples
from jhgnn.training.sampled_step import CutReader, EvaluationProgram, Resident, SampledReader, Shard, seeds_by_type
from jhgnn.training.state import Params, TrainState
from jhgnn.training.update import UpdateProgram


class Sampled(Execution):
    """Each update over a mini-batch of sampled neighbours.

    Attributes:
        sampling: what is drawn, where, and which features are read.
        plain: the same without hot vertices, with which everything but training draws; often the same object.
        hot_s: seconds of finding hot vertices and computing their means.
        share_chosen: how `sampling.hot_share = "auto"` was settled, in a line; empty where the recipe names a number.
        steps_chosen: how `distributed.time_steps = -1` was settled, alike.
        parts: where rows live, where no device holds all of them.
    """

    def __init__(self, problem: Problem) -> None:
        """Builds metapath graphs where neighbours are drawn from them, and plans the draws.

        Raises:
            InputError: a fan-out that does not fit the graph or the layers; a kernel named that samples do not use; a
                batch that does not divide over the devices.
        """
        super().__init__(problem)
        self.mesh = DeviceMesh(problem.config.distributed.devices)
        self.parts = read_parts(problem.config, problem.graph, self.mesh)
        self.sampling = self.plain = plan_sampling(problem)
        self.spec: GraphSpec = self.sampling.spec
        self.metapaths, self.choices, self.sgb_s = (
            self.sampling.metapaths,
            self.sampling.choices,
            self.sampling.sgb_s,
        )
        self._check_division()
        self.hot_s, self.share_chosen, self.steps_chosen = 0.0, "", ""
        if self.config.sampling.hot != "none" and self.config.sampling.hot_share:
            self._find_hot()

    @functools.cached_property
    def visits(self) -> dict[str, np.ndarray]:
        """In how many of the first epoch's batches, of a part of them, each vertex receives at the bottom hop."""
        seed, plain = self.config.run.seed, self.plain
        batches = self.batches(seed)
        order = batches.order(0)
        count = min(batches.steps_per_epoch, COUNTED_BATCHES)
        seeds = ((self.seeds_of(batches.batch(order, step), seed, step), step) for step in range(count))
        return count_receivers(plain.sampled, plain.plan, seeds, seed, self.config.sampling.threads)

    def _find_hot(self) -> None:
        """Finds the hot vertices among the receivers of the first epoch's batches."""
        start, settings = time.perf_counter(), self.config.sampling
        chosen = with_reused_rows if settings.hot in REUSING else with_hot_vertices
        self.sampling = chosen(self.plain, settings, self.visits)
        if self.parts is not None and self.sampling.hot is not None:
            placement = placed_means(self.parts.placement, self.sampling.hot)
            self.parts = dataclasses.replace(self.parts, placement=placement)
        self.hot_s = time.perf_counter() - start

    def _check_division(self) -> None:
        batch_size, parts = self.config.sampling.batch_size, self.config.training.micro_batches
        if self.config.distributed.time_steps > self.mesh.size:
            raise InputError(
                f"distributed.time_steps = {self.config.distributed.time_steps} is over the {self.mesh.size} devices,"
                " each of which is one time step; lower it, or leave it out"
            )
        if self.config.distributed.strategy == "owner":
            return
        if self.mesh.size > 1 and self.config.sampling.tables == "mapped":
            raise InputError(
                f"sampling.tables = 'mapped' with {self.mesh.size} devices: its rows are staged for one; set"
                " distributed.devices = 1"
            )
        if batch_size % (self.mesh.size * parts):
            cut = f" of {parts} micro-batches" if parts > 1 else ""
            raise InputError(f"sampling.batch_size = {batch_size} does not divide over {self.mesh.size} devices{cut}")

    @property
    def plan(self) -> SamplingPlan:
        return self.sampling.plan

    @property
    def num_parts(self) -> int:
        """Parts that a batch is cut into, over all devices and micro-batches."""
        return self.mesh.size * self.shares.num_parts

    @functools.cached_property
    def shares(self) -> Shares:
        """Which device trains which targets of a batch."""
        strategy, batches = self.config.distributed.strategy, self.batches(self.config.run.seed)
        places = None
        if strategy in ("owner", "leapgnn"):
            assert self.parts is not None
            (target,) = self.task.targets
            placement = self.parts.placement
            places = placement.places(target, np.arange(len(placement.homes[target]), dtype=np.int32))
        order = batches.order(0)
        return plan_shares(
            strategy,
            self.mesh.size,
            batches.batch_size,
            (batches.batch(order, step) for step in range(batches.steps_per_epoch)),
            places,
            self.config.training.micro_batches,
            self.config.distributed.time_steps,
        )

    def batches(self, seed: int) -> EpochBatches:
        return EpochBatches(self.task.training_examples(), self.config.sampling.batch_size, seed)

    def seeds_of(self, ids: np.ndarray, seed: int, step: int) -> dict[str, np.ndarray]:
        """The nodes from which some examples' neighbours are drawn, int32 by type, on the host."""
        return seeds_by_type(self.task.requests(self.task_data, ids, np.uint32(seed), np.uint32(step)), self.sampling)

    @functools.cached_property
    def task_data(self) -> Any:
        """What the task keeps on the devices."""
        return self.task.resident()

    def evaluation_batches(self, split: str, seed: int) -> EpochBatches | None:
        """Batches of a split's examples, in ascending order; of a fixed random part where the recipe bounds them.

        None where the split is empty.
        """
        ids = self.task.splits[split]
        if len(ids) == 0:
            return None
        seed = int(mix(np.array([seed ^ 0xE7A1], np.uint32))[0])  # draws unlike those of training
        size, most = self.config.sampling.batch_size, self.config.sampling.evaluation_nodes
        if 0 < most < len(ids):
            shuffled = EpochBatches(ids, size, seed)
            ids = np.sort(ids[shuffled.order(0)[:most]])
        return EpochBatches(ids, size, seed, shuffle=False)

    @property
    def layerwise(self) -> bool:
        """Whether figures are computed over all neighbours, a layer at a time."""
        return self.config.sampling.evaluation == "layerwise" or not self.task.by_example

    @property
    def evaluated(self) -> "Sampled":
        """What evaluates: the same without hot vertices, so that figures do not depend on them."""
        return self if self.sampling is self.plain else self._without_hot

    @functools.cached_property
    def _without_hot(self) -> "Sampled":
        other = self._copy()
        other.problem = dataclasses.replace(self.problem, config=without_hot(self.config))
        # The store is that of training, so that devices hold features once; ids of its means are not drawn.
        other.sampling = other.plain = dataclasses.replace(self.plain, features=self.sampling.features)
        return other

    @property
    def has_evaluation_program(self) -> bool:
        return not self.layerwise

    def describe(self) -> list[str]:
        return sampled_facts.describe(self)

    def facts(self) -> dict[str, Any]:
        return sampled_facts.facts(self)

    def profile_facts(self) -> dict[str, Any]:
        return sampled_facts.profile_facts(self)

    @property
    def saved_state(self) -> TrainState:
        """See `Execution`: with two sets of reused rows, those of the super-batch at hand and of the next one."""
        state = self.abstract_state
        if self.sampling.reuse is None:
            return state
        results = abstract_results(dict(self.layout.resident.kept))
        number = jax.ShapeDtypeStruct((), jnp.int32)
        return state._replace(hot={"super_batch": number, "current": results, "next": results})

    @functools.cached_property
    def features(self) -> HostRows:
        """Rows of fixed features that the host gathers, with a fast tier of those read most where the recipe asks."""
        features = self.sampling.features.read_at_random()
        return with_kept_rows(features, self.admission) if self.config.sampling.cache else features

    @property
    def maps_tables(self) -> bool:
        """Whether embedding tables are in files, and there are any."""
        return self.config.sampling.tables == "mapped" and bool(tables_of(self.abstract_params))

    @functools.cached_property
    def records(self) -> dict[str, np.ndarray]:
        """The files of mapped tables; none where tables are on the devices."""
        return new_records(self.config, self.abstract_state) if self.maps_tables else {}

    @functools.cached_property
    def admission(self) -> Admission:
        """Which rows the recipe's cache keeps."""
        seed = self.config.run.seed
        return admitted_rows(
            self.sampling,
            self.config.sampling,
            self.batches(seed),
            lambda ids, step: self.seeds_of(ids, seed, step),
            self.records,
        )

    @property
    def kept_ids(self) -> Mapping[str, np.ndarray]:
        """By type, rows of mapped tables in the fast tier."""
        if not self.config.sampling.cache:
            return {}
        return {name: ids for name, ids in self.admission.ids.items() if name in self.records}

    @functools.cached_property
    def mapped_shapes(self) -> Shapes:
        """What programs on mapped tables are compiled for."""
        offsets = self.sampling.offsets
        slots = [
            {name: own[-1].get(ERASED if offsets else name) for name in self.records}
            for own in self.layout.buckets.capacities
        ]
        return Shapes({name: len(ids) for name, ids in self.kept_ids.items()}, slots)

    def semantic_edges(self) -> Mapping[str, int]:
        edges = self.plain.sampled.edges
        if self.metapaths:
            return {} if self.config.sampling.walks else {each.name: own.num_edges for each, own in edges.items()}
        return {str(each): own.num_edges for each, own in edges.items()}

    @functools.cached_property
    def layout(self) -> Layout:
        """What the programs are compiled for."""
        return learn_layout(self, self.parts)

    @property
    def num_buckets(self) -> int:
        return len(self.layout.variants)

    def reader(self, bucket: int) -> SampledReader:
        """What reads a batch in a program; `bucket` is that of the layout's variants."""
        variant = self.layout.variants[bucket]
        capacities = self.layout.buckets.capacities[variant.bucket]
        if self.maps_tables:
            return MappedReader(self.task, self.sampling, capacities)
        if self.parts is None:
            return SampledReader(self.task, self.sampling, capacities)
        sizes = self.mesh.size, self.shares.num_parts
        assert isinstance(variant.requests, FrozenCounts)
        return CutReader(self.task, self.sampling, capacities, variant.requests, variant.frontiers, *sizes)

    @property
    def state_specs(self) -> Specs:
        specs = super().state_specs
        return specs if self.parts is None else self.parts.specs(self.abstract_state)

    @property
    def params_specs(self) -> Specs:
        """How each parameter is cut over the mesh."""
        return REPLICATED if self.parts is None else self.parts.specs(self.abstract_params)

    @property
    def resident_specs(self) -> Specs:
        """How what stays on the devices is cut."""
        if self.parts is None:
            return REPLICATED
        same, cut = cast(Any, REPLICATED), cast(Any, SHARDED)
        edges = cut if self.sampling.partitioned else same
        return Resident(same, DeviceRows(cut), edges, same, same, cut, same)

    def placed(self, tree: Any) -> Any:
        """Shapes of a state or parameters, as programs take them."""
        if self.maps_tables:
            return self.mapped_shapes.abstract(tree)
        return tree if self.parts is None else self.parts.abstract(tree)

    @property
    def common_layers(self) -> int:
        """Layers whose fusion runs over all targets of a batch at once; 0 for most models."""
        return self.sampling.num_layers if self.model.fuses_over_targets else 0

    def update_program(self, bucket: int = 0, num_devices: int | None = None) -> UpdateProgram:
        """The update that is traced for a bucket."""
        return UpdateProgram(
            self.structure,
            self.task,
            self.reader(bucket),
            self.config.training,
            self.steps_per_epoch,
            self.common_layers,
            num_devices=self.mesh.size if num_devices is None else num_devices,
            ring=self.config.distributed.strategy == "leapgnn" and self.shares.num_parts > 1,
            table_rows=self.sampling.table_rows,
            repeats=self.plan.temporal != "none",  # a vertex stands once for each time
        )

    def evaluation_program(self, bucket: int = 0) -> EvaluationProgram:
        """The evaluation that is traced for a bucket, for tasks whose figures add up over examples."""
        training = self.config.training
        return EvaluationProgram(
            self.structure,
            self.task,
            self.reader(bucket),
            training.remat,
            training.micro_batches,
            self.common_layers,
            self.mesh.axes,
        )

    def lower_update(self, bucket: int = 0) -> jax.stages.Lowered:
        votes = jax.ShapeDtypeStruct((len(self.mesh.local_shards), 2), jnp.float32)
        shard = self.abstract_shard(self.layout.bucket(bucket))
        if self.maps_tables:
            shard = dataclasses.replace(shard, places=self.mapped_shapes.abstract_places(self.layout.bucket(bucket)))
        arguments = (self.placed(self.abstract_state), self._abstract_resident, shard, votes)
        specs = (self.state_specs, self.resident_specs, SHARDED, SHARDED)
        results = REPLICATED if self.parts is None else (self.state_specs, REPLICATED)
        return self.mesh.lower(self.update_program(bucket), arguments, specs, donate=(0,), results=results)

    def lower_evaluation(self, bucket: int = 0) -> jax.stages.Lowered:
        return self.evaluated._lower_counts(bucket)

    def _lower_counts(self, bucket: int = 0) -> jax.stages.Lowered:
        """Traces the evaluation of batches as this execution draws them."""
        shard = self.abstract_shard(self.layout.bucket(bucket))
        arguments = (self.placed(self.abstract_params), self._abstract_resident, shard)
        specs = (self.params_specs, self.resident_specs, SHARDED)
        return self.mesh.lower(self.evaluation_program(bucket), arguments, specs)

    def lower_inference(self) -> jax.stages.Lowered:
        """Traces a batch's counts; for a task whose figures need the rows of all nodes, its loss without dropout.

        Raises:
            InputError: the strategy is `leapgnn`, whose models compute gradients as they move.
        """
        if self.config.distributed.strategy == "leapgnn":
            raise InputError("distributed.strategy = 'leapgnn' has no inference to profile; use 'owner' or 'data'")
        if self.task.by_example:
            return self._lower_counts()
        arguments = (self.placed(self.abstract_params), self._abstract_resident, self.abstract_shard())
        specs = (self.params_specs, self.resident_specs, SHARDED)
        return self.mesh.lower(self.update_program().inference, arguments, specs)

    @property
    def batches_ahead(self) -> int:
        settings = self.config.sampling
        return settings.prefetch_depth + 1 if self.sampling.side[0] == "host" and settings.prefetch_threads else 0

    @property
    def _abstract_resident(self) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.layout.resident)

    def abstract_shard(self, bucket: int = 0, num_shards: int | None = None) -> Shard:
        """See `sampled_shapes.abstract_shard`."""
        return sampled_shapes.abstract_shard(self, bucket, num_shards)

    def resident_bytes(self) -> int:
        return sampled_shapes.resident_bytes(self)

    def features_of(self, blocks: Any, rows: Any = None) -> dict[str, Any]:
        """Features of the nodes that a batch reads, of each type that has features and is among them.

        `rows` replaces the gathering: from a type and ids to anything, such as shapes.
        """
        store = self.features
        gather = store.gather if rows is None else rows
        found = {}
        for node_type in store.node_types:
            if node_type in blocks.nodes:
                found[node_type] = gather(node_type, blocks.nodes[node_type])
            elif self.sampling.offsets and rows is None:
                found[node_type] = gather(node_type, ids_of_type(blocks.nodes, node_type, self.sampling.offsets))
            elif self.sampling.offsets:
                found[node_type] = gather(node_type, blocks.nodes[ERASED])  # the shape is the same
        return found

    def rows(self, params: Params, seed: int) -> Mapping[str, np.ndarray]:
        """See `Execution`: over all neighbours, a layer at a time; over drawn ones where metapaths are walked, or where
        each node sees those of its own time.
        """
        if self.config.sampling.walks or self.plan.temporal != "none":
            return rows_of_samples(self, self.plain, self.features_of, params, seed)
        return layerwise_rows(self, self.plain, params)

    @property
    def source(self) -> BatchSource:
        """What batches are made from."""
        return BatchSource(
            self.mesh,
            self.sampling,
            self.config.sampling,
            self.layout.sampler,
            self.layout.buckets,
            self.shares,
            self.seeds_of,
            self.features_of,
        )

    def with_training(self, **changes: Any) -> "Sampled":
        other = super().with_training(**changes)
        if other.num_parts == self.num_parts and "layout" in self.__dict__:
            other.__dict__["layout"] = self.layout  # capacities are of a part of a batch
        if "_without_hot" in self.__dict__:
            other.__dict__["_without_hot"] = self._without_hot.with_training(**changes)
        other._check_division()
        return other

    def compile(self) -> SampledPrograms:
        check_supported(self.config.training.remat)
        evaluations = 0 if self.layerwise else self.evaluated.num_buckets
        programs = MappedPrograms if self.maps_tables else SampledPrograms
        return programs(self, *self.compile_all(evaluations, initial=self.parts is None and not self.maps_tables))


def cuts(config: Config, mesh: DeviceMesh) -> Iterator[int]:
    """Numbers of micro-batches that a budget may try: powers of two that divide the batch."""
    parts = 2
    while config.sampling.batch_size % (parts * mesh.size) == 0:
        yield parts
        parts *= 2
