"""Rows of hot vertices that are reused: their age, the gradient, threads, devices, kills, and what is refused."""

import dataclasses
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.models import find
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import SampledInputs
from jhgnn.nn.reuse import KeptRows
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.epoch import Cursor
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import LoaderError
from jhgnn.sampling.reuse import TurnSampler
from jhgnn.stores.host import HostRows
from jhgnn.training.checks import check
from jhgnn.training.mesh import local
from jhgnn.training.sampled_step import Shard
from jhgnn.training.state import TrainState
from jhgnn.training.super_batches import SuperBatches
from tests.models.heterographs import academic
from tests.test_resume import killed_and_resumed
from tests.training.minibatches import compiled_update, recipe, sampled

pytestmark = pytest.mark.usefixtures("compile_cache")

EVERY = 3
GRAPH = academic(papers=60)
LEARNT = dataclasses.replace(GRAPH, features={"author": GRAPH.features["author"]})
"""Papers, which are all that HAN reads, have learnable rows."""
WALKS = {"walks": 4, "fan_out": "3"}


def stale_recipe(name: str = "rgcn", *, hot: str = "stale", sampling: dict | None = None, **more) -> Config:
    """Of two layers; HAN draws from metapath graphs, and walks as `han-walks`."""
    own = {"hot": hot, "hot_share": 0.4, "super_batch": EVERY}
    if name.startswith("han"):
        own |= WALKS if name == "han-walks" else {"fan_out": "3,2"}
        more = {"layers": 2} | more
    return recipe(name.removesuffix("-walks"), sampling=own | (sampling or {}), **more)


def graph_of(name: str):
    return LEARNT if name.startswith("han") else GRAPH


def updates(programs, count: int, start: Cursor | None = None, state=None):
    """The state after some updates, and the ages of all rows that each of them reused."""
    seed = programs.execution.config.run.seed
    state = programs.initial_state(seed) if state is None else programs.place(state)
    ages = []
    for batch, _ in zip(programs.feed(seed).iterate(start or Cursor()), range(count), strict=False):
        programs.super_batches.kept(state, batch)
        ages.append(programs.super_batches.ages(state, batch.arguments[0]))
        state, report = programs.update(state, batch)
        assert bool(local(report.finite))
    return state, ages


def on_host(state):
    return jax.tree.map(lambda leaf: np.asarray(local(leaf)), state)


def equal(found, expected) -> None:
    jax.tree.map(np.testing.assert_array_equal, on_host(found), on_host(expected))


@pytest.fixture(scope="module", params=["rgcn", pytest.param("han-walks", marks=pytest.mark.slow)])
def name(request) -> str:
    """Of the model whose programs a test runs."""
    return request.param


@pytest.fixture(scope="module")
def programs(name):
    """With a helper's thread."""
    return compiled_update(sampled(graph_of(name), stale_recipe(name, sampling={"prefetch_threads": 1})))


@pytest.fixture(scope="module")
def undisturbed(programs):
    return on_host(updates(programs, 10)[0])


# Age


def test_rows_are_as_old_as_the_schedule_says(programs):
    _, ages = updates(programs, 10)
    for step, own in enumerate(ages):
        assert len(own)
        assert set(own.tolist()) == {step if step < EVERY else EVERY + step % EVERY}
    assert max(own.max() for own in ages) == 2 * EVERY - 1


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(delays=st.lists(st.sampled_from([0.0, 0.0, 0.05, 0.2]), min_size=5, max_size=5))
def test_a_late_helper_changes_nothing(programs, undisturbed, delays):
    make, left = SuperBatches._make, list(delays)

    def late(self, number, *others):
        time.sleep(left.pop() if left else 0.0)
        return make(self, number, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SuperBatches, "_make", late)
        state, ages = updates(programs, 10)
    assert all((own >= 0).all() and (own < 2 * EVERY).all() for own in ages)
    equal(state, undisturbed)


@pytest.mark.slow
def test_without_threads_all_is_the_same_bit_for_bit(name, undisturbed):
    alone = compiled_update(sampled(graph_of(name), stale_recipe(name)))
    equal(updates(alone, 10)[0], undisturbed)


