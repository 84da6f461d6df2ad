"""The update: gradients of a batch's loss, and one step of the optimizer.

It is written for one device's share of a batch: losses and gradients are sums, which are added up over the devices and
then divided by the number of examples of the whole batch. It knows neither task nor model nor way of batching: a
`Reader` says what the model reads of a batch, the whole graph or sampled blocks.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree

from jhgnn.config import TrainingConfig
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import ModelInputs, SampledInputs
from jhgnn.nn.recompute import recomputing
from jhgnn.nn.reduction import Partial, Reduce, alone
from jhgnn.nn.stage import stage
from jhgnn.ops.table_rows import read_rows
from jhgnn.stores.device import DeviceTables, without_tables
from jhgnn.stores.touched import TouchedRows, merge_devices, sum_repeated
from jhgnn.tasks.task import Sum, Task
from jhgnn.training.mesh import DATA
from jhgnn.training.micro_batches import (
    CommonFusion,
    PartSums,
    Touched,
    sums_of_parts,
    sums_with_common_fusion,
)
from jhgnn.training.optimizer import apply_joined, clipped, joined_leaves, make_optimizer
from jhgnn.training.ring import sums_of_ring
from jhgnn.training.state import Params, TrainState, dropout_seed


class UpdateReport(NamedTuple):
    """What an update tells the host, over the whole batch: the mean loss before it, and whether it took place.

    Where the loss or a gradient is not finite, the state is as it was. So it is where a device's sample overflowed its
    capacities; the batch is then to be run again by a larger program.
    """

    loss: jax.Array
    num_examples: jax.Array
    finite: jax.Array
    overflowed: jax.Array
    gradient_norm: jax.Array
    votes: jax.Array  # float32 [2]: devices whose processes want to save and to stop; the same on all of them


class Read(NamedTuple):
    """What a share reads: the model's inputs, ids of the rows of each embedding table, and those rows; see `Reader`."""

    inputs: ModelInputs
    ids: dict[str, jax.Array]
    rows: dict[str, jax.Array]
    routes: Any = None  # by node type, where other devices keep rows: which were fetched, and which others fetched here


class Reader(Protocol):
    """What the model and the task read of a batch.

    `resident` is what stays on the device, with `Task.resident` as its attribute `task`; `batch` is what comes.

    Attributes:
        cut: whether each device keeps a part of the rows, and updates those alone.
    """

    cut: ClassVar[bool]

    def inputs(self, resident: Any, batch: Any) -> ModelInputs:
        """What the model reads."""
        ...

    def touched(self, params: Params, inputs: ModelInputs) -> dict[str, jax.Array]:
        """Ids of the rows that the inputs read of each embedding table, -1 for padding; empty for whole tables."""
        ...

    def read(self, params: Params, resident: Any, batch: Any) -> Read:
        """Inputs and rows of embedding tables at once, for programs that share a batch."""
        ...

    def give_back(self, params: Params, resident: Any, read: Read, gradients: Mapping[str, jax.Array]) -> Touched:
        """The gradients of the rows read, by the tables' rows on whoever updates them."""
        ...

    def pick(self, rows: Mapping[str, jax.Array], inputs: ModelInputs, task: Task, *about: Any) -> list[jax.Array]:
        """The rows that each of the task's requests asks for; `about` are the arguments of `Task.requests`."""
        ...

    def overflowed(self, inputs: ModelInputs) -> jax.Array:
        """Whether a sample did not fit, so that the inputs are invalid; bool scalar."""
        ...

    def examples(self, batch: Any) -> jax.Array:
        """The batch's examples, int32 `[n]`, -1 for none."""
        ...

    def parts(self, batch: Any, count: int) -> tuple[Any, Any]:
        """Cuts a batch into equal parts.

        Returns:
            what differs between the parts, with an axis over them in front, and a function from one part to a batch.
        """
        ...


