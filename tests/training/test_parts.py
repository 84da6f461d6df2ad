"""Training on parts: every strategy gives the gradient of one device, in a constant number of collectives."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jhgnn import partition
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.writing import write_partition
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Relation, Schema
from jhgnn.nn.embeddings import tables_of
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose, read_problem
from jhgnn.training.sampled_layout import Variant
from tests.models.heterographs import academic
from tests.runtime.test_processes import finish, start, start_two
from tests.training.agreement import execution, max_difference, trained
from tests.training.minibatches import recipe

ROOT = Path(__file__).parents[2]
CLOSE = 1e-5  # float32 sums in another order, after 20 updates


@pytest.fixture(scope="module")
def alone():
    return trained(execution("rgcn", "data", "", 1), 20)


@pytest.fixture(scope="module")
def owner():
    made = execution("rgcn", "owner", "random", 2)
    return made, made.compile()


@pytest.mark.slow
def test_targets_at_home_train_as_one_device(alone, owner):
    made, programs = owner
    first, last, losses, drawn = trained(made, 20, programs)
    assert max_difference(last.params, alone[1].params) < CLOSE
    assert max_difference(first.opt_state, alone[0].opt_state) < CLOSE
    np.testing.assert_allclose(losses, alone[2], rtol=1e-5)
    assert drawn == alone[3]
    assert max_difference(last.params, first.params) > 1e-3  # it has learnt something
    assert programs.overflows == 0


@pytest.mark.slow
def test_requests_that_do_not_fit_run_again_and_change_nothing(alone, owner):
    made, _ = owner
    layout = made.layout
    variants = (Variant(0, FrozenCounts.of({"author": 1, "subject": 1})), layout.variants[-1])
    made.__dict__["layout"] = dataclasses.replace(layout, variants=variants)
    try:
        tight = made.compile()
        found = trained(made, 5, tight)
    finally:
        made.__dict__["layout"] = layout
    assert tight.overflows == 5
    np.testing.assert_allclose(found[2], alone[2][:5], rtol=1e-5)


def test_tables_and_their_moments_are_cut_and_come_back_whole(owner):
    made, programs = owner
    state = made.initial_state(1)
    placed = programs.place(state)
    table = tables_of(placed.params)["subject"]
    rows = made.parts.placement.rows["subject"]
    assert table.shape[:2] == (2, rows)
    assert {shard.data.shape[0] for shard in table.addressable_shards} == {1}
    jax.tree.map(np.testing.assert_array_equal, programs.whole(placed), jax.tree.map(np.asarray, state))


def counted(programs):
    return collectives(parse(programs.step.call.as_text()))


def test_the_number_of_collectives_is_constant_and_their_bytes_are_those_of_the_capacities(owner):
    made, programs = owner
    found = counted(programs)
    assert {kind: each.count for kind, each in found.items()} == {"all-reduce": 1, "all-to-all": 3}
    store, widths = made.layout.resident.features, {}
    for name, table in {**store.tables, **tables_of(made.placed(made.abstract_params))}.items():
        widths[name] = sum(leaf.shape[-1] for leaf in jax.tree.leaves(table))
    learnt = tables_of(made.abstract_params)
    requests = made.layout.variants[0].requests.items
    words = sum(2 * count * (1 + widths[name] * (2 if name in learnt else 1)) for name, count in requests)
    assert found["all-to-all"].num_bytes == 4 * words


def with_more_relations(graph: HeteroGraph) -> HeteroGraph:
    """Each relation twice again, under other names."""
    edges = dict(graph.edges)
    for relation, own in graph.edges.items():
        for number in range(2):
            edges[Relation(relation.source, f"{relation.name}_{number}", relation.target)] = own
    return dataclasses.replace(graph, schema=Schema(graph.schema.node_types, tuple(edges)), edges=edges)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_more_relations_need_no_more_collectives(name):
    few, many = (
        execution(name, "owner", "random", 2, graph=graph) for graph in (academic(), with_more_relations(academic()))
    )
    assert len(many.spec.relations) == 3 * len(few.spec.relations)
    counts = [
        {kind: each.count for kind, each in collectives(parse(made.lower_update().compile().as_text())).items()}
        for made in (few, many)
    ]
    assert counts[0] == counts[1] == {"all-reduce": 1, "all-to-all": 3}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"distributed": {"strategy": "owner"}}, "give distributed.parts, or distributed.method"),
        ({"distributed": {"method": "random"}}, "set distributed.strategy = 'owner', or sampling.batch_size"),
        ({"distributed": {"read": "parts"}}, "reads the folder of distributed.parts, which is empty"),
        (
            {"distributed": {"read": "parts", "parts": "x"}, "sampling": {"batch_size": 8, "evaluation": "layerwise"}},
            "has no rows of other parts",
        ),
        (
            {"distributed": {"method": "random", "strategy": "owner"}, "training": {"rows": "needed"}},
            "is for a graph on one device",
        ),
        ({"distributed": {"method": "random", "parts": "x"}, "sampling": {"batch_size": 8}}, "not both"),
        (
            {"distributed": {"method": "random"}, "sampling": {"batch_size": 8}, "training": {"optimizer": "lamb"}},
            "norms of whole tables",
        ),
        (
            {"distributed": {"method": "random"}, "sampling": {"batch_size": 8}, "training": {"micro_batches": 2}},
            "leave out training.micro_batches",
        ),
        (
            {"distributed": {"method": "random"}, "sampling": {"batch_size": 8, "features": "host"}},
            "keeps features on the devices",
        ),
    ],
)
def test_settings_that_parts_do_not_go_with_are_one_line(tables, message):
    with pytest.raises(InputError, match=message):
        override(Config(), tables, where="recipe x")


def test_parts_of_another_graph_or_number_are_one_line(tmp_path):
    graph = academic()
    write_partition(graph, random_assignment(graph, 4), tmp_path / "four")
    write_partition(academic(papers=41), random_assignment(academic(papers=41), 2), tmp_path / "other")
    for name, message in (("four", "has 4 parts, but there are 2 devices"), ("other", "41 nodes of type 'paper'")):
        config = recipe()
        distributed = dataclasses.replace(config.distributed, parts=str(tmp_path / name), devices=2)
        with pytest.raises(InputError, match=message):
            execution_of(pose(graph, dataclasses.replace(config, distributed=distributed)))


def test_leapgnn_says_what_it_does_not_take():
    for name, evaluation, message in (
        ("han", "layerwise", "averages over all targets"),
        ("rgcn", "sampled", "layerwise"),
    ):
        config = recipe(name, sampling={"evaluation": evaluation})
        distributed = dataclasses.replace(config.distributed, strategy="leapgnn", method="random", devices=2)
        with pytest.raises(InputError, match=message):
            execution_of(pose(academic(), dataclasses.replace(config, distributed=distributed)))


@pytest.mark.slow
def test_a_process_that_reads_parts_alone_starts_and_trains_as_one_that_reads_all(tmp_path):
    graph = academic()
    write_partition(graph, random_assignment(graph, 2), tmp_path / "two")
    config = recipe("rgcn", sampling={"batch_size": 16, "evaluation": "sampled"})
    made = []
    for read, problem_of in (("data", lambda config: pose(graph, config)), ("parts", read_problem)):
        distributed = dataclasses.replace(
            config.distributed, strategy="owner", parts=str(tmp_path / "two"), devices=2, read=read
        )
        made.append(execution_of(problem_of(dataclasses.replace(config, distributed=distributed))))
    jax.tree.map(np.testing.assert_array_equal, *(each.layout.resident for each in made))
    states, finals = [], []
    for each in made:
        programs = each.compile()
        state = programs.initial_state(3)
        states.append(programs.whole(state))
        for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(3), strict=False):
            state, _ = programs.update(state, batch)
        finals.append((programs.whole(state), programs.evaluate(state.params, ("val",), 0)))
    expected = jax.tree.map(np.asarray, made[0].initial_state(3))
    for state in states:
        jax.tree.map(np.testing.assert_array_equal, state, expected)
    jax.tree.map(np.testing.assert_array_equal, *finals)


def agreement(*arguments: str) -> list[dict]:
    environment = dict(os.environ) | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    command = [sys.executable, "-m", "tests.training.agreement", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


MODELS = ["rgcn", pytest.param("rgat", marks=pytest.mark.long), "han"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_gradients_on_2_4_and_8_devices_are_those_of_one_in_float64(name):
    strategies = "data,owner" if name == "han" else "data,owner,leapgnn"
    for found in agreement("64", name, strategies, "random", "2,4,8"):
        assert found["dtype"] == "float64"
        assert found["gradient"] < 1e-12, found
        assert found["same_graphs"], found


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("rgcn", marks=pytest.mark.long), *MODELS[1:]])
def test_parameters_after_20_steps_are_those_of_one_device(name):
    strategies = "data,owner" if name == "han" else "data,owner,leapgnn"
    for found in agreement("32", name, strategies, "random", "2,4,8"):
        assert found["params"] < CLOSE, found


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


EPOCHS = ["--training.optimizer=sgd", "--training.epochs=2"]


def one_process_and_parts(folder: Path) -> list[str]:
    """Trains as one process in `folder / "one"`, and writes `folder / "parts"` for two, whose options come back."""
    finish(start(folder / "one", *EPOCHS, "--distributed.devices=1"))
    parts = folder / "parts"
    assert partition.main(["--data.preset=acm", "--data.scale=0.1", "--parts=2", "--out", str(parts)]) == 0
    return [f"--distributed.parts={parts}", "--distributed.strategy=owner", "--distributed.devices=1"]


@pytest.mark.slow
@pytest.mark.usefixtures("compile_cache")
def test_two_processes_train_on_parts_as_one_and_one_goes_on_from_them(tmp_path):
    both, epochs, parts = one_process_and_parts(tmp_path), EPOCHS, tmp_path / "parts"
    finish(*start_two(tmp_path / "two", *epochs, *both))
    for own, expected in zip(metrics(tmp_path / "two"), metrics(tmp_path / "one"), strict=True):
        assert own["val_loss"] == pytest.approx(expected["val_loss"], abs=1e-5)
        assert own["step_loss"] == pytest.approx(expected["step_loss"], abs=1e-5)
    # Each of two processes sees the topology and its own part, and no data.
    alone = [tmp_path / f"alone{number}" for number in range(2)]
    for number, folder in enumerate(alone):
        shutil.copytree(parts, folder)
        shutil.rmtree(folder / f"part{1 - number}")
    own = [[f"--distributed.parts={folder}", "--distributed.read=parts"] for folder in alone]
    finish(*start_two(tmp_path / "apart", *epochs, *both, "--sampling.evaluation=sampled", each=own))
    for own_line, expected in zip(metrics(tmp_path / "apart"), metrics(tmp_path / "one"), strict=True):
        assert own_line["step_loss"] == pytest.approx(expected["step_loss"], abs=1e-5)
    without = ["--distributed.parts=", "--distributed.strategy=data"]
    finish(start(tmp_path / "two", *epochs[:1], "--training.epochs=3", "--distributed.devices=1", "--resume", *without))
    finish(start(tmp_path / "one", *epochs[:1], "--training.epochs=3", "--distributed.devices=1", "--resume"))
    assert metrics(tmp_path / "two")[-1]["val_loss"] == pytest.approx(
        metrics(tmp_path / "one")[-1]["val_loss"], abs=1e-5
    )
