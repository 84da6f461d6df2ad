"""The compiled programs of mini-batch training: one update, and the counts of one batch for evaluation.

Both are written for one device's share of a batch and mapped over the axis `data`. A share holds sampled blocks (from
the host) or seeds (sampled inside the program).
"""

import dataclasses
from collections.abc import Mapping
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
from jhgnn.nn.stage import stage
from jhgnn.sampling.device import sample_on_device
from jhgnn.sampling.plan import Capacities, SamplingPlan
from jhgnn.training import lazy_rows
from jhgnn.training.lazy_rows import TouchedRows, merge_devices, tables_of, take, with_tables
from jhgnn.training.objective import SplitCounts, count_batch, losses
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.parallel import AXIS
from jhgnn.training.state import Params, TrainState
from jhgnn.training.step import apply_model, dropout_seed

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
        inputs = self._inputs(resident, share)
        seeds = inputs.blocks.frontier(0, self.target)
        mask = seeds >= 0
        labels = resident.labels.at[jnp.maximum(seeds, 0)].get(mode="promise_in_bounds")
        tables = tables_of(state.params)
        ids = {name: inputs.blocks.nodes.get(name, jnp.zeros(0, jnp.int32)) for name in tables}

        def objective(params: Params) -> jax.Array:
            output = apply_model(self.structure, params, inputs, dropout_seed(state))
            with stage("LC", part="loss"):
                each = losses(output.logits, labels, self.config.training.label_smoothing)
                return jnp.where(mask, each, 0.0).sum()

        if self.config.training.remat == "full":
            objective = jax.checkpoint(objective)
        on_rows = with_tables(state.params, {name: take(table, ids[name]) for name, table in tables.items()})
        loss, gradients = jax.value_and_grad(objective)(on_rows)
        rows = {name: TouchedRows(ids[name], tables_of(gradients)[name]) for name in tables}
        with stage("SYNC"):
            # One vector, so that the devices meet once: gradients of all dense weights, the loss, counts and votes.
            local = (with_tables(gradients, {}), loss, mask.sum(dtype=jnp.float32))
            vector, unravel = ravel_pytree((*local, inputs.blocks.overflowed.astype(jnp.float32), share.votes))
            summed, loss, num_targets, overflows, votes = unravel(jax.lax.psum(vector, AXIS))
            if self.num_devices > 1 and rows:
                sizes = {name: table.shape[0] for name, table in tables.items()}
                rows = merge_devices(rows, sizes, AXIS, after=num_targets)
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
            updates, opt_rows = optimizer.update(gradients, before[1], before[0])
            after = (optax.apply_updates(before[0], updates), opt_rows)
            kept = jax.tree.map(lambda new, old: jnp.where(finite & ~overflowed, new, old), after, before)
            params = lazy_rows.scatter(state.params, kept[0], touched)
            opt_state = lazy_rows.scatter(state.opt_state, kept[1], touched)
        step = state.step + jnp.where(overflowed, 0, 1)
        report = BatchReport(loss, num_targets, finite, overflowed, norm, votes)
        return TrainState(step, state.seed, params, opt_state), report

    def evaluate(self, params: Params, resident: Resident, share: Share) -> BatchCounts:
        """Counts of the whole batch, without dropout."""
        inputs = self._inputs(resident, share)
        seeds = inputs.blocks.frontier(0, self.target)
        tables = tables_of(params)
        ids = {name: inputs.blocks.nodes.get(name, jnp.zeros(0, jnp.int32)) for name in tables}
        on_rows = with_tables(params, {name: take(table, ids[name]) for name, table in tables.items()})
        logits = apply_model(self.structure, on_rows, inputs).logits
        labels = resident.labels.at[jnp.maximum(seeds, 0)].get(mode="promise_in_bounds")
        counts = count_batch(logits, labels, seeds >= 0)
        # One vector here as well: over several processes, collectives of one program may meet in different orders.
        found = BatchCounts(counts, inputs.blocks.overflowed)
        vector, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), found))
        return unravel(jax.lax.psum(vector, AXIS))

    def _inputs(self, resident: Resident, share: Share) -> SampledInputs:
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
