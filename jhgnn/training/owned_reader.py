"""Reads sampled blocks whose learnable rows live on one device each, and whose features are as elsewhere."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp

from jhgnn.nn.embeddings import tables_of
from jhgnn.nn.inputs import SampledInputs
from jhgnn.nn.stage import stage
from jhgnn.sampling.plan import Capacities
from jhgnn.stores.exchange import Pairwise
from jhgnn.stores.sharded import Route, ShardedRows
from jhgnn.tasks.task import Task
from jhgnn.training.joined_tables import JOINED, join, split
from jhgnn.training.micro_batches import Touched
from jhgnn.training.sampled_choices import Sampling
from jhgnn.training.sampled_step import Resident, SampledReader, Shard
from jhgnn.training.state import Params
from jhgnn.training.update import Read


@dataclasses.dataclass(frozen=True, eq=False)
class OwnedRows:
    """How one program reads the rows of `JoinedTables` and gives back their gradients.

    Attributes:
        starts: the number of the first node of each type, see `JoinedTables`.
        exchange: of rows that one device may ask another one for.
    """

    starts: Mapping[str, int]
    exchange: Pairwise

    def numbers(self, ids: Mapping[str, jax.Array]) -> jax.Array:
        """Numbers of nodes, int32 `[n]`, from their ids of some types, one type after the other; -1 for -1."""
        return join({name: jnp.where(own >= 0, own + self.starts[name], -1) for name, own in ids.items()})

    def fetch(
        self, params: Params, resident: Resident, numbers: jax.Array
    ) -> tuple[jax.Array, Mapping[str, Route], jax.Array]:
        """The rows of nodes, `[n, width]`, of anything where there is none; their routes, and whether they did not fit.

        All devices of the mesh call it with as many numbers.
        """
        with stage("LOAD"):
            fetched = self._store(params, resident).fetch({JOINED: numbers})
        return fetched.rows[JOINED], fetched.routes, fetched.overflowed

    def give_back(
        self, params: Params, resident: Resident, routes: Mapping[str, Route], gradients: jax.Array
    ) -> Touched:
        """The gradients of fetched rows, `[n, width]`, summed by the devices that own the rows."""
        with stage("SYNC"):
            return self._store(params, resident).give_back(routes, {JOINED: gradients})

    def _store(self, params: Params, resident: Resident) -> ShardedRows:
        return ShardedRows(tables_of(params), resident.homes, self.exchange)


class OwnedReader(SampledReader):
    """See the module.

    Attributes:
        rows: how learnable ones are read.
    """

    cut: ClassVar[bool] = True

    def __init__(self, task: Task, sampling: Sampling, capacities: Capacities, rows: OwnedRows) -> None:
        super().__init__(task, sampling, capacities)
        self.rows = rows

    def read(self, params: Params, resident: Resident, batch: Shard) -> Read:
        inputs = self.inputs(resident, batch)
        met = {name: name in inputs.blocks.nodes for name in self.rows.starts}
        ids = {name: inputs.ids(name) if met[name] else jnp.zeros(0, jnp.int32) for name in met}
        rows, routes, overflowed = self.rows.fetch(params, resident, self.rows.numbers(ids))
        blocks = dataclasses.replace(inputs.blocks, overflowed=inputs.blocks.overflowed | overflowed)
        read: SampledInputs = dataclasses.replace(inputs, blocks=blocks)
        return Read(read, ids, split(rows, {name: len(own) for name, own in ids.items()}), routes)

    def give_back(self, params: Params, resident: Resident, read: Read, gradients: Mapping[str, jax.Array]) -> Touched:
        in_order = {name: gradients[name] for name in read.ids}
        return self.rows.give_back(params, resident, read.routes, join(in_order))