@pytest.mark.parametrize("version", [-1, 9])  # two super-batches before the step, and after it
def test_the_compiled_step_refuses_rows_that_are_too_old(programs, version):
    state = programs.initial_state(0)._replace(step=programs.place(np.int32(2 * EVERY - 1)))
    before = on_host(state)
    (batch,) = (batch for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(1), strict=False))
    kept = programs.super_batches.kept(state, batch)
    for found, refused in ((0, False), (version, True)):
        old = {
            name: dataclasses.replace(each, versions=jnp.full_like(each.versions, found)) for name, each in kept.items()
        }
        programs.super_batches._current = programs.mesh.place(old, jax.sharding.PartitionSpec())
        state, report = programs.update(state, batch)
        assert bool(local(report.finite)) != refused
        if not refused:
            state = programs.place(jax.tree.map(jnp.asarray, before))
            programs.super_batches._number = 0
    equal(state.params, before.params)
    explained = programs.explain(before, batch, "step 5")
    assert explained.startswith("step 5; ")
    assert f"are not below {2 * EVERY} updates old, but {2 * EVERY - 1 - version}" in explained


def test_what_the_helper_raises_reaches_training(programs, monkeypatch):
    def broken(self, number, *others):
        raise ArithmeticError("torn")

    monkeypatch.setattr(SuperBatches, "_make", broken)
    with pytest.raises(LoaderError, match="rows of hot vertices could not be computed") as caught:
        updates(programs, 1)
    assert isinstance(caught.value.__cause__, ArithmeticError)


# The gradient


def gradients(execution, params, numbers, ids):
    """Of one batch without dropout in several turns, of draws of step 0, with rows made of the same weights."""
    layout = execution.layout
    resident = jax.tree.map(jnp.asarray, layout.resident)
    program = execution.update_program(0, num_devices=1)

    def gradient(params, shard, resident):
        inputs = program.reader.inputs(resident, shard)
        tables = tables_of(params)
        state = TrainState(jnp.int32(0), jnp.uint32(0), params, ())

        def loss(params):
            rows = {name: tables_of(params)[name][jnp.maximum(inputs.ids(name), 0)] for name in tables}
            total = program.loss(with_tables(params, rows), state, inputs, resident, shard, dropout=False)
            return total.loss / total.num_examples

        return jax.grad(loss)(params)

    compiled, found = jax.jit(gradient), []
    for number in numbers:
        sampler = layout.sampler
        drawn_by = sampler._of(number) if isinstance(sampler, TurnSampler) else sampler
        blocks, _ = drawn_by.sample(execution.seeds_of(ids, 0, 0), 0, 0, layout.buckets)
        shard = Shard(ids, blocks, execution.features_of(blocks), np.array([0, number], np.uint32))
        found.append(compiled(params, shard, resident))
    return found


def vector(tree) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(tree)])


def made_now(execution, params):
    """The same execution whose kept rows are the first layer's of these weights, over all neighbours."""
    plain = sampled(execution.problem.graph, dataclasses.replace(execution.config, sampling=dataclasses.replace(
        execution.config.sampling, hot="none", hot_share=0.1, super_batch=4)))  # fmt: skip
    kept = {}
    reuse = execution.sampling.reuse
    seeds = dict(reuse.ids)
    capacities = reuse.bottom.bound_capacities({name: len(own) for name, own in seeds.items()})
    blocks, _ = HostSampler(plain.plain.sampled, reuse.bottom).sample(seeds, 0, 0, fixed(capacities))
    blocks = with_edges(blocks, execution.sampling.compressed)
    inputs = SampledInputs(execution.features_of(blocks), blocks, execution.sampling.endpoints)
    rows = {name: table[jnp.maximum(inputs.ids(name), 0)] for name, table in tables_of(params).items()}
    model = nnx.merge(execution.structure, with_tables(params, rows))
    made = model.of_neighbors(jax.tree.map(jnp.asarray, inputs))
    for name, each in execution.layout.resident.kept.items():
        own = np.asarray(made[name])[: len(each.rows)]
        kept[name] = KeptRows(each.slots, own, np.zeros(len(own), np.int32), each.every, each.in_turn)
    return kept


