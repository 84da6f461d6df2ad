"""What mini-batch training runs: capacities, programs compiled for them, and feeds that bring batches to devices."""

import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.config import Config
from jhgnn.counter_hash import mix
from jhgnn.errors import InputError
from jhgnn.graph.sampled import NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import Csr, SemanticGraph
from jhgnn.sampling.capacities import Buckets, padding_waste, presampled
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.device import device_edges
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import Loader, Prefetch
from jhgnn.sampling.native import gather_rows
from jhgnn.sampling.plan import Capacities, Draw, SamplingPlan
from jhgnn.training.minibatch_problem import HostFeatures, MinibatchProblem
from jhgnn.training.minibatch_step import BatchProgram, Resident, Share
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.parallel import Fleet
from jhgnn.training.remat import check_supported
from jhgnn.training.state import TrainState, abstract_params, model_structure
from jhgnn.training.step import Compiled, compile_lowered

PRESAMPLED_DRAWS = 16  # shares drawn to learn capacities from


@dataclasses.dataclass(frozen=True, eq=False)
class MinibatchPrograms:
    """The compiled programs of one problem, one of each kind a bucket, shared by all seeds."""

    structure: nnx.GraphDef
    fleet: Fleet
    sampler: HostSampler
    buckets: Buckets
    resident: Resident
    steps: tuple[Compiled, ...]
    evaluations: tuple[Compiled, ...]

    @property
    def compile_s(self) -> float:
        return sum(program.compile_s for program in (*self.steps, *self.evaluations))

    @property
    def step(self) -> Compiled:
        """The program that most batches run."""
        return self.steps[0]


def train_batches(problem: MinibatchProblem, config: Config) -> EpochBatches:
    """The batches of training; a pure function of the recipe's seed."""
    return EpochBatches(problem.splits["train"], config.sampling.batch_size, config.run.seed)


def compile_minibatches(problem: MinibatchProblem, config: Config) -> MinibatchPrograms:
    """Learns capacities by sampling, places what stays on the devices, and compiles ahead of time.

    Raises:
        InputError: the batch does not divide over the devices, or a device cannot index the edges.
    """
    check_supported(config.training.remat)
    layout = lay_out(problem, config)
    resident = layout.fleet.replicate(layout.resident)
    structure = model_structure(config.model, problem.spec)
    steps, evaluations = [], []
    for bucket in range(len(layout.buckets.capacities)):
        steps.append(compile_lowered(functools.partial(lower_update, problem, config, layout, bucket)))
        evaluations.append(compile_lowered(functools.partial(lower_evaluation, problem, config, layout, bucket)))
    return MinibatchPrograms(
        structure, layout.fleet, layout.sampler, layout.buckets, resident, tuple(steps), tuple(evaluations)
    )


@dataclasses.dataclass(frozen=True, eq=False)
class MinibatchLayout:
    """What programs are compiled for: devices, capacities of one part of a batch, and what will stay on the devices."""

    fleet: Fleet
    sampler: HostSampler
    buckets: Buckets
    resident: Resident
    steps_per_epoch: int


def lay_out(problem: MinibatchProblem, config: Config) -> MinibatchLayout:
    """Learns capacities by sampling.

    Raises:
        InputError: as `compile_minibatches`.
    """
    fleet = Fleet(config.distributed.devices)
    batch_size, parts = config.sampling.batch_size, config.training.micro_batches
    if batch_size % (fleet.size * parts):
        cut = f" of {parts} micro-batches" if parts > 1 else ""
        raise InputError(f"sampling.batch_size = {batch_size} does not divide over {fleet.size} devices{cut}")
    sampler = HostSampler(problem.sampled, problem.plan, config.sampling.threads)
    batches = train_batches(problem, config)
    shares = _shares(batches, problem.spec.target, fleet.size * parts)
    buckets = presampled(sampler, config.run.seed, shares, quantiles=(1.0,))
    resident = Resident(
        labels=np.asarray(problem.graph.labels),
        features=dict(problem.features) if problem.features_on_device[0] else {},
        edges=device_edges(problem.sampled, problem.plan) if problem.side[0] == "device" else {},
    )
    return MinibatchLayout(fleet, sampler, buckets, resident, batches.steps_per_epoch)


def lower_update(
    problem: MinibatchProblem, config: Config, layout: MinibatchLayout, bucket: int = 0
) -> jax.stages.Lowered:
    """Traces the update for a bucket."""
    state = abstract_state(problem, config, layout.steps_per_epoch)
    program, arguments = _program(problem, config, layout, bucket)
    return layout.fleet.lower(program.update, (state, *arguments), batch=2, donate=(0,))


def lower_evaluation(
    problem: MinibatchProblem, config: Config, layout: MinibatchLayout, bucket: int = 0
) -> jax.stages.Lowered:
    """Traces the evaluation of a batch for a bucket."""
    program, arguments = _program(problem, config, layout, bucket)
    return layout.fleet.lower(program.evaluate, (abstract_params(config.model, problem.spec), *arguments), batch=2)


