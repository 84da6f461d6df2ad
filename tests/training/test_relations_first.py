"""Relations first: the gradients and the steps of one device, whatever the model, its layers and the mesh."""

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jhgnn.distributed.meta.tree import tree_of_schema
from jhgnn.errors import InputError
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from jhgnn.stores.exchange import Pairwise
from jhgnn.training.joined_tables import JOINED
from jhgnn.training.mesh import DeviceMesh
from jhgnn.training.packing import Packing, largest
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.raf import RelPrograms, place_to_compile
from tests.models.heterographs import academic
from tests.training.minibatches import recipe
from tests.training.rel_equality import mag_like
from tests.training.rel_processes import owned_by_a_shard_that_reads_none

ROOT = Path(__file__).parents[2]
HAN = {"name": "han", "layers": 1}

GRADIENTS = [
    {"graph": "mag", "model": {"name": "rgcn", "layers": 2}, "data": 1, "rel": 2},
    {"graph": "academic", "model": HAN, "data": 2, "rel": 2},
    {"graph": "aifb", "model": {"name": "rgat", "layers": 1, "residual": True}, "data": 1, "rel": 3},
]
SLOW_GRADIENTS = [
    {"graph": "mag", "model": {"name": "rgcn", "layers": 3, "residual": True}, "data": 2, "rel": 3},
    {"graph": "mag", "model": {"name": "rgcn", "layers": 1, "layer_norm": True}, "data": 2, "rel": 4},
    {"graph": "mag", "model": {"name": "rgat", "layers": 2, "residual": True}, "data": 1, "rel": 4},
    {"graph": "mag", "model": {"name": "rgat", "layers": 3}, "data": 2, "rel": 2},
    {"graph": "aifb", "model": {"name": "rgcn", "layers": 2, "bases": 2}, "data": 2, "rel": 4},
    {"graph": "aifb", "model": {"name": "rgat", "layers": 2}, "data": 1, "rel": 3},
    {"graph": "acm", "model": {"name": "rgcn", "layers": 2, "self_loop": False}, "data": 2, "rel": 2},
    {"graph": "acm", "model": {"name": "rgat", "layers": 1}, "data": 1, "rel": 2},
    {"graph": "academic", "model": HAN | {"layers": 2, "residual": True, "layer_norm": True}, "data": 2, "rel": 2},
    {"graph": "acm", "model": HAN | {"layers": 3, "projection_bias": True}, "data": 1, "rel": 2},
    {"graph": "mag", "model": {"name": "rgcn", "layers": 2}, "data": 1, "rel": 2, "training": {"remat": "full"}},
]
DIVIDED = [
    {"graph": "mag", "model": {"name": "rgcn", "layers": 2}, "data": 2, "rel": 2, "plan": "divided"},
    {"graph": "academic", "model": {"name": "rgat", "layers": 2}, "data": 1, "rel": 2, "plan": "divided"},
    {
        "graph": "mag",
        "model": {"name": "rgcn", "layers": 1, "self_loop": False},
        "data": 1,
        "rel": 5,
        "plan": "divided",
    },
]
"""By plans that divide the targets of each branch among two shards, the last of them for more shards than branches."""
OWN_ROW_ALONE = [
    {"graph": "mag", "model": {"name": "rgcn", "layers": 2}, "data": 1, "rel": 2, "plan": "own row alone"},
    {"graph": "academic", "model": {"name": "rgat", "layers": 2}, "data": 2, "rel": 2, "plan": "own row alone"},
]
SGD = {"optimizer": "sgd", "learning_rate": 0.05}  # Adam turns the rounding of gradients near 0 into steps
STEPS = [
    {"graph": "mag", "model": {"name": "rgcn", "layers": 2}, "data": 2, "rel": 2, "steps": 20, "training": SGD},
    {"graph": "acm", "model": HAN, "data": 1, "rel": 2, "steps": 20, "training": SGD},
    pytest.param(
        {"graph": "aifb", "model": {"name": "rgat", "layers": 2}, "data": 1, "rel": 3, "steps": 20, "training": SGD},
        marks=pytest.mark.long,
    ),
]


