"""Super-batches: rows of the first layer that are computed for hot vertices beside the steps, one super-batch ahead.

A row is the sum over a vertex's neighbours and relations, before its own part, bias and activation; of HAN the sum over
neighbours along each metapath, before bias, activation and fusion: see `KeptRows`.

A super-batch is n consecutive batches. With the weights as they are before the first step of super-batch k - 1, a
helper computes the rows of super-batch k: of the hot vertices that its batches will meet, which stateless sampling
tells. The rows of the first two super-batches are of the weights at their beginning. So a row that a step reuses is of
weights n to 2n - 1 updates ago, or less in the first super-batch. This schedule is a function of the step alone: where
the helper is late, training waits for it. Each row carries its version, and the compiled step checks it (`KeptRows`).

Of several processes each has a helper, which computes a part of these rows; the devices give each other theirs. Where
rows of the inputs are cut over the devices, those that a helper reads are fetched for it with the weights
(`jhgnn.training.fetched_rows`). All exchanges are made by the training threads, at the same steps in all processes.

Source: Ai et al., NeutronOrch (PVLDB 17(8)): the super-batch pipeline.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.nn.embeddings import with_tables
from jhgnn.nn.reuse import NOT_REUSED, KeptRows
from jhgnn.ops.words import from_words, to_words
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.training.execution import Batch
from jhgnn.training.fetched_rows import FetchedRows, Fetching
from jhgnn.training.helpers_meeting import HelpersMeeting
from jhgnn.training.hot_sums import HotSums, Results, on_one_device
from jhgnn.training.mesh import DATA, REPLICATED, SHARDED, local
from jhgnn.training.programs import compile_lowered
from jhgnn.training.sampled_step import Resident, Shard
from jhgnn.training.state import Params, TrainState

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled

Found = TypeVar("Found")


class Needs(NamedTuple):
    """What follows from a super-batch's samples alone.

    Attributes:
        slots: of the hot vertices that its batches meet, int32 by type, ascending.
        ids: by type, the rows of cut stores that this process's helper reads, int32, ascending, each once.
    """

    slots: Mapping[str, np.ndarray]
    ids: Mapping[str, np.ndarray]


class Weights(NamedTuple):
    """What the helper computes with.

    Attributes:
        params: a copy of the parameters, without tables where these are cut.
        seed: of dropout.
        version: updates done.
        needs, fetched: of the super-batch to compute, where rows are cut; else None.
    """

    params: Params
    seed: Any
    version: int
    needs: Needs | None = None
    fetched: FetchedRows | None = None


class Made(NamedTuple):
    """This process's rows of a super-batch: what was computed together, one after the other, and the version of all."""

    results: list[Results]
    version: int


