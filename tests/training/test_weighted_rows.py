"""Sampled attention that weights senders' rows before they are projected: the same steps, where it is chosen."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from scipy import sparse

from jhgnn import native
from jhgnn.config import Config
from jhgnn.data import load
from jhgnn.errors import InputError
from jhgnn.ops.registry import AS_ROWS
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.sampled import Sampled
from tests.models.heterographs import academic, with_edge_features
from tests.training.minibatches import compiled, recipe, sampled, steps

pytestmark = [
    pytest.mark.usefixtures("compile_cache"),
    pytest.mark.skipif(not native.available(), reason="needs the native kernels"),
]

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "rgat": ("rgat", {}),
    "rgat, self-loop, residual": ("rgat", {"self_loop": True, "residual": True}),
    "rgat, 3 layers": ("rgat", {"layers": 3}),
    "rgat, one head": ("rgat", {"heads": 1}),
    "han": ("han", {}),
    "han, 2 layers": ("han", {"layers": 2, "residual": True, "layer_norm": True}),
}

QUICK = ("rgat, self-loop, residual", "han")


def config_of(model: str, attention: str, **changes: dict[str, Any]) -> Config:
    name, settings = MODELS[model]
    hops = {"sampling": {"fan_out": "3"}} if settings.get("layers", 2) != 2 or name == "han" else {}
    given = {"sampling": hops.get("sampling", {}) | changes.pop("sampling", {}), **changes}
    config = recipe(name, **given, **settings)
    return dataclasses.replace(
        config, kernels=dataclasses.replace(config.kernels, attention=attention, projection="dense")
    )


def first_and_last(model: str, attention: str, **changes: Any) -> tuple[Any, Any, list[float]]:
    """Momentum of plain descent after one step, which is the gradient; parameters after five, and their losses."""
    training = {"optimizer": "sgd"} | changes.pop("training", {})
    programs = compiled(academic(), config_of(model, attention, training=training, **changes))
    assert {each.implementation for each in programs.execution.choices if "attention" in each.op} == {attention}
    one, _ = steps(programs, 1)
    five, reports = steps(programs, 5)
    return one.opt_state, five.params, [float(np.asarray(each.loss).ravel()[0]) for each in reports]


def assert_near(ours: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, other)


@pytest.mark.parametrize(
    "model", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_steps_with_dropout_are_those_of_projected_rows(model: str) -> None:
    assert_near(first_and_last(model, AS_ROWS), first_and_last(model, "native"))


@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param("rgat", marks=pytest.mark.long), "han"])
def test_so_are_those_of_a_sampling_device(model: str) -> None:
    side = {"sampling": {"side": "device"}}
    assert_near(first_and_last(model, AS_ROWS, **side), first_and_last(model, "fanout", **side))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "remat"),
    [
        ("rgat", "full"),
        ("rgat", "dots"),
        pytest.param("rgat", "stage", marks=pytest.mark.long),
        ("han, 2 layers", "stage"),
        pytest.param("han, 2 layers", "na", marks=pytest.mark.long),
    ],
)
def test_recomputation_changes_nothing(model: str, remat: str) -> None:
    kept = first_and_last(model, AS_ROWS)
    recomputed = first_and_last(model, AS_ROWS, training={"remat": remat})
    np.testing.assert_allclose(recomputed[2], kept[2], rtol=1e-6)
    assert_near(recomputed, kept)


@pytest.mark.slow
def test_two_devices_train_as_one() -> None:
    found = []
    for devices in (1, 2):
        made = sampled(academic(), config_of("rgat", AS_ROWS, training={"optimizer": "sgd"}), devices)
        programs = made.compile()
        state = programs.place(made.initial_state(1))
        for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(2), strict=False):
            state, _ = programs.update(state, batch)
        found.append(jax.tree.map(np.asarray, programs.whole(state).params))
    assert_near(*found)


def test_tables_are_not_compressed_for_it() -> None:
    rows, projected = (sampled(academic(), config_of("rgat", name)) for name in (AS_ROWS, "native"))
    assert rows.sampling.compressed == frozenset()
    assert rows.abstract_shard().blocks.hops[0]["author:writes:paper"].edges is None
    assert projected.sampling.compressed == {str(each) for each in academic().schema.relations}


def test_it_is_chosen_where_senders_are_about_as_many_as_edges() -> None:
    graph = load("synthetic", "mag", scale=0.05, progress=False).with_reverse_relations()
    config = recipe("rgat", sampling={"batch_size": 64, "fan_out": "5,3"}, hidden=32, heads=4)
    made = execution_of(pose(graph, config))
    assert isinstance(made, Sampled)
    chosen = {each.subject: each for each in made.choices if each.op == "neighbor_attention"}
    assert chosen["author:writes:paper"].implementation == AS_ROWS
    assert "weighted first" in chosen["author:writes:paper"].reason
    assert chosen["institution:rev_affiliated_with:author"].implementation == "native"  # few, whom many authors share
    assert made.sampling.compressed == {name for name, each in chosen.items() if each.implementation == "native"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (recipe("rgat"), "along 'paper:written_by:author': features of 'paper' are sparse"),
        (recipe("rgat", heads=32, hidden=32), "the kernel takes at most 16 heads, and model.heads = 32"),
        (recipe("rgat", dtype="bfloat16"), "computes in float32 and not in model.dtype = 'bfloat16'"),
        (recipe("han", shared_projection=True), "'han' as configured needs projected rows"),
        (recipe("han", projection_bias=True), "'han' as configured needs projected rows"),
        (recipe("gat"), "'gat' as configured needs projected rows"),
        (recipe("rgat", edge_features=True), "features of edges add to logits of their own"),
    ],
    ids=["sparse", "heads", "dtype", "shared", "bias", "erased", "edge features"],
)
def test_where_it_cannot_be_is_said_and_auto_leaves_it(config: Config, message: str) -> None:
    graph = with_edge_features(academic()) if config.model.edge_features else academic()
    if "sparse" in message:
        few_words = sparse.random_array((40, 200), density=0.02, rng=0, dtype=np.float32)
        graph = dataclasses.replace(graph, features={**graph.features, "paper": few_words.tocsr()})
    named = dataclasses.replace(config.kernels, attention=AS_ROWS)
    with pytest.raises(InputError, match=r"kernels.attention = 'rows' along") as caught:
        sampled(graph, dataclasses.replace(config, kernels=named))
    assert message in str(caught.value)
    auto = dataclasses.replace(config, kernels=dataclasses.replace(named, attention="auto"))
    refused = str(caught.value).split("'")[3]
    assert {each.implementation for each in sampled(graph, auto).choices if each.subject == refused} == {"native"}