def run_cases(cases: list[dict], *, x64: bool) -> list[dict]:
    known = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1" if x64 else "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.rel_equality", json.dumps(cases)],
        cwd=ROOT, env=os.environ | known, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_gradients(cases: list[dict]) -> None:
    for case, found in zip(cases, run_cases(cases, x64=True), strict=True):
        assert found["weights"] <= 1e-12, (case, found)
        assert found["tables"] <= 1e-12, (case, found)
        assert found["loss"] <= 1e-12, (case, found)
        assert found["count"] == 0, (case, found)
        assert found["nonzero"] > 0.5, (case, found)
        assert len(found["shards"]) == case["rel"]


@pytest.mark.slow
def test_gradients_are_those_of_one_device_in_float64():
    check_gradients(GRADIENTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[] if first == 6 else [pytest.mark.long]) for first in range(0, len(SLOW_GRADIENTS), 3)],
)
def test_gradients_of_more_layers_and_meshes(first):
    check_gradients(SLOW_GRADIENTS[first : first + 3])


@pytest.mark.slow
@pytest.mark.long
def test_gradients_of_plans_that_divide_targets():
    check_gradients(DIVIDED)


@pytest.mark.slow
@pytest.mark.long
def test_gradients_of_a_shard_with_the_own_row_alone():
    check_gradients(OWN_ROW_ALONE)


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPS, ids=lambda case: f"{case['model']['name']}-{case['graph']}")
def test_twenty_steps_are_those_of_one_device(case):
    (found,) = run_cases([case], x64=False)
    assert found["steps"] == 20
    assert found["losses"] <= 1e-5, found
    assert found["params"] <= 1e-5, found


def first(graph=None, *, shards: int = 2, devices: int = 2, programs: str = "auto", **changes):
    """An execution on this process's two devices."""
    config = recipe("rgcn", **changes)
    distributed = dataclasses.replace(
        config.distributed, strategy="raf", relation_shards=shards, devices=devices, programs=programs
    )
    return execution_of(pose(graph or academic(), dataclasses.replace(config, distributed=distributed)))


def exchanged(execution):
    return collectives(parse(execution.lower_update().compile().as_text()))


def met_bytes(execution) -> int:
    """Of the sum over `rel`, and of that over all devices."""
    batch, hidden = execution.config.sampling.batch_size, execution.config.model.hidden
    dense = with_tables(execution.abstract_params, {})
    # Beside gradients loss, count, overflows, two votes, and the squares of the learnable rows' gradients.
    return 4 * (batch * hidden + sum(leaf.size for leaf in jax.tree.leaves(dense)) + 6)


@pytest.mark.parametrize("fan_out", ["2,2", pytest.param("8,8", marks=pytest.mark.slow)])
def test_one_meeting_a_step_of_batch_times_hidden_values(fan_out):
    """However many neighbours; the only type with learnable rows is read by one shard, which nobody asks for them."""
    execution = first(sampling={"fan_out": fan_out})
    (covers,) = (number for number, shard in enumerate(execution.shards) if "subject" in shard.reads)
    placement = execution.parts.placement
    assert set(placement.places("subject", np.arange(4))) == {covers}
    found = exchanged(execution)
    assert set(found) == {"all-reduce"}
    assert found["all-reduce"].count == 2
    assert found["all-reduce"].num_bytes == met_bytes(execution)


def test_learnable_rows_of_another_shard_come_and_their_gradients_go_by_pairs():
    execution = first(mag_like())
    placement = execution.parts.placement
    owners = {name: set(placement.places(name, np.arange(len(homes)))) for name, homes in placement.homes.items()}
    assert all(len(own) == 1 for own in owners.values())
    read = [set(shard.reads) & set(owners) for shard in execution.shards]
    assert read[0] & read[1]
    found, exchange = exchanged(execution), Pairwise(execution.rel_source.requests[0], execution.mesh.axes)
    assert found["all-reduce"].count == 2
    assert found["all-reduce"].num_bytes == met_bytes(execution)
    assert set(found) == {"all-reduce", "collective-permute"}
    # Two devices have one distance; requests, rows and gradients, each with a word that keeps them in order.
    ((count, pairs),) = exchange.distances
    assert found["collective-permute"].count == 3
    assert found["collective-permute"].num_bytes == 4 * (count * (1 + 2 * execution.config.model.hidden) + 3)
    for shard, other in pairs:
        assert any(owners[name] == {other} for name in read[shard])


