"""`Sampled`, compiled: what runs batches, evaluates, and explains losses that are not finite."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.runtime.step_memory import give_back_unused
from jhgnn.sampling.epoch import Cursor
from jhgnn.stores.device import DeviceRows
from jhgnn.tasks.node_classification import added
from jhgnn.tasks.task import Scores
from jhgnn.training.diagnosis import HINT, explain_loss
from jhgnn.training.execution import Batch, Feed, Programs, as_host
from jhgnn.training.loaded_feed import LoadedFeed
from jhgnn.training.mesh import REPLICATED, local
from jhgnn.training.programs import Compiled
from jhgnn.training.sampled_feed import SampledFeed
from jhgnn.training.sampled_layout import Layout
from jhgnn.training.sampled_step import Shard
from jhgnn.training.state import Params, TrainState
from jhgnn.training.super_batches import SuperBatches
from jhgnn.training.update import UpdateReport

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled


class SampledPrograms(Programs):
    """`Sampled`, compiled: a program of each kind for each bucket of capacities."""

    execution: "Sampled"

    def __init__(self, execution: "Sampled", steps: Sequence[Compiled], evaluations: Sequence[Compiled]) -> None:
        super().__init__(execution, steps, evaluations)
        self.mesh = execution.mesh
        self.resident = self.mesh.place(execution.layout.resident, execution.resident_specs)
        self.evaluated = execution.evaluated
        self._evaluation_resident = self.resident
        if self.evaluated is not execution and evaluations:
            edges = self.evaluated.layout.resident.edges  # where programs sample, of some relations no other program's
            more = self.mesh.place(
                {name: edges[name] for name in edges.keys() - self.resident.edges.keys()}, REPLICATED
            )
            own = {name: more[name] if name in more else self.resident.edges[name] for name in edges}
            self._evaluation_resident = dataclasses.replace(self.resident, edges=own, kept={})
        self.overflows = 0
        self.super_batches = SuperBatches(execution, self.resident) if execution.sampling.reuse is not None else None

    def place(self, tree: Any) -> Any:
        parts, tree = self.execution.parts, self._restored(tree)
        if parts is None:
            return self.mesh.place(tree, REPLICATED)
        return self.mesh.place(parts.cut(tree), parts.specs(tree))

    def place_cut(self, tree: Any) -> Any:
        return super().place_cut(self._restored(tree))

    def _restored(self, tree: Any) -> Any:
        """A state without its rows of hot vertices, which are no argument of a step: they are kept here from now on."""
        if self.super_batches is None or not isinstance(tree, TrainState):
            return tree
        self.super_batches.restore(tree.hot)
        return tree._replace(hot=())

    def initial_state(self, seed: int) -> TrainState:
        parts, execution = self.execution.parts, self.execution
        if parts is None:
            return super().initial_state(seed)
        return self.mesh.take_over(parts.initial(execution.traced_state, seed), execution.state_specs)

    def whole(self, tree: Any) -> Any:
        parts = self.execution.parts
        found = super().whole(tree) if parts is None else parts.whole(tree)
        return self.to_save(found) if isinstance(tree, TrainState) else found

    def to_save(self, state: TrainState) -> TrainState:
        return state if self.super_batches is None else state._replace(hot=self.super_batches.saved)

    def shown(self, params: Params) -> Params:
        return params if self.execution.parts is None else self.whole(params)

    def feed(self, seed: int) -> "SampledFeed":
        batches = self.execution.batches(seed)
        if self.super_batches is not None:
            self.super_batches.begin(batches)
        return SampledFeed(self.execution.source, batches)

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, UpdateReport]:
        """A batch that overflows on a device leaves the state alone and runs again in a bigger bucket."""
        shard, votes = batch.arguments
        resident = self.resident
        if self.super_batches is not None:
            resident = self.resident = dataclasses.replace(resident, kept=self.super_batches.kept(state, batch))
        for number in self._variants(self.execution.layout, batch):
            state, report = self.steps[number](state, resident, shard, votes)
            if not self._may_overflow(shard) or not bool(local(report.overflowed)):
                self.overflows += int(number > 0)
                return state, report
        raise RuntimeError("a batch overflowed the bucket that holds any batch")

    def _variants(self, layout: Layout, batch: Batch) -> Iterator[int]:
        """Programs for a batch, one after the other until one holds it: blocks that the host sampled fit one bucket."""
        shard, _ = batch.arguments
        for number in range(layout.first(batch.bucket), len(layout.variants)):
            if shard.blocks is None or layout.bucket(number) == batch.bucket:
                yield number

    def _may_overflow(self, shard: Shard) -> bool:
        return shard.blocks is None or self.execution.parts is not None

    def evaluate(self, params: Params, splits: Sequence[str], seed: int) -> Scores:
        """See `Programs`: over sampled neighbours, or over all of them, as `sampling.evaluation` says."""
        execution = self.execution
        give_back_unused()  # the step's memory has other sizes than the evaluation needs
        batches = {
            split: execution.evaluation_batches(split, seed) for split in splits if split in execution.task.splits
        }
        if execution.layerwise:
            own = self.whole(params)
            ids = {split: each.seeds for split, each in batches.items() if each is not None}
            return (
                execution.task.scores_of_rows(execution.structure, own, execution.rows(own, seed), ids) if ids else {}
            )
        found: Scores = {}
        for split, each in batches.items():
            if each is None:
                continue
            total: list[np.ndarray] | None = None
            for batch in SampledFeed(self.evaluated.source, each).iterate(Cursor(), Cursor(1)):
                total = added(total, as_host(self._count(params, batch)))
            found[split] = execution.task.mean_scores(total, len(each.seeds))
        return found

    def _count(self, params: Params, batch: Batch) -> Any:
        shard, _ = batch.arguments
        for number in self._variants(self.evaluated.layout, batch):
            counts, overflowed = self.evaluations[number](params, self._evaluation_resident, shard)
            if not self._may_overflow(shard) or not int(local(overflowed)):
                return counts
        raise RuntimeError("a batch overflowed the bucket that holds any batch")

    def inference_arguments(self, params: Params, batch: Batch) -> tuple[Any, ...]:
        return params, self.resident, batch.arguments[0]

    def explain(self, state: TrainState, batch: Batch, where: str) -> str:
        """See `Programs`: this process's shares are run one by one, without what devices exchange within a layer."""
        if self.super_batches is not None and (late := self.super_batches.too_old(state, batch.arguments[0])):
            return f"{where}; {late}"
        if self.execution.parts is not None:  # a share alone has not the rows of other devices
            return f"{where}; {HINT}"
        if jax.process_count() > 1:  # the other processes are leaving, and what they hold is theirs
            return f"{where}; {HINT}"
        return self.explain_shares(state, batch, where)

    def explain_shares(self, state: TrainState, batch: Batch, where: str) -> str:
        """The same of shares that read whole tables."""
        execution, (shard, _) = self.execution, batch.arguments
        state, resident = as_host((state, self.resident))
        program = execution.update_program(batch.bucket, num_devices=1)
        reader, tables = program.reader, DeviceRows(tables_of(state.params))

        def objective_of(part: Shard) -> Any:
            def objective(params: Params) -> jax.Array:
                inputs = reader.inputs(resident, part)
                ids = reader.touched(params, inputs)
                rows = {name: DeviceRows(tables_of(params)).gather(name, ids[name]) for name in tables.node_types}
                return program.loss(with_tables(params, rows), state, inputs, resident, part).loss

            return objective

        losses = ((objective_of(part), state.params) for part in self._parts(reader, shard))
        suspects = {"params": state.params, "features": as_host(dict(shard.features))}
        return explain_loss(losses, suspects, where)

    def _parts(self, reader: Any, shard: Shard) -> Iterator[Shard]:
        """The shares of this process's devices, one by one, or their micro-batches."""
        for number in range(len(jax.tree.leaves(shard)[0].addressable_shards)):
            own = jax.tree.map(lambda leaf, number=number: leaf.addressable_data(number)[0], shard)
            count = self.execution.shares.num_parts
            if count == 1:
                yield own
                continue
            parts, batch_of = reader.parts(own, count)
            for index in range(count):
                yield batch_of(jax.tree.map(lambda leaf, index=index: leaf[index], parts))

    def figures(self, feed: Feed, train_s: float) -> dict[str, Any]:
        assert isinstance(feed, LoadedFeed)
        sampling = self.execution.sampling
        num_batches, on_host = max(1, feed.num_batches), sampling.side[0] == "host"
        return {
            "batch_size": self.execution.config.sampling.batch_size,
            "sampling_side": sampling.side[0],
            "sampling_side_reason": sampling.side[1],
            "features_on_device": sampling.features_on_device[0],
            "sampling_wait_share": feed.wait_s / train_s if train_s > 0 else 0.0,
            # Of the loader's threads, beside training; handing over includes compressing tables for the CPU's kernels.
            **{f"{what}_ms": feed.host_s[what] / num_batches * 1e3 if on_host else None for what in feed.host_s},
            # Unknown where the device samples: its blocks never leave it.
            "padding_waste_slots": feed.waste["slots"] / num_batches if on_host else None,
            "padding_waste_entries": feed.waste["entries"] / num_batches if on_host else None,
            "overflows": self.overflows,
            "devices": self.mesh.size,
            "processes": jax.process_count(),
            **({} if self.super_batches is None else self.super_batches.figures()),
        }
