"""Reused rows of hot vertices where rows of the inputs are cut over devices: results, ages, fetching, saved states."""

import dataclasses
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from scipy import sparse

from jhgnn.config import Config
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.writing import write_partition
from jhgnn.errors import InputError
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.nn.embeddings import tables_of
from jhgnn.sampling.epoch import Cursor
from jhgnn.sampling.loader import LoaderError
from jhgnn.training import fetched_rows, reuse
from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose, read_problem
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_programs import SampledPrograms
from jhgnn.training.super_batches import SuperBatches
from tests.models.heterographs import academic
from tests.training.agreement import max_difference
from tests.training.minibatches import recipe

pytestmark = pytest.mark.usefixtures("compile_cache")

EVERY, CLOSE = 3, 1e-5
GRAPH = academic(papers=60, authors=40, subjects=30)
GRAPH = dataclasses.replace(
    GRAPH,
    features=GRAPH.features | {"paper": sparse.random_array((60, 90), density=0.05, rng=1, dtype=np.float32).tocsr()},
)
"""Papers whose features are kept as padded sparse rows."""


def reusing(
    strategy: str = "owner", *, name: str = "rgcn", threads: int = 1, hot: str = "stale", **distributed
) -> Config:
    """A recipe on parts; `data` on one device where no other is said."""
    own = {"hot": hot, "hot_share": 0.4, "super_batch": EVERY, "prefetch_threads": threads, "batch_size": 16}
    own["evaluation"] = "sampled" if distributed.get("read") == "parts" else "layerwise"
    model = {"layers": 2} if name == "han" else {}  # of one layer by default
    own |= {"fan_out": "3,2"} if name == "han" else {}
    training = {"optimizer": "sgd", "weight_decay": 0.0, "learning_rate": 0.05}
    config = recipe(name, sampling=own, training=training, **model)
    cut = {} if strategy == "one" else {"method": "random", "devices": 2, "strategy": strategy}
    cut = cut | distributed if cut else {"devices": 1}
    return dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, **cut))


def programs_of(config: Config, problem=None) -> SampledPrograms:
    execution = execution_of(pose(GRAPH, config) if problem is None else problem)
    assert isinstance(execution, Sampled)
    return execution.compile()


def first_state(programs: SampledPrograms):
    """Weights that have something to forget, for any cut of them."""
    execution, rng = programs.execution, np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(leaf.dtype), execution.abstract_params)
    fresh = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), execution.abstract_state)
    return programs.place(fresh._replace(params=params, seed=np.uint32(0)))


def updates(programs: SampledPrograms, count: int, state=None, start: Cursor | None = None):
    """The state on the devices after some updates, and the ages of what each of them reused."""
    state, ages = first_state(programs) if state is None else state, []
    for batch, _ in zip(programs.feed(0).iterate(start or Cursor()), range(count), strict=False):
        programs.super_batches.kept(state, batch)
        ages.append(programs.super_batches.ages(state, batch.arguments[0]))
        state, report = programs.update(state, batch)
        assert bool(local(report.finite))
    return state, ages


def equal(found, expected) -> None:
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.fixture(scope="module")
def alone():
    """The state of one device with whole tables after 10 updates, and what it keeps."""
    programs = programs_of(reusing("one"))
    return programs.whole(updates(programs, 10)[0])


@pytest.fixture(scope="module")
def owner():
    return programs_of(reusing())


@pytest.fixture(scope="module")
def undisturbed(owner):
    return owner.whole(updates(owner, 10)[0])


# Results and ages


def test_rows_are_reused_as_on_one_device(owner, undisturbed, alone):
    assert owner.super_batches._rows.stores.met == ["subject"]
    assert max_difference(undisturbed.params, alone.params) < CLOSE
    assert max_difference(undisturbed.hot, alone.hot) < CLOSE
    assert max(int(own["versions"].max()) for own in undisturbed.hot["next"].values()) == 3 * EVERY
    first = owner.whole(first_state(owner))
    assert max_difference(undisturbed.params, first.params) > 1e-3  # it has learnt something