def _program(
    problem: MinibatchProblem, config: Config, layout: MinibatchLayout, bucket: int
) -> tuple[BatchProgram, tuple[Any, Share]]:
    capacities, fleet = layout.buckets.capacities[bucket], layout.fleet
    structure = model_structure(config.model, problem.spec)
    program = BatchProgram(
        structure, config, problem.plan, capacities, problem.spec.target, fleet.size, layout.steps_per_epoch
    )
    share = abstract_share(problem, capacities, len(fleet.local_shards), config.training.micro_batches)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), layout.resident)
    return program, (shapes, share)


def abstract_state(problem: MinibatchProblem, config: Config, steps_per_epoch: int) -> TrainState:
    """Shapes and dtypes of the state."""
    params = abstract_params(config.model, problem.spec)
    opt_state = jax.eval_shape(make_optimizer(config.training, steps_per_epoch).init, params)
    scalar = functools.partial(jax.ShapeDtypeStruct, ())
    return TrainState(scalar(jnp.int32), scalar(jnp.uint32), params, opt_state)


def abstract_share(problem: MinibatchProblem, capacities: Capacities, num_shards: int, parts: int = 1) -> Share:
    """Shapes and dtypes of a batch, with a leading axis over this process's devices, and one over parts if several."""
    votes = jax.ShapeDtypeStruct((num_shards, 2), jnp.float32)
    if problem.side[0] == "device":
        seeds = jax.ShapeDtypeStruct((num_shards, parts * capacities[0][problem.spec.target]), jnp.int32)
        return Share(None, {}, seeds, jax.ShapeDtypeStruct((num_shards, 2), jnp.uint32), votes)
    blocks = _abstract_blocks(problem.plan, capacities, num_shards * parts, problem.compressed)
    features = {} if problem.features_on_device[0] else _features_of(problem.features, blocks, _abstract_rows)
    if parts > 1:
        blocks, features = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_shards, parts, *leaf.shape[1:]), leaf.dtype), (blocks, features)
        )
    return Share(blocks, features, None, None, votes)


def _abstract_edges(draw: Draw, targets: int, width: int, sources: int, array: Callable[..., Any]) -> SemanticGraph:
    return SemanticGraph(
        incoming=Csr(array(targets + 2), array(targets * width)),
        outgoing=Csr(array(sources + 1), array(targets * width)),
        coo=None,
        adjacency=None,
        num_sources=sources,
        num_targets=targets + 1,
        name=draw.name,
    )


def _abstract_blocks(plan: SamplingPlan, capacities: Capacities, num_shards: int, edges: bool) -> SampledBlocks:
    def array(*shape: int, dtype: Any = jnp.int32) -> Any:
        return jax.ShapeDtypeStruct((num_shards, *shape), dtype)

    hops = []
    for hop in range(plan.num_hops):
        tables = {}
        for draw in plan.draws_at(hop):
            targets, width = capacities[hop][draw.target], draw.widths[hop]
            tables[draw.name] = NeighborTable(
                senders=array(targets, width),
                num_neighbors=array(targets),
                visits=array(targets, width) if draw.num_walks else None,
                sender_ids=None,
                receiver_ids=None,
                num_sources=capacities[hop + 1][draw.source],
                name=draw.name,
                edges=_abstract_edges(draw, targets, width, capacities[hop + 1][draw.source], array) if edges else None,
            )
        hops.append(tables)
    return SampledBlocks(
        nodes={name: array(count) for name, count in capacities[-1].items},
        hops=tuple(hops),
        added=array(plan.num_hops + 1, len(plan.node_types)),
        overflowed=array(dtype=jnp.bool_),
        capacities=capacities,
        node_types=plan.node_types,
    )