class SuperBatches:
    """Keeps the rows that steps reuse, and has the next ones computed meanwhile.

    One super-batch is in preparation at a time, one piece after the other. So what lies ahead is bounded: the inputs of
    a piece, by `sampling.prefetch_memory_gib`, the rows made, which are no more than those kept, and a copy of the
    parameters. Where rows are cut, the copy has in the place of tables the rows that the super-batch's pieces read.

    Attributes:
        wait_s: seconds that training waited for the helper.
        busy_s: seconds that the helper worked.
        vertices: rows computed by it.
        made: super-batches computed by it.
    """

    def __init__(self, execution: "Sampled", resident: Resident | None = None) -> None:
        """Plans what is computed together, and compiles it.

        Args:
            resident: what is on the devices, where rows are cut over them.

        Raises:
            InputError: rows that are fetched for the helper would not fit the memory.
        """
        reuse, settings = execution.sampling.reuse, execution.config.sampling
        assert reuse is not None
        self._execution, self._reuse, self._mesh = execution, reuse, execution.mesh
        self._batches = execution.batches(execution.config.run.seed)
        self._rows = HotSums(execution, resident)
        self._fetching = self._compiled_fetching()
        self._meeting = HelpersMeeting(self._mesh)
        self._copy = self._compiled_copy()
        kept = execution.layout.resident.kept
        self._unmade: Mapping[str, KeptRows] = self._mesh.place(kept, REPLICATED)
        self._merge = self._compiled_merge()
        self._threads = ThreadPoolExecutor(1, "jhgnn-hot") if settings.prefetch_threads else None
        self._current, self._number, self._restored = self._unmade, -1, False
        self._next: Future[Made] | Mapping[str, KeptRows] | None = None
        self._ahead: tuple[int, Future[Needs]] | None = None  # the needs of the super-batch after the next one
        self._work = threading.Lock()  # a seed's last task may still run when the next seed begins
        self.wait_s = self.busy_s = 0.0
        self.made = 0

    @property
    def vertices(self) -> int:
        return self._rows.vertices

    def figures(self) -> dict[str, Any]:
        """For `summary.json`: bytes that a super-batch's helper was given in this process, where rows are cut."""
        if self._fetching is None:
            return {}
        return {"hot_fetched_bytes": self._fetching.num_bytes // max(1, self._fetching.count)}

    # What steps read

    def begin(self, batches: EpochBatches) -> None:
        """The batches that come, from any one on; rows kept before are forgotten, but for those of `restore`."""
        with self._work:
            self._rows.begin(batches)
        self._batches, self._ahead = batches, None
        if not self._restored:
            self.restore(None)
        self._restored = False

    def kept(self, state: TrainState, batch: Batch) -> Mapping[str, KeptRows]:
        """The rows that a batch may reuse, on the devices; called in the order of the batches, by all processes.

        Raises:
            LoaderError: they could not be computed; the cause is what this process's helper raised.
        """
        number = self._batches.global_step(batch.cursor) // self._reuse.every
        if number != self._number:
            weights = self._weights(state)
            self._current = self._rows_of(number, weights, state)
            self._number, self._next = number, self._started(number + 1, weights, state)
        return self._current

    def _rows_of(self, number: int, weights: Weights, state: TrainState) -> Mapping[str, KeptRows]:
        """The rows of a super-batch: those computed ahead, or, where none were, such as of these weights."""
        ahead = self._next if self._number >= 0 and number == self._number + 1 else None
        if isinstance(ahead, Mapping):
            return self._mesh.place(ahead, REPLICATED)
        if ahead is None:
            return self._merged(self._unmade, self._started(number, weights, state))
        return self._merged(self._current, ahead)

    def _merged(self, base: Mapping[str, KeptRows], ahead: "Future[Made]") -> Mapping[str, KeptRows]:
        """Rows on the devices, with those that the helpers of all processes make in the place of older ones."""
        made, _ = self._met(ahead)
        version: Any = np.int32(made.version)
        if jax.process_count() > 1:
            version = self._mesh.place(version, REPLICATED)
        for each in made.results:
            base = self._merge(base, self._cut(each), version)
        return base

    def _met(self, ahead: "Future[Found]", calls_of: Callable[[Found], int] = lambda _: 0) -> tuple[Found, int]:
        """See `HelpersMeeting.result`."""
        started = time.perf_counter()
        found = self._meeting.result(ahead, calls_of)
        self.wait_s += time.perf_counter() - started
        return found

    def _started(self, number: int, weights: Weights, state: TrainState) -> "Future[Made]":
        """The rows of a super-batch, as they come; `weights` are a copy of those of `state`."""
        if self._fetching is not None:
            fetching, ahead = self._fetching, self._ahead
            needs = ahead[1] if ahead is not None and ahead[0] == number else self._submitted(self._needs_of, number)
            own, calls = self._met(needs, lambda needs: fetching.calls(needs.ids))
            weights = weights._replace(needs=own, fetched=fetching.fetch(state.params, own.ids, calls))
        made = self._submitted(self._make, number, weights)
        if self._fetching is not None:
            self._ahead = (number + 1, self._submitted(self._needs_of, number + 1))
        return made

    def _submitted(self, task: Callable[..., Found], *arguments: Any) -> "Future[Found]":
        """On the helper's thread, after what was submitted before; at once where there is none."""
        if self._threads is not None:
            return self._threads.submit(task, *arguments)
        done: Future[Found] = Future()
        try:
            done.set_result(task(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    def _weights(self, state: TrainState) -> Weights:
        """A copy of the parameters, which the next step takes over."""
        params, seed = self._copy(*jax.tree.map(local, (self._copied(state.params), state.seed)))
        return Weights(params, seed, int(local(state.step)))

    def _copied(self, params: Params) -> Params:
        """Those of the parameters that the helper is given whole."""
        return params if self._rows.stores is None else with_tables(params, {})

    def ages(self, state: TrainState, shard: Shard) -> np.ndarray:
        """The ages in updates of all rows that a batch on this process's devices reuses, int32 `[rows]`."""
        found = [np.zeros(0, np.int32)]
        step, number = np.asarray(local(state.step)), _here(shard.draw).reshape(-1, 2)[0, 1]
        for name, kept in jax.tree.map(local, dict(self._current)).items():
            capacities = shard.blocks.capacities[-2]
            if name not in capacities:
                continue
            nodes = _here(shard.blocks.nodes[name])[..., : capacities[name]].reshape(-1)
            of_slots = np.asarray(kept.ages(jnp.asarray(nodes), jnp.uint32(number), jnp.asarray(step)))
            found.append(of_slots[of_slots != NOT_REUSED])
        return np.concatenate(found)

    def too_old(self, state: TrainState, shard: Shard) -> str:
        """What is wrong with the rows that a batch reuses, or nothing."""
        ages, bound = self.ages(state, shard), 2 * self._reuse.every
        wrong = ages[(ages < 0) | (ages >= bound)]
        if not len(wrong):
            return ""
        return f"{len(wrong)} reused rows of hot vertices are not below {bound} updates old, but {int(wrong.max())}"

    def met_of(self, ids: Mapping[str, np.ndarray]) -> float:
        """See `HotSums.met_of`."""
        return self._rows.met_of(ids)

    # Checkpoints

    @property
    def saved(self) -> dict[str, Any]:
        """What a checkpoint holds: the rows of the super-batch at hand and of the next one, on the host.

        It waits for the helper. Several processes all ask for it after the same batch.

        Raises:
            LoaderError: as `kept`.
        """
        ahead = self._current if self._next is None else self._next
        if isinstance(ahead, Future):
            ahead = jax.block_until_ready(self._merged(self._current, ahead))
        current, ahead = (
            jax.tree.map(lambda leaf: np.asarray(local(leaf)), dict(each)) for each in (self._current, ahead)
        )
        number = np.array(self._number, np.int32)
        return {"super_batch": number, "current": _results(current), "next": _results(ahead)}

    def restore(self, saved: Any) -> None:
        """Goes on from `saved`, or, with None, from nothing."""
        self._restored = bool(saved)
        self._number = int(local(saved["super_batch"])) if saved else -1
        if self._number < 0:
            self._current, self._next = self._unmade, None
            return
        host, on_host = self._execution.layout.resident.kept, jax.tree.map(lambda leaf: np.asarray(local(leaf)), saved)
        self._current = self._mesh.place(_kept(host, on_host["current"]), REPLICATED)
        self._next = _kept(host, on_host["next"])

    # The helper

    def _needs_of(self, number: int) -> Needs:
        """Which slots a super-batch meets, and what computing them reads; on the helper's thread."""
        with self._work:
            started = time.perf_counter()
            slots = self._rows.met(number)
            needs = Needs(slots, self._rows.read_by(slots, number))
            self.busy_s += time.perf_counter() - started
            return needs

    def _make(self, number: int, weights: Weights) -> Made:
        """Computes this process's rows of a super-batch; on the helper's thread."""
        with self._work:
            started = time.perf_counter()
            slots = self._rows.met(number) if weights.needs is None else weights.needs.slots
            results = self._rows.computed(slots, number, weights.params, weights.seed, weights.fetched)
            self.busy_s += time.perf_counter() - started
            self.made += 1
            return Made(results, weights.version)

    def of_all(self, params: Params, number: int = 0) -> dict[str, KeptRows]:
        """The rows of all hot vertices, of some weights and the draws of a super-batch, of version 0, on the host.

        For one process whose devices hold whole tables.
        """
        slots = {name: np.arange(len(ids), dtype=np.int32) for name, ids in self._reuse.ids.items()}
        made = Made(self._rows.computed(slots, number, params, np.uint32(0), None), 0)
        return _with_results(self._execution.layout.resident.kept, made)

    # Programs

    def _compiled_copy(self) -> Any:
        mine = [device for device in self._mesh.devices if device.process_index == jax.process_index()]
        params = self._copied(self._execution.abstract_params)
        arguments = on_one_device((params, jax.ShapeDtypeStruct((), jnp.uint32)), mine[0])
        copy = jax.jit(lambda *tree: jax.tree.map(jnp.copy, tree))
        return compile_lowered(lambda: copy.lower(*arguments))

    def _compiled_fetching(self) -> Fetching | None:
        """None where the host has all rows that the helper reads, but for those of whole tables."""
        if self._rows.stores is None or not self._rows.stores.met:
            return None
        settings = self._execution.config.sampling
        advice = f"sampling.hot_share = {settings.hot_share} with sampling.super_batch = {settings.super_batch}"
        return Fetching(self._rows.stores, list(self._rows.learnt_reads()), advice)

    def _compiled_merge(self) -> Any:
        """Puts rows that were computed together where steps read them, on every device.

        Each device receives a part of them from its own host, and the devices give each other theirs.
        """

        def merge(kept: Mapping[str, KeptRows], part: Results, version: jax.Array) -> dict[str, KeptRows]:
            own = _of_all_devices(part)
            return {name: each.with_rows(own.slots[name], own.rows[name], version) for name, each in kept.items()}

        host = self._execution.layout.resident.kept
        sizes = {
            name: size * len(self._mesh.local_shards) // self._mesh.size for name, size in self._rows.sizes.items()
        }
        empty = Results(
            {name: np.full(size, -1, np.int32) for name, size in sizes.items()},
            {name: np.zeros((size, host[name].rows.shape[1]), host[name].rows.dtype) for name, size in sizes.items()},
        )
        arguments = (dict(host), self._divided(empty), np.int32(0))
        return self._mesh.compile(merge, arguments, (REPLICATED, SHARDED, REPLICATED))

    def _divided(self, results: Results) -> Results:
        places = len(self._mesh.local_shards)
        return jax.tree.map(lambda leaf: leaf.reshape(places, -1, *leaf.shape[1:]), results)

    def _cut(self, results: Results) -> Results:
        """This process's results on its devices, each of which has its part."""
        host = self._execution.layout.resident.kept
        rows = {name: own.astype(host[name].rows.dtype) for name, own in results.rows.items()}
        return self._mesh.place(self._divided(Results(results.slots, rows)), SHARDED)


def _of_all_devices(part: Results) -> Any:
    """Traced: the rows of all devices, from those of this one."""
    if jax.process_count() == 1:
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, DATA).reshape(-1, *leaf.shape[1:]), part)
    # In one exchange: over several processes, those of one program may meet in different orders.
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda leaf: leaf[None], part))
    words = jax.lax.all_gather(to_words(leaves), DATA, tiled=True)
    like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    found = jax.tree.unflatten(structure, from_words(words, like))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)


def _here(leaf: Any) -> np.ndarray:
    """A batch's array as this process's devices hold it, with an axis over them."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return np.asarray(leaf)
    return np.concatenate([np.asarray(shard.data) for shard in leaf.addressable_shards])


def _results(kept: Mapping[str, KeptRows]) -> dict[str, dict[str, np.ndarray]]:
    return {name: {"rows": each.rows, "versions": each.versions} for name, each in kept.items()}


def _kept(like: Mapping[str, KeptRows], results: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, KeptRows]:
    return {
        name: dataclasses.replace(each, rows=results[name]["rows"], versions=results[name]["versions"])
        for name, each in like.items()
    }


def _with_results(kept: Mapping[str, KeptRows], made: Made) -> dict[str, KeptRows]:
    """The same as the devices' merge, on the host."""
    found = {}
    for name, each in kept.items():
        rows, versions = np.array(each.rows), np.array(each.versions)
        for own in made.results:
            valid = own.slots[name] >= 0
            slots = own.slots[name][valid]
            rows[slots], versions[slots] = own.rows[name][valid].astype(rows.dtype), made.version
        found[name] = dataclasses.replace(each, rows=rows, versions=versions)
    return found