def with_kept(execution, kept):
    layout = execution.layout
    execution.__dict__["layout"] = dataclasses.replace(layout, resident=dataclasses.replace(layout.resident, kept=kept))
    return execution


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgcn", "rgat", "han", "han-walks"])
def test_over_a_super_batch_the_gradient_is_exact_and_the_literal_one_is_biased(name):
    dropouts = {"feature_dropout": 0.0, "attention_dropout": 0.0, "dropout": 0.0, "dtype": "float64"}
    kernels = {"mean": "fanout"} if name == "rgcn" else {"attention": "fanout"}
    every = {} if name == "han-walks" else {"fan_out": "-1"}
    ids, found = np.array([3, 17, 0, 25, 8, 31, 40, 51], np.int32), {}
    with jax.enable_x64(True):
        for hot in ("none", "stale", "literal"):
            config = stale_recipe(name, hot=hot, sampling=every, **dropouts)
            if hot == "none":
                plain = dataclasses.replace(config.sampling, hot_share=0.1, super_batch=4)
                config = dataclasses.replace(config, sampling=plain)
            config = dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, **kernels))
            execution = sampled(graph_of(name), config)
            rng = np.random.default_rng(3)
            params = jax.tree.map(lambda leaf, rng=rng: rng.normal(0, 0.4, leaf.shape), execution.abstract_params)
            execution.__dict__["features"] = _wide(execution)
            if hot != "none":
                execution = with_kept(execution, made_now(execution, params))
            each = gradients(execution, params, range(EVERY) if hot == "stale" else [0], ids)
            found[hot] = each if hot == "stale" else each[0]
        mean = jax.tree.map(lambda *parts: sum(parts) / EVERY, *found["stale"])
    exact, literal = found["none"], found["literal"]
    assert {leaf.dtype for leaf in jax.tree.leaves(mean)} == {np.dtype(np.float64)}
    # Weights and learnable rows: each turn alone is another gradient, their mean is the exact one.
    assert tables_of(mean)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), mean, exact)
    assert all(np.abs(vector(own) - vector(exact)).max() > 1e-4 for own in found["stale"])
    for own in found["stale"]:  # what follows the sums over neighbours has its whole gradient in every turn
        np.testing.assert_allclose(bias_gradients(own), bias_gradients(exact), rtol=0, atol=1e-12)
    first, biased = neighbor_gradients(exact), neighbor_gradients(literal)
    assert biased @ first / np.linalg.norm(biased) / np.linalg.norm(first) < 0.97
    assert np.linalg.norm(biased) < 0.95 * np.linalg.norm(first)
    np.testing.assert_allclose(vector(literal["layers"][1]), vector(exact["layers"][1]), rtol=0, atol=1e-12)


FOLLOWING = ("fusions", "fusion", "bias_po")
"""What follows the sums over neighbours; HAN's fusion meets their activations over all targets."""


def bias_gradients(gradient) -> np.ndarray:
    return vector({name: own for name, own in gradient["layers"][0].items() if name in FOLLOWING})


def neighbor_gradients(gradient) -> np.ndarray:
    return vector({name: own for name, own in gradient["layers"][0].items() if name not in FOLLOWING})


def _wide(execution):

    tables = execution.sampling.features.tables
    return HostRows({name: np.asarray(table, np.float64) for name, table in tables.items()})


# Devices, parts, and what is saved


@pytest.mark.parametrize(("devices", "training"), [(2, {}), (1, {"micro_batches": 2})])
@pytest.mark.slow
def test_devices_and_micro_batches_train_as_one(name, devices, training):
    graph = graph_of(name)
    one = updates(compiled_update(sampled(graph, stale_recipe(name, training={"optimizer": "sgd"}))), 7)[0]
    config = stale_recipe(name, sampling={"prefetch_threads": 1}, training={"optimizer": "sgd"} | training)
    found = updates(compiled_update(sampled(graph, config, devices)), 7)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), *map(on_host, (found, one)))


@pytest.mark.slow
@pytest.mark.parametrize("done", [4, 6])  # in mid-super-batch, and after its last step
def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted(name, programs, undisturbed, done):
    half = programs.whole(updates(programs, done)[0])
    assert jax.tree.map(np.shape, half) == jax.tree.map(lambda leaf: leaf.shape, programs.execution.saved_state)
    again = compiled_update(sampled(graph_of(name), stale_recipe(name, sampling={"prefetch_threads": 1})))
    epoch, step = divmod(done, again.execution.steps_per_epoch)
    state, _ = updates(again, 10 - done, Cursor(epoch, step), jax.tree.map(np.asarray, half))
    equal(state, undisturbed)


MORE = ("--sampling.batch_size", "8", "--sampling.fan_out", "3", "--sampling.hot_share", "0.4", "--model.layers", "2")
MODELS = [(), pytest.param(("--model.name", "han", "--sampling.walks", "4"), marks=pytest.mark.long)]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=["rgcn", "han-walks"])
def test_a_run_that_is_killed_goes_on_to_bitwise_the_same(model, tmp_path, academic_path):
    more = (*MORE, *model, "--sampling.hot", "stale", "--distributed.devices", "1")
    more = (*more, "--model.dropout", "0.4", "--sampling.super_batch", "4")
    run = killed_and_resumed(tmp_path, academic_path, *more, epochs=20)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["hot_vertices"] > 0
    assert summary["compilations_after_warm_up"] == 0