class FullBatchReader:
    """What readers of full batches have in common: a batch is its examples, int32 `[n]`, -1 for none."""

    def give_back(self, params: Params, resident: Any, read: Read, gradients: Mapping[str, jax.Array]) -> Touched:
        """Those of the rows read; where rows are cut, other devices have sent back theirs already."""
        return touched_rows(read, gradients)

    def overflowed(self, inputs: ModelInputs) -> jax.Array:
        return jnp.zeros((), bool)

    def examples(self, batch: jax.Array) -> jax.Array:
        return batch

    def parts(self, batch: jax.Array, count: int) -> tuple[Any, Any]:
        raise NotImplementedError("a full batch is not cut")


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateProgram:
    """The static side of an update.

    Attributes:
        structure: the model with its head, without parameters.
        task, reader: what is learnt, and how it is read.
        training: the recipe's section.
        steps_per_epoch: for the optimizer's schedule.
        common_layers: layers whose fusion runs over all targets of a batch at once (HAN's); 0 where there are none.
        num_devices: devices that share a batch over the mapped axis `data`; 0 where the program is not mapped.
        count: examples of every batch, where no batch has padding; else None.
        ring: a share comes in parts, over which models move from device to device.
        axes: of the mesh, over which gradients are summed.
        table_rows: implementation that reads and writes the rows of embedding tables.
        repeats: whether a batch may read a row of a table at several places, whatever the task.
    """

    structure: nnx.GraphDef
    task: Task
    reader: Reader
    training: TrainingConfig
    steps_per_epoch: int
    common_layers: int = 0
    num_devices: int = 0
    count: int | None = None
    ring: bool = False
    axes: str | tuple[str, ...] = DATA
    table_rows: str = "xla"
    repeats: bool = False

    def __call__(self, state: TrainState, resident: Any, batch: Any, votes: Any) -> tuple[TrainState, UpdateReport]:
        """One update; mapped over devices, each with its share of the batch, all of them make the same state."""
        if not self.num_devices:
            return self._alone(state, resident, batch, votes)
        sizes = {name: table.shape[0] for name, table in tables_of(state.params).items()}
        sums, rows = self._sums(state, resident, batch)
        with stage("SYNC"):
            # One vector, so that the devices meet once: gradients of all dense weights, the loss, counts and votes; of
            # tables that are cut the squares, so that all devices know the norm. It waits for those gradients.
            squares = [jnp.vdot(each.gradients, each.gradients) for each in rows.values()] if self.reader.cut else []
            vector, unravel = ravel_pytree((sums, votes, squares))
            (summed, loss, count, overflows), votes, squares = unravel(jax.lax.psum(vector, self.axes))
            if not self.reader.cut:  # else their owners have summed them
                rows = self._merged(rows, sizes, after=count)
        with stage("PU"):
            scale = 1.0 / jnp.maximum(count, 1.0).astype(loss.dtype)
            gradients = with_tables(summed, {name: each.gradients for name, each in rows.items()})
            gradients = jax.tree.map(lambda gradient: gradient * scale, gradients)
            norm = optax.tree.norm(with_tables(gradients, {}) if self.reader.cut else gradients)
            if squares:
                norm = jnp.sqrt(norm**2 + scale**2 * sum(squares))
            loss, overflowed = loss * scale, overflows > 0
            finite = jnp.isfinite(loss) & jnp.isfinite(norm)
            optimizer, valid = make_optimizer(self.training, self.steps_per_epoch), finite & ~overflowed
            gradients = clipped(gradients, norm, self.training.gradient_clip)
            tables = DeviceTables.of(state.params, state.opt_state, optimizer, valid, self.table_rows)
            dense, of_rows = with_tables(gradients, {}), tables_of(gradients)
            own = with_tables(state.params, {})
            leaves = joined_leaves(self.training, own)
            params, opt_state = apply_joined(
                optimizer, leaves, leaves.join(dense), without_tables(state.opt_state), own, valid
            )
            for name, each in rows.items():
                tables = tables.apply(name, each.ids, of_rows[name])
            params, opt_state = tables.into(params, opt_state)
        step = state.step + jnp.where(overflowed, 0, 1)
        report = UpdateReport(loss, count, finite, overflowed, norm, votes)
        return TrainState(step, state.seed, params, opt_state), report

    def _merged(self, rows: Touched, sizes: Mapping[str, int], after: jax.Array) -> Touched:
        """The touched rows of tables of these sizes, each once, with the gradients of all devices and parts summed."""
        if self.num_devices > 1 and rows:
            return merge_devices(rows, sizes, self.axes, after=after)
        if self.training.micro_batches > 1 or self.task.repeats or self.repeats:
            return {name: sum_repeated(part, sizes[name]) for name, part in rows.items()}
        return rows

    def _alone(self, state: TrainState, resident: Any, batch: Any, votes: Any) -> tuple[TrainState, UpdateReport]:
        """On one device that holds whole tables: the mean is taken before the gradient."""
        gradient = jax.value_and_grad(self.mean_loss, has_aux=True)
        (loss, count), gradients = gradient(state.params, state, resident, batch)
        with stage("PU"):
            leaves = joined_leaves(self.training, state.params)
            gradients = leaves.join(gradients)
            norm = optax.tree.norm(gradients)
            finite = jnp.isfinite(loss) & jnp.isfinite(norm)
            optimizer = make_optimizer(self.training, self.steps_per_epoch)
            gradients = clipped(gradients, norm, self.training.gradient_clip)
            params, opt_state = apply_joined(optimizer, leaves, gradients, state.opt_state, state.params, finite)
        report = UpdateReport(loss, jnp.asarray(count, jnp.float32), finite, jnp.zeros((), bool), norm, votes)
        return TrainState(state.step + 1, state.seed, params, opt_state), report

    def mean_loss(
        self, params: Params, state: TrainState, resident: Any, batch: Any
    ) -> tuple[jax.Array, jax.Array | float]:
        """The mean loss of a batch on one device that holds whole tables, and how many of its examples count.

        Args:
            params: what the loss depends on; the parameters in `state` are not read.
        """
        total = self.loss(params, state, self.reader.inputs(resident, batch), resident, batch)
        count = jnp.maximum(total.num_examples, 1.0) if self.count is None else float(self.count)
        return total.loss / count, count

    def inference(self, params: Params, resident: Any, batch: Any) -> jax.Array:
        """The summed loss of a batch without dropout and without a gradient, on all devices; for the profiler."""
        read = self.reader.read(params, resident, batch)
        zero = jnp.zeros((), jnp.uint32)
        state = TrainState(zero, zero, params, ())
        on_rows = with_tables(params, read.rows)
        total = self.loss(on_rows, state, read.inputs, resident, batch, over_devices, dropout=False)
        return jax.lax.psum(total.loss, DATA)

    def loss(
        self,
        on_rows: Params,
        state: TrainState,
        inputs: ModelInputs,
        resident: Any,
        batch: Any,
        reduce: Reduce = alone,
        *,
        dropout: bool = True,
    ) -> Sum:
        """The summed loss of a share of a batch, or of a part of one, and how many of its examples count.

        Args:
            on_rows: parameters that hold, in the place of each embedding table, the rows of it that the inputs touch.
            state: seed and step of the draws; its parameters are not read.
            inputs: as the reader makes them of `batch`.
            reduce: adds up what layers sum over targets or relations.
            dropout: whether anything drops.
        """
        inputs = _at_step(inputs, state)
        with recomputing(self.training.remat):
            model: Any = nnx.merge(self.structure, on_rows)
            rows = self.task.represent(
                model, inputs, model.encode(inputs, dropout_seed(state) if dropout else None, reduce)
            )
            about = (resident.task, self.reader.examples(batch), state.seed, state.step.astype(jnp.uint32))
            with stage("LC", part="classifier"):
                picked = self.reader.pick(rows, inputs, self.task, *about)
            return self.task.loss(model, picked, *about)

    def _sums(self, state: TrainState, resident: Any, batch: Any) -> tuple[PartSums, Touched]:
        """The sums of this device's share, computed at once, or one part after the other."""
        if self.ring:
            return self._ring_sums(state, resident, batch)
        if self.training.micro_batches == 1:
            return self.part_sums(state, resident, batch)
        parts, batch_of = self.reader.parts(batch, self.training.micro_batches)
        if not self.common_layers:
            return sums_of_parts(lambda part: self.part_sums(state, resident, batch_of(part)), parts)
        calls = self.common_fusion(state, resident, batch_of)
        return sums_with_common_fusion(calls, state.params, tables_of(state.params), parts)

    def _ring_sums(self, state: TrainState, resident: Any, batch: Any) -> tuple[PartSums, Touched]:
        """Of this device's parts, by models that move from device to device."""
        read, parts, read_of = self.reader.gathered(state.params, resident, batch)  # type: ignore[attr-defined]

        def loss(
            dense: Params, rows: Mapping[str, jax.Array], part: Any
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            inputs, tables, own = read_of(rows, part)
            total = self.loss(with_tables(dense, tables), state, inputs, resident, own)
            count = jnp.asarray(total.num_examples, jnp.float32)
            return total.loss, (count, self.reader.overflowed(inputs).astype(jnp.float32))

        sums, of_rows = sums_of_ring(loss, state.params, read.rows, parts, DATA, self.num_devices)
        return sums, self.reader.give_back(state.params, resident, read, of_rows)

    def common_fusion(self, state: TrainState, resident: Any, batch_of: Any) -> CommonFusion:
        """What micro-batches call to fuse over the targets of all parts; `batch_of` makes a batch of one part."""
        seed = dropout_seed(state)

        def touched(part: Any) -> dict[str, jax.Array]:
            return self.reader.touched(state.params, self.reader.inputs(resident, batch_of(part)))

        def partial_sums(dense: Params, rows: Mapping[str, jax.Array], part: Any, known: Sequence[Any]) -> Partial:
            inputs = _at_step(self.reader.inputs(resident, batch_of(part)), state)
            with recomputing(self.training.remat):
                model: Any = nnx.merge(self.structure, with_tables(dense, rows))
                return model.partial_sums(inputs, seed, known)

        def loss(
            dense: Params, rows: Mapping[str, jax.Array], part: Any, reduce: Reduce
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            own = batch_of(part)
            inputs = self.reader.inputs(resident, own)
            total = self.loss(with_tables(dense, rows), state, inputs, resident, own, reduce)
            return total.loss, jnp.asarray(total.num_examples), self.reader.overflowed(inputs).astype(jnp.float32)

        return CommonFusion(self.common_layers, touched, partial_sums, loss, over_devices)

    def part_sums(self, state: TrainState, resident: Any, batch: Any) -> tuple[PartSums, Touched]:
        """The sums of a share, or of a part whose fusion needs no other part."""
        read = self.reader.read(state.params, resident, batch)

        def objective(dense: Params, rows: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array | float]:
            return self.loss(with_tables(dense, rows), state, read.inputs, resident, batch, over_devices)

        gradient = jax.value_and_grad(objective, argnums=(0, 1), has_aux=True)
        (loss, count), (dense, of_rows) = gradient(with_tables(state.params, {}), read.rows)
        touched = self.reader.give_back(state.params, resident, read, of_rows)
        overflows = self.reader.overflowed(read.inputs).astype(jnp.float32)
        return PartSums(with_tables(dense, {}), loss, jnp.asarray(count, jnp.float32), overflows), touched


def _at_step(inputs: ModelInputs, state: TrainState) -> ModelInputs:
    """Inputs that know the updates done, by which they check the age of rows that they reuse, where they do."""
    if isinstance(inputs, SampledInputs) and inputs.kept:
        return dataclasses.replace(inputs, step=state.step)
    return inputs


def read_from_tables(reader: Reader, params: Params, resident: Any, batch: Any, table_rows: str = "xla") -> Read:
    """What is read where every device holds whole tables, by an implementation of `table_rows`."""
    inputs = reader.inputs(resident, batch)
    ids, tables = reader.touched(params, inputs), tables_of(params)
    return Read(
        inputs, ids, {name: read_rows(table, ids[name], implementation=table_rows) for name, table in tables.items()}
    )


def touched_rows(read: Read, gradients: Mapping[str, jax.Array]) -> Touched:
    """The gradients of rows read, by their rows in whole tables."""
    return {name: TouchedRows(read.ids[name], gradients[name]) for name in read.rows}


def over_devices(partial: Partial) -> Any:
    """The reduction over the devices of `data`, each of which holds all relations and its share of the targets."""
    if partial.over == "relations":
        return partial.values
    vector, unravel = ravel_pytree(partial.values)
    return unravel(jax.lax.psum(vector, DATA))
