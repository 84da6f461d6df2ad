"""Rows that the helper of super-batches reads of stores that are cut over the devices, fetched a super-batch at a time.

Where rows are cut, no host has those of learnable tables, nor, where each process reads its own part, those of
features. Which of them a super-batch's helper will read follows from its samples. So before the first step of a
super-batch, the devices send each other the rows that the helpers of the next one will read, of the weights as they
are, and each process keeps its own on the host. Rows come in calls of a fixed size, one or several: in each of them a
device asks every device for equally many rows at most, so that there are never too many to ask for.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.distributed.part_rows import PartRows
from jhgnn.errors import InputError
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.nn.embeddings import tables_of
from jhgnn.runtime.memory_limit import default_memory_limit_bytes, readable_bytes
from jhgnn.sampling.native import gather_rows
from jhgnn.stores.exchange import AllToAll
from jhgnn.stores.sharded import ShardedRows
from jhgnn.training.mesh import DATA, REPLICATED, SHARDED

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled
    from jhgnn.training.sampled_step import Resident

CALL_BYTES = 2**24
"""Of the rows that a device gets in a call."""


class FetchedRows(NamedTuple):
    """Rows on the host, by type: distinct ids, int32 `[n]`, ascending, and leaves `[n, ...]`, one row where n is 0."""

    ids: Mapping[str, np.ndarray]
    rows: Mapping[str, Any]

    def gather(self, name: str, ids: np.ndarray) -> Any:
        """The rows of ids that are among them, int32 `[m]`; zeros where an id is -1."""
        places = np.where(ids >= 0, np.searchsorted(self.ids[name], ids), -1).astype(np.int32)
        return jax.tree.map(lambda leaf: gather_rows(leaf, places), self.rows[name])


class CutStores:
    """What the helper cannot read on its host.

    Attributes:
        features: of the types whose rows a process has of its own parts alone, as the devices keep them.
        learnt: the types with learnable tables, whether or not the helper meets them.
        met: those of both that it meets, sorted.
    """

    def __init__(self, execution: "Sampled", resident: "Resident", met: Collection[str]) -> None:
        """
        Args:
            resident: on the devices.
            met: node types that the helper reads rows of.
        """
        assert execution.parts is not None
        self.parts, self.mesh = execution.parts, execution.mesh
        tables = execution.sampling.features.tables
        self.features = {
            name: own
            for name, own in resident.features.tables.items()
            if name in met and isinstance(tables[name], PartRows)
        }
        self.learnt = tables_of(execution.abstract_params).keys()
        self.met = sorted({*self.features, *(name for name in self.learnt if name in met)})
        self.homes = {name: resident.homes[name] for name in self.met}
        self._abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((len(self.mesh.local_shards), *leaf.shape[1:]), leaf.dtype),
            self.tables(self.parts.abstract(execution.abstract_params)),
        )

    def tables(self, params: Any) -> dict[str, Any]:
        """The cut rows of the types met, `[places, rows, ...]`; features, and tables of cut parameters."""
        return {name: self.features[name] if name in self.features else tables_of(params)[name] for name in self.met}

    def abstract(self) -> dict[str, Any]:
        """Shapes and dtypes of `tables` as one process holds them."""
        return self._abstract

    def abstract_rows(self, name: str, count: int) -> Any:
        """Shapes and dtypes of so many rows of a type."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[2:]), leaf.dtype), self._abstract[name]
        )

    def row_bytes(self, name: str) -> int:
        """Of a row of a type, in all of its leaves."""
        return sum(
            leaf.dtype.itemsize * int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(self.abstract_rows(name, 1))
        )