# What is refused


class Closed(find("han")):  # type: ignore[misc]
    """One whose layers take over no results of single metapaths."""

    reuses_parts = False


REFUSED = {
    "no mini-batches": ({}, "set sampling.batch_size"),
    "a fusion over targets that hands out no parts": (
        {"model": {"name": "tests.training.test_super_batches:Closed"}, "sampling": {"batch_size": 8}},
        "Closed' fuses over all targets",
    ),
    "erased types": ({"model": {"name": "gcn"}, "sampling": {"batch_size": 8}}, "'gcn' is over erased"),
    "links": (
        {"task": {"name": "link_prediction", "negatives": 4}, "sampling": {"batch_size": 8}},
        "each of which leaves out its own links",
    ),
    "device": ({"sampling": {"batch_size": 8, "side": "device"}}, "leave sampling.side out"),
    "edges in parts": (
        {
            "sampling": {"batch_size": 8},
            "distributed": {"method": "random", "strategy": "owner", "topology": "partitioned"},
        },
        "does not go with sampling.hot",
    ),
    "relations first": ({"sampling": {"batch_size": 8}, "distributed": {"strategy": "raf"}}, "strategy = 'raf'"),
    "cache": ({"sampling": {"batch_size": 8, "cache": 1000}}, "beside sampling.hot"),
}


@pytest.mark.parametrize("hot", ["stale", "literal"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_covered_is_one_line(case, hot):
    tables, message = REFUSED[case]
    tables = {"model": {"name": "rgcn"}} | tables
    tables |= {"sampling": tables.get("sampling", {}) | {"hot": hot}}

    def refused() -> None:
        config = override(Config(), tables, where="test")
        check(config, find(config.model.name))

    with pytest.raises(InputError) as caught:
        refused()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_layers_and_shares_that_reuse_nothing_are_one_line():
    for name in ("rgcn", "han-walks"):
        with pytest.raises(InputError, match="which is the last one here"):
            sampled(GRAPH, stale_recipe(name, layers=1, sampling={"fan_out": "3"}))
    with pytest.raises(InputError, match="finds no vertex that would save a draw"):
        sampled(GRAPH, stale_recipe(sampling={"hot_share": 0.001}))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rgcn", "han", "han-walks"])
def test_the_helper_makes_the_rows_that_a_step_would_have(model):
    dropouts = {"feature_dropout": 0.0, "attention_dropout": 0.0, "dropout": 0.0}
    every = {} if model == "han-walks" else {"fan_out": "-1"}
    own = compiled_update(sampled(graph_of(model), stale_recipe(model, sampling=every, **dropouts)))
    state = own.initial_state(0)
    (batch,) = (batch for batch, _ in zip(own.feed(0).iterate(Cursor()), range(1), strict=False))
    wanted = made_now(own.execution, on_host(state.params))
    made = 0
    for name, kept in own.super_batches.kept(state, batch).items():
        found = np.asarray(local(kept.versions)) >= 0
        made += int(found.sum())
        assert kept.rows.shape[1] == own.execution.config.model.hidden * (1 if model == "rgcn" else 2)
        np.testing.assert_allclose(
            np.asarray(local(kept.rows))[found], np.asarray(wanted[name].rows)[found], rtol=1e-5, atol=1e-6
        )
    assert made > 10


def test_another_seed_of_the_same_programs_has_rows_for_its_own_batches():
    """Several seeds train by one set of programs; each has an order of its own, and meets other hot vertices."""
    graph = academic(papers=900, authors=700, subjects=90)
    graph = dataclasses.replace(graph, splits={"train": np.arange(600), "val": np.arange(600, 700)})
    programs = compiled_update(sampled(graph, stale_recipe(sampling={"batch_size": 4, "fan_out": "2,2"})))
    seed = programs.execution.config.run.seed
    updates(programs, 2)
    state = programs.initial_state(seed + 1)
    for batch, _ in zip(programs.feed(seed + 1).iterate(Cursor()), range(4), strict=False):
        programs.super_batches.kept(state, batch)
        assert programs.super_batches.too_old(state, batch.arguments[0]) == ""
        state, report = programs.update(state, batch)
        assert bool(local(report.finite))