def test_rows_are_as_old_as_the_schedule_says(owner):
    _, ages = updates(owner, 10)
    for step, own in enumerate(ages):
        assert set(own.tolist()) == {step if step < EVERY else EVERY + step % EVERY}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "name", "hot"),
    [
        ("data", "rgcn", "stale"),
        pytest.param("leapgnn", "rgcn", "stale", marks=pytest.mark.long),
        pytest.param("owner", "rgat", "stale", marks=pytest.mark.long),
        ("owner", "han", "stale"),
        pytest.param("owner", "rgcn", "literal", marks=pytest.mark.long),
    ],
)
def test_strategies_and_models_train_as_one_device(strategy, name, hot):
    expected = programs_of(reusing("one", name=name, hot=hot))
    expected = expected.whole(updates(expected, 10)[0])
    programs = programs_of(reusing(strategy, name=name, hot=hot))
    state, ages = updates(programs, 10)
    assert all((own >= 0).all() and (own < 2 * EVERY).all() and len(own) for own in ages)
    found = programs.whole(state)
    assert max_difference(found.params, expected.params) < CLOSE
    assert max_difference(found.hot, expected.hot) < CLOSE


@pytest.mark.slow
def test_without_threads_all_is_the_same_bit_for_bit(undisturbed):
    inline = programs_of(reusing(threads=0))
    equal(inline.whole(updates(inline, 10)[0]), undisturbed)


@pytest.mark.slow
@pytest.mark.long
def test_a_process_that_reads_parts_alone_reuses_the_same_rows(tmp_path):
    write_partition(GRAPH, random_assignment(GRAPH, 2), tmp_path / "two")
    found = []
    for read in ("data", "parts"):
        config = reusing(method="", parts=str(tmp_path / "two"), read=read)
        programs = programs_of(config, read_problem(config) if read == "parts" else None)
        found.append(programs.whole(updates(programs, 10)[0]))
        features = programs.super_batches._rows.stores.features
        assert set(features) == ({"author", "paper"} if read == "parts" else set())
        assert all(isinstance(own, SparseRows) == (name == "paper") for name, own in features.items())
    equal(*found)


@pytest.mark.parametrize("version", [-1, 9])  # two super-batches before the step, and after it
def test_the_compiled_step_refuses_rows_that_are_too_old(owner, version):
    state = first_state(owner)._replace(step=owner.place(np.int32(2 * EVERY - 1)))
    before = jax.tree.map(np.asarray, owner.whole(state).params)
    (batch,) = (batch for batch, _ in zip(owner.feed(0).iterate(Cursor()), range(1), strict=False))
    kept = owner.super_batches.kept(state, batch)
    old = {
        name: dataclasses.replace(each, versions=jnp.full_like(each.versions, version)) for name, each in kept.items()
    }
    owner.super_batches._current = owner.mesh.place(old, PartitionSpec())
    state, report = owner.update(state, batch)
    assert not bool(local(report.finite))
    equal(owner.whole(state.params), before)
    explained = owner.explain(state._replace(step=owner.place(np.int32(2 * EVERY - 1))), batch, "step 5")
    assert f"are not below {2 * EVERY} updates old, but {2 * EVERY - 1 - version}" in explained


@pytest.mark.parametrize("task", ["_make", "_needs_of"])
def test_what_the_helper_raises_reaches_training(owner, monkeypatch, task):
    def broken(self, number, *others):
        raise ArithmeticError("torn")

    monkeypatch.setattr(SuperBatches, task, broken)
    with pytest.raises(LoaderError, match="could not be computed: ArithmeticError: torn") as caught:
        updates(owner, 1)
    assert isinstance(caught.value.__cause__, ArithmeticError)


# Fetching