def _shares(batches: EpochBatches, target: str, num_shards: int) -> Iterator[Mapping[str, np.ndarray]]:
    """Shares of the first batches; full ones, while there are any."""
    order = batches.order(0)
    for step in range(max(1, min(batches.steps_per_epoch, PRESAMPLED_DRAWS // num_shards))):
        for share in batches.batch(order, step).reshape(num_shards, -1):
            yield {target: share}


def _features_of(
    features: Mapping[str, HostFeatures], blocks: SampledBlocks, rows: Callable[[np.ndarray, Any], Any]
) -> dict[str, Any]:
    return {
        name: jax.tree.map(lambda table, name=name: rows(table, blocks.nodes[name]), matrix)
        for name, matrix in features.items()
        if name in blocks.nodes
    }


def gather_features(features: Mapping[str, HostFeatures], blocks: SampledBlocks) -> dict[str, Any]:
    """Rows of the input frontier of each type that has features and was met, NumPy; zeros for padding slots."""
    return _features_of(features, blocks, _rows)


def _abstract_rows(table: np.ndarray, ids: Any) -> Any:
    return jax.ShapeDtypeStruct((*ids.shape, *table.shape[1:]), table.dtype)


def _rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return gather_rows(table, np.ascontiguousarray(ids).reshape(-1)).reshape(*ids.shape, *table.shape[1:])


@dataclasses.dataclass(frozen=True, eq=False)
class Fed:
    """A batch on the devices: where it stands, the first bucket that may hold it, and its shares."""

    cursor: Cursor
    following: Cursor
    bucket: int
    share: Share


class Feed:
    """Brings the batches of a split to the devices, from the host sampler or as seeds for the device's.

    Attributes:
        wait_s: seconds that the training thread waited for batches.
        host_s: seconds of host threads that sampling, gathering and handing over took; host sampler only.
        waste: shares of slots and of table entries that were padding, summed over `num_batches`; host sampler only.
    """

    def __init__(
        self, problem: MinibatchProblem, programs: MinibatchPrograms, config: Config, batches: EpochBatches
    ) -> None:
        self._problem, self._programs, self._batches = problem, programs, batches
        sampling, fleet = config.sampling, programs.fleet
        self._parts = config.training.micro_batches
        self._no_votes = fleet.shard(np.zeros((len(fleet.local_shards), 2), np.float32))
        self._features: Mapping[str, HostFeatures] = {} if problem.features_on_device[0] else problem.features
        self._loader: Loader | None = None
        self._direct_wait_s = 0.0
        self.waste = {"slots": 0.0, "entries": 0.0}
        self.host_s = {"sample": 0.0, "gather": 0.0, "transfer": 0.0}
        self.num_batches = 0
        if problem.side[0] == "host":
            self._loader = Loader(
                programs.sampler,
                batches,
                programs.buckets,
                prefetch=Prefetch(
                    sampling.prefetch_threads, sampling.prefetch_depth, int(sampling.prefetch_memory_gib * 2**30)
                ),
                gather=lambda blocks: (gather_features(self._features, blocks), padding_waste(blocks)),
                transfer=self._transfer,
                num_shards=fleet.size * self._parts,
                local_shards=range(self._parts * fleet.local_shards.start, self._parts * fleet.local_shards.stop),
            )

    @property
    def wait_s(self) -> float:
        return self._loader.wait_s if self._loader is not None else self._direct_wait_s

    def iterate(self, start: Cursor, stop: Cursor | None = None) -> Generator[Fed, None, None]:
        """Batches from `start` up to `stop`; closing the iterator ends its threads."""
        if self._loader is None:
            yield from self._seeds(start, stop)
            return
        batches = self._loader.iterate(start, stop)
        try:
            for batch in batches:
                features, waste = batch.inputs
                for kind, part in waste.items():
                    self.waste[kind] += part
                self.host_s["sample"] += batch.sample_s
                self.host_s["gather"] += batch.gather_s
                self.host_s["transfer"] += batch.transfer_s
                self.num_batches += 1
                share = Share(batch.blocks, features, None, None, self._no_votes)
                yield Fed(batch.cursor, batch.following, batch.bucket, share)
        finally:
            batches.close()  # type: ignore[attr-defined]

    def _transfer(self, prepared: tuple[SampledBlocks, Any]) -> tuple[SampledBlocks, Any]:
        blocks, (features, waste) = prepared
        if self._problem.compressed:
            blocks = with_edges(blocks)
        if self._parts > 1:
            blocks, features = jax.tree.map(
                lambda leaf: leaf.reshape(-1, self._parts, *leaf.shape[1:]), (blocks, features)
            )
        blocks, features = self._programs.fleet.shard((blocks, features))
        return blocks, (features, waste)

    def _seeds(self, start: Cursor, stop: Cursor | None) -> Iterator[Fed]:
        fleet, cursor, epoch, order = self._programs.fleet, start, -1, np.zeros(0, np.int64)
        while stop is None or cursor < stop:
            if epoch != cursor.epoch:
                epoch, order = cursor.epoch, self._batches.order(cursor.epoch)
            seeds = self._batches.batch(order, cursor.step).reshape(fleet.size, -1)
            draw = np.array([self._batches.seed, self._batches.global_step(cursor)], np.uint32)
            own = seeds[fleet.local_shards.start : fleet.local_shards.stop]
            seeds, draws = fleet.shard((own, np.tile(draw, (len(own), 1))))
            following = self._batches.following(cursor)
            self.num_batches += 1
            yield Fed(cursor, following, 0, Share(None, {}, seeds, draws, self._no_votes))
            cursor = following


def evaluation_batches(problem: MinibatchProblem, config: Config, split: str) -> EpochBatches | None:
    """The batches of a split in ascending order, or of a fixed random part of it; None for an empty split."""
    ids = problem.splits[split]
    if len(ids) == 0:
        return None
    seed = int(mix(np.array([config.run.seed ^ 0xE7A1], np.uint32))[0])  # draws unlike those of training
    most = config.sampling.evaluation_nodes
    if 0 < most < len(ids):
        shuffled = EpochBatches(ids, config.sampling.batch_size, seed)
        ids = np.sort(ids[shuffled.order(0)[:most]])
    return EpochBatches(ids, config.sampling.batch_size, seed, shuffle=False)
