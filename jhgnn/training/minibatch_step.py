"""The compiled programs of mini-batch training: one update, and the counts of one batch for evaluation.

Both are written for one device's share of a batch and mapped over the axis `data`. A share holds sampled blocks (from
the host) or seeds (sampled inside the program).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree

from jhgnn.config import Config
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.graph.semantic_graph import Csr
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.models.inputs import SampledInputs
from jhgnn.nn.recompute import recomputing, without_gradient
from jhgnn.nn.stage import stage
from jhgnn.sampling.device import sample_on_device
from jhgnn.sampling.plan import Capacities, SamplingPlan
from jhgnn.training import lazy_rows
from jhgnn.training.lazy_rows import TouchedRows, merge_devices, tables_of, take, with_tables
from jhgnn.training.micro_batches import LocalSums, Rows, common_means, cut, sums_of_parts, sums_with_common_means
from jhgnn.training.objective import SplitCounts, count_batch, losses
from jhgnn.training.optimizer import apply_gradients, make_optimizer
from jhgnn.training.parallel import AXIS
from jhgnn.training.state import Params, TrainState
from jhgnn.training.step import dropout_seed

Array = Any  # jax.Array, or np.ndarray and shapes before they are on devices
FeatureTable = Array | SparseRows


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Resident:
    """What stays on every device: labels, and features and edges where they are gathered and sampled there."""

    labels: Array
    features: Mapping[str, FeatureTable]
    edges: Mapping[str, Csr]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Share:
    """One device's share of a batch: blocks with the features gathered for them, or seeds to sample from.

    Attributes:
        blocks: from the host sampler, or None.
        features: rows of the input frontier that the host gathered.
        seeds: int32 `[share]`, or None where there are blocks.
        draw: uint32 `[2]`, seed and step that the device sampler hashes, or None.
        votes: float32 `[2]`, whether this process wants to save and to stop after the batch.
    """

    blocks: SampledBlocks | None
    features: Mapping[str, FeatureTable]
    seeds: Array | None
    draw: Array | None
    votes: Array


class BatchReport(NamedTuple):
    """What an update tells the host, over the whole batch: the mean loss before it, and whether it took place.

    It does not where the loss or a gradient is not finite, nor where a device's sample overflowed its capacities: then
    the state is as it was, and the batch is to be run again with larger ones.
    """

    loss: jax.Array
    num_targets: jax.Array
    finite: jax.Array
    overflowed: jax.Array
    gradient_norm: jax.Array
    votes: jax.Array  # float32 [2]: devices whose processes want to save and to stop; the same on all of them


class BatchCounts(NamedTuple):
    """Counts of a whole batch, its loss a sum."""

    counts: SplitCounts
    overflowed: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class BatchProgram:
    """The static side of both programs, for one bucket of capacities."""

    structure: nnx.GraphDef
    config: Config
    plan: SamplingPlan
    capacities: Capacities
    target: str
    num_devices: int
    steps_per_epoch: int

    def update(self, state: TrainState, resident: Resident, share: Share) -> tuple[TrainState, BatchReport]:
        """One update on the whole batch: sums over all devices, divided by the number of its targets."""
        sizes = {name: table.shape[0] for name, table in tables_of(state.params).items()}
        own, rows = self._sums(state, resident, share)
        with stage("SYNC"):
            # One vector, so that the devices meet once: gradients of all dense weights, the loss, counts and votes.
            vector, unravel = ravel_pytree((own, share.votes))
            (summed, loss, num_targets, overflows), votes = unravel(jax.lax.psum(vector, AXIS))
            if self.num_devices > 1 and rows:
                rows = merge_devices(rows, sizes, AXIS, after=num_targets)
            elif self.config.training.micro_batches > 1:
                rows = {name: lazy_rows.sum_repeated(part, sizes[name]) for name, part in rows.items()}
        with stage("PU"):
            scale = 1.0 / jnp.maximum(num_targets, 1.0)
            gradients = with_tables(summed, {name: own.gradients for name, own in rows.items()})
            gradients = jax.tree.map(lambda gradient: gradient * scale, gradients)
            touched = {name: own.ids for name, own in rows.items()}
            before = (lazy_rows.gather(state.params, touched), lazy_rows.gather(state.opt_state, touched))
            norm = optax.tree.norm(gradients)
            loss, overflowed = loss * scale, overflows > 0
            finite = jnp.isfinite(loss) & jnp.isfinite(norm)
            optimizer = make_optimizer(self.config.training, self.steps_per_epoch)
            valid = finite & ~overflowed
            params_rows, opt_rows = apply_gradients(optimizer, gradients, before[1], before[0], valid)
            params = lazy_rows.scatter(state.params, params_rows, touched)
            opt_state = lazy_rows.scatter(state.opt_state, opt_rows, touched)
        step = state.step + jnp.where(overflowed, 0, 1)
        report = BatchReport(loss, num_targets, finite, overflowed, norm, votes)
        return TrainState(step, state.seed, params, opt_state), report

    def _sums(self, state: TrainState, resident: Resident, share: Share) -> tuple[LocalSums, Rows]:
        """Of this device's share: at once, or one part after the other."""
        if self.config.training.micro_batches == 1:
            return self.part_sums(state, resident, share)
        if self.config.model.name == "han":
            return sums_with_common_means(self, state, resident, share)
        return sums_of_parts(self, state, resident, share)

    def part_sums(self, state: TrainState, resident: Resident, share: Share) -> tuple[LocalSums, Rows]:
        """Of a share, or of a part of it that has no axis over parts any more."""
        inputs = self.inputs(resident, share)
        ids = self.touched(state.params, inputs)
        on_rows = with_tables(state.params, self._rows_read(state.params, inputs))
        (loss, num_targets), gradients = jax.value_and_grad(self.loss, has_aux=True)(on_rows, state, resident, inputs)
        rows = {name: TouchedRows(ids[name], gradient) for name, gradient in tables_of(gradients).items()}
        overflows = inputs.blocks.overflowed.astype(jnp.float32)
        return LocalSums(with_tables(gradients, {}), loss, num_targets, overflows), rows

    def loss(
        self,
        on_rows: Params,
        state: TrainState,
        resident: Resident,
        inputs: SampledInputs,
        means: Sequence[jax.Array] = (),
    ) -> tuple[jax.Array, jax.Array]:
        """Sum of the targets' losses, and their number, float32; `means` as HAN takes them."""
        seeds = inputs.blocks.frontier(0, self.target)
        mask = seeds >= 0
        labels = resident.labels.at[jnp.maximum(seeds, 0)].get(mode="promise_in_bounds")
        logits = self._logits(on_rows, inputs, dropout_seed(state), means)
        with stage("LC", part="loss"):
            each = losses(logits, labels, self.config.training.label_smoothing)
            return jnp.where(mask, each, 0.0).sum(), mask.sum(dtype=jnp.float32)

    def touched(self, params: Params, inputs: SampledInputs) -> dict[str, jax.Array]:
        """Ids of the vertices whose rows of each embedding table a batch reads, -1 for padding."""
        return {name: inputs.blocks.nodes.get(name, jnp.zeros(0, jnp.int32)) for name in tables_of(params)}

    def evaluate(self, params: Params, resident: Resident, share: Share) -> BatchCounts:
        """Counts of the whole batch, without dropout."""
        if self.config.training.micro_batches == 1:
            found = self._counts(params, resident, share)
        else:
            found = self._counts_of_parts(params, resident, share)
        # One vector here as well: over several processes, collectives of one program may meet in different orders.
        vector, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), found))
        return unravel(jax.lax.psum(vector, AXIS))

    def _counts_of_parts(self, params: Params, resident: Resident, share: Share) -> BatchCounts:
        parts, share_of = cut(share, self.config.training.micro_batches)
        means: Sequence[jax.Array] = ()
        if self.config.model.name == "han":
            rows = jax.lax.map(lambda part: self._rows_read(params, self.inputs(resident, share_of(part))), parts)
            means = common_means(self, with_tables(params, {}), rows, None, resident, share)
        every = jax.lax.map(lambda part: self._counts(params, resident, share_of(part), means), parts)
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32).sum(axis=0), every)

    def _rows_read(self, params: Params, inputs: SampledInputs) -> dict[str, jax.Array]:
        ids = self.touched(params, inputs)
        return {name: take(table, ids[name]) for name, table in tables_of(params).items()}

    def _counts(self, params: Params, resident: Resident, share: Share, means: Sequence[jax.Array] = ()) -> BatchCounts:
        inputs = self.inputs(resident, share)
        seeds = inputs.blocks.frontier(0, self.target)
        logits = self._logits(with_tables(params, self._rows_read(params, inputs)), inputs, None, means)
        labels = resident.labels.at[jnp.maximum(seeds, 0)].get(mode="promise_in_bounds")
        return BatchCounts(count_batch(logits, labels, seeds >= 0), inputs.blocks.overflowed)

    def _logits(
        self, on_rows: Params, inputs: SampledInputs, step_seed: jax.Array | None, means: Sequence[jax.Array]
    ) -> jax.Array:
        remat = self.config.training.remat
        with recomputing(without_gradient(remat) if step_seed is None else remat):
            model: Any = nnx.merge(self.structure, on_rows)
            return model(inputs, step_seed, *([means] if means else [])).logits

    def inputs(self, resident: Resident, share: Share) -> SampledInputs:
        """What the model reads: sampled here where the share holds seeds, features gathered where they stay here."""
        blocks = share.blocks
        if blocks is None:
            assert share.seeds is not None
            assert share.draw is not None
            with stage("SAMPLE"):
                seeds = {self.target: share.seeds}
                seed, step = share.draw[0], share.draw[1]
                blocks = sample_on_device(self.plan, self.capacities, resident.edges, seeds, seed, step)
        features: dict[str, Any] = dict(share.features)
        with stage("LOAD"):
            for name, table in resident.features.items():
                if name in blocks.nodes:
                    ids = blocks.nodes[name]
                    features[name] = jax.tree.map(lambda array, ids=ids: take(array, ids), table)
        endpoints = tuple((draw.name, draw.source, draw.target) for draw in self.plan.draws)
        return SampledInputs(features, blocks, endpoints, AXIS)