def test_a_device_has_room_for_the_rows_that_the_fullest_one_owns():
    execution = first(mag_like())
    sizes = {"author": 50, "field": 12, "institution": 6}
    table = tables_of(execution.placed(execution.abstract_params))[JOINED]
    homes = np.concatenate(list(execution.parts.placement.homes.values()))
    owned = np.bincount(homes // table.shape[1], minlength=2)
    assert owned.sum() == sum(sizes.values())
    assert table.shape == (2, owned.max(), execution.config.model.hidden)


def test_a_state_that_was_cut_is_whole_again():
    execution = first(mag_like())
    programs, state = RelPrograms(execution, [], []), jax.tree.map(np.asarray, execution.initial_state(1))
    for placed in (programs.place(state), programs.initial_state(1)):
        jax.tree.map(np.testing.assert_array_equal, programs.whole(placed), state)


def test_a_shard_draws_its_own_relations_and_all_below_them():
    execution = first()
    owned = [name for shard in execution.shards for name in shard.names]
    assert sorted(owned) == ["author:writes:paper", "subject:covers:paper"]
    assert sum(shard.own_row for shard in execution.shards) == 1
    for shard in execution.shards:
        (piece,) = shard.pieces
        drawn = [{draw.name for draw in piece.plan.draws_at(hop)} for hop in range(2)]
        assert drawn[0] == set(shard.names)
        sources = {name.split(":")[0] for name in shard.names} | ({"paper"} if shard.own_row else set())
        assert {name.split(":")[2] for name in drawn[1]} == sources


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": 3, "devices": 0}, "relation_shards = 3, but only 2 branches lead to 'paper'"),
        ({"shards": 0}, "set it to 2 or more, or name a plan"),
        ({"training": {"micro_batches": 2}}, "training.micro_batches does not go with"),
        ({"sampling": {"side": "device"}}, "samples on the host; leave sampling.side out"),
        ({"training": {"optimizer": "lamb"}}, "lamb' scales updates by norms of whole tables, .* use 'adamw'"),
    ],
)
def test_what_is_not_covered_is_one_line(changes, message):
    with pytest.raises(InputError, match=message):
        first(**changes)


@pytest.mark.parametrize(("name", "value"), [("relation_shards", 2), ("programs", "own")])
def test_settings_of_shards_need_the_strategy(name, value):
    config = recipe("rgcn")
    config = dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, **{name: value}))
    with pytest.raises(InputError, match=rf"{name} = {value!r} is for distributed\.strategy = 'raf'"):
        execution_of(pose(academic(), config))


def test_programs_of_all_shards_have_the_same_collectives_in_one_order(tmp_path):
    """Also that of a shard whose branches read no learnable rows, and which has them all."""
    plan = tmp_path / "plan.json"
    owned_by_a_shard_that_reads_none(plan, tree_of_schema(academic().schema, "paper", 2), 8, 2)
    config = recipe("rgcn")
    distributed = dataclasses.replace(config.distributed, strategy="raf", plan=str(plan), devices=2)
    found, sizes = [], []
    for only in range(2):
        execution = execution_of(pose(academic(), dataclasses.replace(config, distributed=distributed)))
        execution.only = only
        module = parse(execution.lower_update().compile().as_text())
        found.append(
            [
                (each.opcode, each.num_bytes)
                for computation in module.executed.values()
                for each in computation.instructions.values()
                if each.opcode in ("all-reduce", "collective-permute")
            ]
        )
        sizes.append(execution.rel_source.sizes(0))
        assert "conditional" not in {
            each.opcode for own in module.executed.values() for each in own.instructions.values()
        }
    assert [opcode for opcode, _ in found[0]] == [
        *["collective-permute"] * 2,
        "all-reduce",
        "collective-permute",
        "all-reduce",
    ]
    assert found[0] == found[1]
    assert sizes[0] != sizes[1]


def test_a_program_for_each_process_needs_several_with_a_shard_each(monkeypatch):
    with pytest.raises(InputError, match="programs = 'own' compiles a program for each process: there is one"):
        first(programs="own")
    mesh = DeviceMesh(2, relation_shards=2)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(InputError, match=r"each has 2 shards; give each one device with distributed\.devices = 1"):
        place_to_compile("own", mesh)
    assert place_to_compile("auto", mesh) is None
    monkeypatch.setattr(mesh, "local_devices", ((0, 1),))
    assert place_to_compile("auto", mesh) == place_to_compile("own", mesh) == 1
    assert place_to_compile("one", mesh) is None
    monkeypatch.setattr(DeviceMesh, "platform", "gpu")
    with pytest.raises(InputError, match="it has run on CPUs alone, and these are on 'gpu'"):
        place_to_compile("own", mesh)