def test_fetched_rows_are_those_of_the_whole_table_in_one_call_or_several(owner, monkeypatch):
    state, rng = first_state(owner), np.random.default_rng(5)
    stores, fetching = owner.super_batches._rows.stores, owner.super_batches._fetching
    table = tables_of(owner.whole(state.params))["subject"]
    learnt = [{"subject": np.arange(30, dtype=np.int32)}]
    monkeypatch.setattr(fetched_rows, "CALL_BYTES", 100)
    small = fetched_rows.Fetching(stores, learnt, "test")
    assert small.requests["subject"] < fetching.requests["subject"]
    for count in (0, 1, 7, 30):
        ids = {"subject": np.sort(rng.choice(30, count, replace=False)).astype(np.int32)}
        for own in (fetching, small):
            rows = own.fetch(state.params, ids, own.calls(ids) + 1)  # another process may need more
            np.testing.assert_array_equal(rows.gather("subject", ids["subject"]), table[ids["subject"]])
            assert not rows.gather("subject", np.full(3, -1, np.int32)).any()
    assert small.calls(learnt[0]) > fetching.calls(learnt[0])


def test_super_batches_that_read_more_than_was_learnt_take_several_calls(owner, undisturbed, monkeypatch):
    batches = owner.super_batches
    few = fetched_rows.Fetching(batches._rows.stores, [{"subject": np.zeros(1, np.int32)}], "test")
    assert few.calls({"subject": np.arange(30, dtype=np.int32)}) > 3
    monkeypatch.setattr(batches, "_fetching", few)
    equal(owner.whole(updates(owner, 10)[0]), undisturbed)


def test_rows_that_do_not_fit_the_memory_are_one_line(owner, monkeypatch):
    monkeypatch.setattr(fetched_rows, "default_memory_limit_bytes", lambda: 100)
    learnt = [{"subject": np.arange(30, dtype=np.int32)}]
    with pytest.raises(InputError, match=r"sampling.x fetches 960 bytes of rows for each super-batch, over half"):
        fetched_rows.Fetching(owner.super_batches._rows.stores, learnt, "sampling.x")


def test_rows_that_all_devices_keep_are_counted_on_each(monkeypatch):
    execution = execution_of(pose(GRAPH, reusing()))
    once = 2 * sum(each.rows.nbytes for each in execution.layout.resident.kept.values())
    monkeypatch.setattr(reuse, "default_memory_limit_bytes", lambda: once + 1)
    with pytest.raises(InputError, match=r"sampling\.hot_share = 0\.4 keeps .* of rows on 2 devices that share"):
        _ = execution_of(pose(GRAPH, reusing())).layout
    assert execution_of(pose(GRAPH, reusing("one"))).layout.resident.kept


# What is saved


@pytest.mark.slow
@pytest.mark.parametrize("done", [4, 6])  # in mid-super-batch, and after its last step
def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted(owner, undisturbed, done, tmp_path):
    parts, execution = owner.execution.parts, owner.execution
    state, _ = updates(owner, done)
    CheckpointStore(tmp_path).save(owner.to_save(state), state.params, Progress(), parts=parts)
    again = programs_of(reusing())
    state = again.place_cut(CheckpointStore(tmp_path).load(again.execution.saved_state, parts=again.execution.parts)[0])
    epoch, step = divmod(done, execution.steps_per_epoch)
    state, _ = updates(again, 10 - done, state, Cursor(epoch, step))
    equal(again.whole(state), undisturbed)
    # Another cut of the same rows, or none, goes on from it as well.
    one = programs_of(reusing("one"))
    state = one.place(jax.tree.map(np.asarray, CheckpointStore(tmp_path).load(one.execution.saved_state)[0]))
    state, _ = updates(one, 10 - done, state, Cursor(epoch, step))
    assert max_difference(one.whole(state).params, undisturbed.params) < CLOSE


def test_a_seed_that_begins_takes_over_nothing_that_was_read_for_another(owner):
    updates(owner, 1)
    assert isinstance(owner.super_batches._ahead[1], Future)
    owner.feed(1)
    assert owner.super_batches._ahead is None