class Fetching:
    """The compiled call, and how ids are dealt out to calls.

    Attributes:
        requests: rows of each type that a device asks each one for in a call, at most.
        count: super-batches that were fetched for.
        num_bytes: of the rows that this process was given for them.
    """

    def __init__(self, stores: CutStores, learnt: Sequence[Mapping[str, np.ndarray]], advice: str) -> None:
        """Compiles a call for what some super-batches read; one that reads more takes several.

        Args:
            learnt: distinct ids by type that each process's helper reads in some super-batches, alike in all processes.
            advice: what to lower where rows need too much memory.

        Raises:
            InputError: the rows of a super-batch would need more than half of the available memory.
        """
        self._stores, self._mesh, self._placement = stores, stores.mesh, stores.parts.placement
        self._places, self._lanes = self._mesh.size, len(self._mesh.local_shards)
        sizes = {name: stores.row_bytes(name) for name in stores.met}
        need = max((sum(len(ids[name]) * size for name, size in sizes.items()) for ids in learnt), default=0)
        if need > (limit := default_memory_limit_bytes()):
            raise InputError(
                f"{advice} fetches {readable_bytes(need)} of rows for each super-batch, over half of the available"
                f" memory, {readable_bytes(limit)}; lower one of them"
            )
        most = {name: max((self._most_of_a_home(name, ids[name]) for ids in learnt), default=0) for name in stores.met}
        most = {name: count + count // 8 for name, count in most.items()}
        calls = max(1, -(-sum(most[name] * self._places * size for name, size in sizes.items()) // CALL_BYTES))
        self.requests = {
            name: min(self._placement.rows[name], max(1, -(-count // calls))) for name, count in most.items()
        }
        capacities = FrozenCounts.of(self.requests if self._places > 1 else {})
        exchange = AllToAll(capacities, self._places, DATA)

        def fetched(tables: Any, homes: Any, ids: Mapping[str, jax.Array]) -> dict[str, Any]:
            return ShardedRows(tables, homes, exchange).fetch(ids).rows

        homes = {name: jax.ShapeDtypeStruct(own.shape, own.dtype) for name, own in stores.homes.items()}
        ids = {
            name: jax.ShapeDtypeStruct((self._lanes, self._places * count), jnp.int32)
            for name, count in self.requests.items()
        }
        specs = (SHARDED, REPLICATED, SHARDED)
        self._call = self._mesh.compile(fetched, (stores.abstract(), homes, ids), specs, results=SHARDED)
        self._sizes, self.count, self.num_bytes = sizes, 0, 0

    def calls(self, ids: Mapping[str, np.ndarray]) -> int:
        """Calls that bring some rows to this process; others may need more."""
        most = (-(-self._most_of_a_home(name, own) // self.requests[name]) for name, own in ids.items())
        return max(most, default=0)

    def fetch(self, params: Any, ids: Mapping[str, np.ndarray], calls: int) -> FetchedRows:
        """The rows of ids, int32 `[n]` by type; all processes call it on their training threads.

        Args:
            params: cut parameters on the devices.
            ids: distinct ones that this process needs, ascending.
            calls: as many as any process needs.
        """
        self.count += 1
        self.num_bytes += sum(len(own) * self._sizes[name] for name, own in ids.items())
        tables, dealt = self._stores.tables(params), {name: self._dealt(name, own) for name, own in ids.items()}
        found = {
            name: jax.tree.map(
                lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._stores.abstract_rows(name, max(1, len(own)))
            )
            for name, own in ids.items()
        }
        for call in range(calls):
            asked, mine = {}, {name: np.flatnonzero(own[0] == call) for name, own in dealt.items()}
            for name, (_, lanes, entries) in dealt.items():
                asked[name] = np.full((self._lanes, self._places * self.requests[name]), -1, np.int32)
                asked[name][lanes[mine[name]], entries[mine[name]]] = ids[name][mine[name]]
            # Waited for here: on its way into NumPy, an exchange whose other end has died is a plain ValueError.
            got = jax.block_until_ready(self._call(tables, self._stores.homes, self._mesh.place(asked, SHARDED)))
            for name, (_, lanes, entries) in dealt.items():
                at = lanes[mine[name]], entries[mine[name]]
                for out, leaf in zip(jax.tree.leaves(found[name]), jax.tree.leaves(got[name]), strict=True):
                    out[mine[name]] = _of_this_process(leaf)[at]
        return FetchedRows(ids, found)

    def _most_of_a_home(self, name: str, ids: np.ndarray) -> int:
        """The most rows that one of a process's devices asks one place for, where these ids are dealt out evenly."""
        homes = np.bincount(self._placement.places(name, ids), minlength=self._places)
        return -(-int(homes.max()) // self._lanes)

    def _dealt(self, name: str, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The call in which each id is asked for, this process's device that asks, and where in its ids; `[n]` each."""
        homes = self._placement.places(name, ids)
        counts = np.bincount(homes, minlength=self._places)
        rank = np.empty(len(ids), np.int64)
        rank[np.argsort(homes, kind="stable")] = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
        turn, lanes = np.divmod(rank, self._lanes)
        call, entry = np.divmod(turn, self.requests[name])
        return call, lanes, homes * self.requests[name] + entry


def _of_this_process(leaf: jax.Array) -> np.ndarray:
    """What this process's places hold of an array that is cut over all places, in their order."""
    if leaf.is_fully_addressable:
        return np.asarray(leaf)
    shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])