def test_packing_gives_back_what_was_packed():
    rng = np.random.default_rng(0)
    trees = [
        [rng.normal(size=(3, 2)).astype(np.float32), np.arange(5, dtype=np.int32), np.array(True)],
        [np.zeros((0, 4), np.float32), np.arange(9, dtype=np.int32).reshape(3, 3)],
    ]
    packings = [Packing.of(each) for each in trees]
    sizes = largest(packings)
    assert sizes == {"bool": 1, "float32": 6, "int32": 9}
    for leaves, packing in zip(trees, packings, strict=True):
        traced = packing.unpack(packing.pack(leaves, sizes))
        buffers = {name: np.zeros(size, name) for name, size in sizes.items()}
        packing.write(leaves, buffers)
        for found in (traced, packing.unpack(buffers)):
            for a, b in zip(found, leaves, strict=True):
                np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="the packing says float32"):
        packings[0].write([trees[0][0][:2], *trees[0][1:]], buffers)


def small_run(folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "jhgnn.train", "--config=configs/rgcn_mag.toml", "--data.format=synthetic",
        "--data.scale=0.002", "--sampling.batch_size=128", "--sampling.fan_out=3,2", "--distributed.strategy=raf",
        "--distributed.relation_shards=2", "--training.checkpoint_every_s=0", f"--run.dir={folder}", *more,
    ]  # fmt: skip


def train(folder: Path, *more: str, devices: int = 2) -> None:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    known = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(small_run(folder, *more), cwd=ROOT, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def figures(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def scores(folder: Path) -> dict[str, float]:
    named = ("test_loss", "test_micro_f1", "val_loss", "val_micro_f1")
    return {name: figures(folder)[name] for name in named}


@pytest.mark.slow
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path):
    train(tmp_path / "whole", "--training.epochs=2")
    train(tmp_path / "cut", "--training.epochs=2", "--sampling.max_steps=5")
    train(tmp_path / "cut", "--training.epochs=2", "--sampling.max_steps=0", "--resume")
    assert figures(tmp_path / "whole")["strategy"] == "raf"
    assert scores(tmp_path / "cut") == scores(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.long
def test_a_run_goes_on_with_other_shards_and_on_one_device(tmp_path):
    """Its learnable rows and their moments are found by id; sums come in another order."""
    train(tmp_path / "whole", "--training.epochs=2")
    train(tmp_path / "cut", "--training.epochs=2", "--sampling.max_steps=5")
    alone = "--distributed.strategy=data", "--distributed.relation_shards=0"
    for name, devices, ways in (("three", 3, ("--distributed.relation_shards=3",)), ("alone", 1, alone)):
        shutil.copytree(tmp_path / "cut", tmp_path / name)
        train(
            tmp_path / name, "--training.epochs=2", "--sampling.max_steps=0", "--resume", *ways, devices=devices,
        )  # fmt: skip
        assert figures(tmp_path / name).get("strategy", "data") == ("raf" if name == "three" else "data")
        assert scores(tmp_path / name) == pytest.approx(scores(tmp_path / "whole"), rel=1e-4)


@pytest.mark.slow
def test_two_processes_each_with_its_own_relations_train_as_one(tmp_path):
    train(tmp_path / "one", "--training.epochs=1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=1"
    known = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    shared = [f"--distributed.coordinator=127.0.0.1:{port}", "--distributed.num_processes=2", "--training.epochs=1"]
    pair = [
        subprocess.Popen(
            small_run(tmp_path / "two", *shared, f"--distributed.process_id={number}"),
            cwd=ROOT, env=known, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )
        for number in range(2)
    ]  # fmt: skip
    errors = [each.communicate(timeout=600)[1] for each in pair]
    assert [each.returncode for each in pair] == [0, 0], errors[0][-3000:]
    assert figures(tmp_path / "two")["processes"] == 2
    assert scores(tmp_path / "two") == pytest.approx(scores(tmp_path / "one"), rel=1e-5)
