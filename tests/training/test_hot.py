"""Hot vertices, exact mode: the gradient is that of a step whose hot rows see all their fixed neighbours."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.graph.sampled import FrozenCounts, NeighborTable, SampledBlocks
from jhgnn.models import find
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import SampledInputs
from jhgnn.sampling.epoch import Cursor
from jhgnn.sampling.hot import count_receivers
from jhgnn.stores.host import HostRows
from jhgnn.tasks.class_counts import mean_loss
from jhgnn.train import main
from jhgnn.training.checks import check
from jhgnn.training.hot import with_hot_vertices
from jhgnn.training.mesh import local
from tests.commands import train_arguments
from tests.executions import apply_model
from tests.models.heterographs import academic
from tests.sampling.reference import in_neighbors, neighbors
from tests.test_resume import killed_and_resumed
from tests.training.minibatches import compiled, recipe, sampled, steps

pytestmark = pytest.mark.usefixtures("compile_cache")

HOT = {"hot": "exact", "hot_share": 0.4}
EXACT = {"feature_dropout": 0.0}
SEEDS = np.array([3, 17, 0, 25, 8, 31], np.int32)


def hot_recipe(*, sampling: dict | None = None, training: dict | None = None, **model) -> Config:
    return recipe("rgcn", sampling=HOT | (sampling or {}), training=training, **(EXACT | model))


# The gradient


def reference_inputs(execution, hot, tables, seeds, seed: int, step: int) -> SampledInputs:
    """The batch drawn by the slow sampler of the tests, but with all neighbours of hot vertices at the bottom hop."""
    graph, plan = execution.plain.sampled, execution.plain.plan
    all_of = {(each.name, int(v)) for each in hot.relations for v in each.receivers}
    order = {name: [] for name in plan.node_types} | {"paper": seeds.tolist()}
    capacities, hops = [{name: len(ids) for name, ids in order.items()}], []
    for hop in range(plan.num_hops):
        drawn = {}
        for draw in plan.draws_at(hop):
            rows = []
            for vertex in order[draw.target]:
                if hop == plan.num_hops - 1 and (draw.name, vertex) in all_of:
                    rows.append(in_neighbors(graph, draw.steps[0], vertex).tolist())
                else:
                    rows.append([sender for sender, _ in neighbors(graph, draw, seed, step, hop, vertex)])
            drawn[draw.name] = rows
        for draw in plan.draws_at(hop):
            own = order[draw.source]
            own += sorted({sender for row in drawn[draw.name] for sender in row} - set(own))
        counts = {name: len(ids) for name, ids in order.items()}
        made = {}
        for draw in plan.draws_at(hop):
            rows, slot = drawn[draw.name], {vertex: at for at, vertex in enumerate(order[draw.source])}
            senders = np.zeros((len(rows), max(1, *map(len, rows))), np.int32)
            for at, row in enumerate(rows):
                senders[at, : len(row)] = [slot[sender] for sender in row]
            lengths = np.array([len(row) for row in rows], np.int32)
            made[draw.name] = NeighborTable(senders, lengths, None, None, None, counts[draw.source], draw.name)
        hops.append(made)
        capacities.append(counts)
    nodes = {name: np.array(ids, np.int32) for name, ids in order.items()}
    blocks = SampledBlocks(
        nodes=nodes,
        hops=tuple(hops),
        added=np.zeros((plan.num_hops + 1, len(plan.node_types)), np.int32),
        overflowed=np.zeros((), bool),
        capacities=tuple(FrozenCounts(tuple(counts.items())) for counts in capacities),
        node_types=plan.node_types,
    )
    features = {name: table[nodes[name]] for name, table in tables.items()}
    return SampledInputs(features, blocks, execution.plain.endpoints)


def gradient(execution, params, inputs, step_seed):
    """Of the mean loss of the first rows, with respect to all parameters, tables among them."""
    inputs = jax.tree.map(jnp.asarray, inputs)

    def loss(params):
        rows = {name: table[inputs.ids(name)] for name, table in tables_of(params).items()}
        logits = apply_model(execution.structure, with_tables(params, rows), inputs, step_seed).logits
        return mean_loss(logits[: len(SEEDS)], jnp.asarray(execution.graph.labels)[SEEDS])

    return jax.jit(jax.grad(loss))(params)


@pytest.mark.parametrize(
    ("sampling", "model"),
    [
        ({"fan_out": "3,2"}, {}),
        pytest.param({"fan_out": "3,2", "hot_share": 1.0}, {"bases": 2}, marks=pytest.mark.slow),
        pytest.param({"fan_out": "2"}, {"layers": 1}, marks=pytest.mark.slow),
    ],
)
def test_the_gradient_is_that_of_full_neighbourhoods_for_hot_rows(sampling, model):
    config = hot_recipe(sampling=sampling, **model)
    plain = recipe("rgcn", sampling=sampling | {"hot_share": 0.1}, **(EXACT | model))
    kernels = dataclasses.replace(config.kernels, mean="fanout")  # the native kernels are of float32
    wide = dataclasses.replace(plain, kernels=kernels, model=dataclasses.replace(plain.model, dtype="float64"))
    execution = sampled(academic(), wide)
    with jax.enable_x64(True):
        tables = {name: np.asarray(table, np.float64) for name, table in execution.plain.features.tables.items()}
        execution.plain = dataclasses.replace(execution.plain, features=HostRows(tables))
        visits = count_receivers(execution.plain.sampled, execution.plain.plan, [({"paper": SEEDS}, 5)], 0, 1)
        execution.sampling = with_hot_vertices(execution.plain, config.sampling, visits)
        hot = execution.sampling.hot
        rng = np.random.default_rng(3)
        params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape), execution.abstract_params)
        layout = execution.layout
        blocks, _ = layout.sampler.sample({"paper": np.resize(SEEDS, 8)}, 0, 5, layout.buckets)
        own = SampledInputs(execution.features_of(blocks), blocks, execution.sampling.endpoints)
        expected = reference_inputs(execution, hot, tables, SEEDS, 0, 5)
        found = gradient(execution, params, own, np.uint32(9))
        wanted = gradient(execution, params, expected, np.uint32(9))
        nothing = dataclasses.replace(hot, relations=())
        other = gradient(execution, params, reference_inputs(execution, nothing, tables, SEEDS, 0, 5), np.uint32(9))
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float64)}
    # Learnable rows and fixed ones, in one batch, and both with a gradient that is not nothing.
    assert {each.relation.source for each in hot.relations} <= {"paper", "author"}
    assert "subject" in tables_of(found)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), found, wanted)
    assert max(float(np.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (other, wanted)), strict=True)) > 1e-4


# Training


def params_after(programs, count: int):
    state, reports = steps(programs, count)
    assert all(bool(report.finite) for report in reports)
    return state


def equal(found, expected) -> None:
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.fixture(scope="module")
def alone():
    return params_after(compiled(academic(), hot_recipe(training={"optimizer": "sgd"})), 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        {"prefetch_threads": 2, "threads": 3},
        pytest.param({"side": "device"}, marks=pytest.mark.slow),
        pytest.param({"features": "device"}, marks=pytest.mark.slow),
    ],
)
def test_prefetching_threads_and_side_change_nothing(alone, sampling):
    found = params_after(compiled(academic(), hot_recipe(sampling=sampling, training={"optimizer": "sgd"})), 4)
    if "side" in sampling:  # other kernels
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), found.params, alone.params)
    else:
        equal(found.params, alone.params)


@pytest.mark.parametrize(("devices", "training"), [(2, {}), (1, {"micro_batches": 2})])
@pytest.mark.slow
def test_devices_and_parts_train_as_one(alone, devices, training):
    config = hot_recipe(training={"optimizer": "sgd"} | training)
    execution = sampled(academic(), config, devices)
    found = params_after(compiled(academic(), config, devices), 4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), found.params, alone.params)
    one = sampled(academic(), hot_recipe())
    for name, ids in one.sampling.hot.ids.items():
        np.testing.assert_array_equal(execution.sampling.hot.ids[name], ids)


@pytest.mark.slow
def test_means_that_live_with_their_vertices_train_as_on_one_device(alone):
    config = hot_recipe(training={"optimizer": "sgd"})
    config = dataclasses.replace(
        config, distributed=dataclasses.replace(config.distributed, method="random", strategy="owner")
    )
    execution = sampled(academic(), config, 2)
    programs = execution.compile()
    state = programs.place(execution.initial_state(1)._replace(seed=np.uint32(0)))
    for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(4), strict=False):
        state, report = programs.update(state, batch)
        assert bool(local(report.finite))
    whole = programs.whole(state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), whole.params, alone.params)
    plain = sampled(academic(), without(config), 2)
    plain_programs = plain.compile()
    found = programs.evaluate(state.params, ["val"], 0)
    assert found == plain_programs.evaluate(plain_programs.place(whole).params, ["val"], 0)


@pytest.mark.slow
def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted(alone):
    programs = compiled(academic(), hot_recipe(training={"optimizer": "sgd"}))
    half = params_after(programs, 2)
    again = compiled(academic(), hot_recipe(training={"optimizer": "sgd"}))  # counts and sums everything anew
    state = again.place(half)
    for batch, _ in zip(again.feed(0).iterate(Cursor(0, 2)), range(2), strict=False):
        shard, votes = batch.arguments
        state, _ = again.steps[0](state, again.resident, shard, votes)
    equal(jax.tree.map(lambda leaf: np.asarray(local(leaf)), state), alone)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_bitwise_the_same(tmp_path, academic_path):
    more = ("--sampling.batch_size", "8", "--sampling.fan_out", "3", "--sampling.hot", "exact")
    more = (*more, "--sampling.hot_share", "0.4", "--distributed.devices", "1", "--model.dropout", "0.4")
    killed_and_resumed(tmp_path, academic_path, *more, epochs=60)


def without(config: Config) -> Config:
    plain = dataclasses.replace(config.sampling, hot="none", hot_share=0.1)
    return dataclasses.replace(config, sampling=plain)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["host", "device"])
def test_evaluation_is_that_without_hot_vertices(side):
    config = hot_recipe(sampling={"side": side})
    scores = []
    for own in (config, without(config)):
        execution = sampled(academic(), own)
        programs = execution.compile()
        params = programs.place(execution.initial_params(2))
        scores.append(programs.evaluate(params, ["val", "test"], 0))
    assert scores[0] == scores[1]


def test_layerwise_evaluation_is_that_without_hot_vertices():
    config = hot_recipe(sampling={"evaluation": "layerwise"})
    rows = []
    for own in (config, without(config)):
        execution = sampled(academic(), own)
        rows.append(execution.rows(execution.initial_params(2), 0))
    equal(*rows)


@pytest.mark.slow
def test_a_run_says_what_is_hot_and_predicts_without(tmp_path, academic_path):
    arguments = train_arguments(
        academic_path,
        tmp_path / "run",
        *("--sampling.batch_size", "8", "--sampling.fan_out", "3", "--sampling.hot", "exact"),
        *("--sampling.hot_share", "0.4", "--kernels.projection", "dense", "--training.epochs", "2"),
    )
    assert main(arguments) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["hot_vertices"] > 0
    assert summary["hot_bytes"] > 0
    assert {"hot_means", "hot_s"} <= summary.keys()
    assert summary["compilations_after_warm_up"] == 0


# What is refused

REFUSED = {
    "no mini-batches": ({}, "spares mini-batches some draws; set sampling.batch_size"),
    "attention": ({"model": {"name": "rgat"}, "sampling": {"batch_size": 8}}, "'rgat' aggregates its input by other"),
    "metapaths": ({"model": {"name": "han"}, "sampling": {"batch_size": 8}}, "'han' aggregates its input by other"),
    "dropped inputs": (
        {"model": {"name": "rgcn", "feature_dropout": 0.5}, "sampling": {"batch_size": 8}},
        "model.feature_dropout = 0.5 drops some; set it to 0",
    ),
    "links": (
        {
            "model": {"name": "rgcn"},
            "task": {"name": "link_prediction", "negatives": 4},
            "sampling": {"batch_size": 8},
        },
        "batches of links may leave out",
    ),
    "features in parts": (
        {"sampling": {"batch_size": 8}, "distributed": {"parts": "folder", "read": "parts"}},
        "of which distributed.read = 'parts' has its own alone",
    ),
    "relations first": (
        {"model": {"name": "rgcn"}, "sampling": {"batch_size": 8}, "distributed": {"strategy": "raf"}},
        "does not go with distributed.strategy = 'raf'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_hot_vertices_do_not_cover_is_one_line(case):
    tables, message = REFUSED[case]
    tables = {"model": {"name": "rgcn"}} | tables
    config = override(Config(), tables | {"sampling": tables.get("sampling", {}) | HOT}, where="test")
    with pytest.raises(InputError) as caught:
        check(config, find(config.model.name))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_features_and_shares_that_keep_nothing_are_one_line():
    graph, bare = academic(), dataclasses.replace(academic(), features={})
    with pytest.raises(InputError, match="reads neighbours without any"):
        sampled(bare, hot_recipe())
    with pytest.raises(InputError, match="finds no vertex that would save a draw"):
        sampled(graph, hot_recipe(sampling={"hot_share": 0.001}))
    wide = np.zeros((40, 200), np.float32)
    wide[:, 0] = 1
    with pytest.raises(InputError, match="features of 'paper' are sparse; set kernels"):
        sampled(
            dataclasses.replace(graph, features=dict(graph.features) | {"paper": sparse.csr_array(wide)}), hot_recipe()
        )
