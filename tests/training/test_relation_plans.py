"""Relations first by a plan of the meta-partitioner, and batches that are too large for their buffers."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from jhgnn.distributed.meta.plan import TRAFFIC, MetaPlan, Piece, write_plan
from jhgnn.distributed.meta.tree import tree_of_schema
from jhgnn.errors import InputError
from jhgnn.sampling.capacities import presampled
from jhgnn.sampling.epoch import Cursor
from jhgnn.training import raf
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.models.heterographs import academic
from tests.training.minibatches import recipe

BATCH = 8


def execution(name: str = "rgcn", *, shards: int = 0, plan: str = "", **changes):
    """An execution on this process's two devices."""
    config = recipe(name, **changes)
    distributed = dataclasses.replace(
        config.distributed, strategy="raf", relation_shards=shards, plan=str(plan), devices=2
    )
    return execution_of(pose(academic(), dataclasses.replace(config, distributed=distributed)))


TREE = tree_of_schema(academic().schema, "paper", 2)
BRANCHES = {TREE.nodes[number].name: number for number in TREE.children(0)}
WRITES, COVERS = "author:writes:paper", "subject:covers:paper"


def plan_of(path, *shards, tree=TREE, row_owners=None):
    """Writes a plan with these pieces a shard: names of branches, or pieces themselves."""
    pieces = tuple(
        tuple(each if isinstance(each, Piece) else Piece(BRANCHES[each], 0, BATCH) for each in own) for own in shards
    )
    sent = {kind: np.zeros(len(shards)) for kind in TRAFFIC}
    write_plan(MetaPlan(tree, BATCH, pieces, row_owners or {}, np.zeros((len(shards), 3)), sent, 0.0), path)
    return path


@pytest.mark.parametrize("shards", [((WRITES, "self"), (COVERS,)), ((COVERS,), ("self", WRITES))])
def test_shards_are_those_of_the_plan(shards, tmp_path):
    found = execution(plan=plan_of(tmp_path / "plan.json", *shards)).shards
    assert [shard.names for shard in found] == [tuple(name for name in own if name != "self") for own in shards]
    assert [shard.own_row for shard in found] == ["self" in own for own in shards]


@pytest.mark.parametrize("owner", [0, 1])
def test_the_plan_says_who_owns_learnable_rows(owner, tmp_path):
    """Also a shard that reads none of them."""
    found = execution(plan=plan_of(tmp_path / "plan.json", (WRITES,), (COVERS, "self"), row_owners={"subject": owner}))
    assert set(found.parts.placement.places("subject", np.arange(4))) == {owner}


def pieces_below(name: str) -> tuple[Piece, ...]:
    """A branch cut one level deeper."""
    node = BRANCHES[name]
    return (Piece(node, 0, BATCH, whole=False), *(Piece(child, 0, BATCH) for child in TREE.children(node)))


HALVES = tuple(Piece(BRANCHES[WRITES], low, low + BATCH // 2) for low in (0, BATCH // 2))
DIVIDED = ((HALVES[0], COVERS), (HALVES[1], "self"))


def test_a_plan_may_divide_the_targets_of_a_branch(tmp_path):
    found = execution(plan=plan_of(tmp_path / "plan.json", *DIVIDED))
    first, second = found.shards
    assert [(piece.own.names, piece.span(BATCH)) for piece in first.pieces] == [
        ((WRITES,), slice(0, 4)),
        ((COVERS,), slice(0, 8)),
    ]
    assert [(piece.own.names, piece.own.own_row, piece.span(BATCH)) for piece in second.pieces] == [
        ((), True, slice(0, 8)),
        ((WRITES,), False, slice(4, 8)),
    ]
    assert f"relations of shard 0: {WRITES} for targets 0 to 3 of 8; {COVERS}" in found.describe()
    seeds = {"paper": np.arange(4, dtype=np.int32)}  # at one of two places on `data`
    assert [piece.seeds(seeds)["paper"].tolist() for piece in second.pieces] == [[0, 1, 2, 3], [2, 3]]


REFUSED = {
    "targets of metapaths": (DIVIDED, {"name": "han"}, r"'han' weighs metapaths by all targets of a batch"),
    "targets beside a residual": (DIVIDED, {"residual": True}, r"model\.residual adds rows of all targets"),
    "targets of other batches": (
        DIVIDED,
        {"sampling": {"batch_size": 16}},
        rf"divides the targets of '.*{WRITES}' for batches of 8, and sampling\.batch_size = 16",
    ),
    "a branch of metapaths cut": (
        ((*pieces_below(WRITES), "self"), (COVERS,)),
        {"name": "han"},
        rf"cuts below '{WRITES}', and 'han' aggregates each metapath at once: .* --whole-branches",
    ),
    "a branch cut beside a residual": (
        ((*pieces_below(WRITES), "self"), (COVERS,)),
        {"residual": True},
        rf"cuts below '{WRITES}', and model\.residual adds rows that other shards have: .* --whole-branches",
    ),
    "a branch cut of other layers": (
        ((*pieces_below(WRITES), "self"), (COVERS,)),
        {"layers": 3, "sampling": {"fan_out": "3,2,2"}},
        rf"cuts below '{WRITES}' of 2 layers, and the model has 3",
    ),
    "another number": (
        ((WRITES, "self"), (COVERS,)),
        {"shards": 3},
        r"relation_shards = 3, but distributed\.plan has 2",
    ),
    "a shard without branches": (((WRITES, COVERS, "self"), ()), {}, r"a shard without branches of this recipe"),
    "an own row that is not": (
        ((WRITES, COVERS), ("self",)),
        {"self_loop": False},
        r"a shard without branches of this recipe",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_plans_that_training_does_not_run_are_one_line(case, tmp_path):
    shards, changes, message = REFUSED[case]
    with pytest.raises(InputError) as caught:
        execution(plan=plan_of(tmp_path / "plan.json", *shards), **changes)
    assert re.search(message, str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_plan_of_another_graph_is_refused(tmp_path):
    graph = academic().with_reverse_relations()
    tree = tree_of_schema(graph.schema, "author", 2)
    whole = tuple(Piece(child, 0, BATCH) for child in tree.children(0))
    path = plan_of(tmp_path / "plan.json", whole[:1], whole[1:], tree=tree)
    with pytest.raises(InputError, match=r"is of other branches than this recipe's: .*; need author:writes:paper"):
        execution(plan=path)


def test_without_plan_or_file_it_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"no plan is there"):
        execution(plan=tmp_path / "none.json")


def check_too_large(monkeypatch, **of_execution):
    """With a first bucket that holds next to nothing: every batch overflows, and the parameters are the same."""
    plain = trained(execution(**of_execution))

    def tiny_first(*arguments, **named):
        buckets = presampled(*arguments, **named)
        first = buckets.capacities[0]
        small = tuple(
            dataclasses.replace(counts, items=tuple((name, min(count, first[0].as_dict().get(name, 0) + 1))
                                                    for name, count in counts.items))
            for counts in first
        )  # fmt: skip
        return dataclasses.replace(buckets, capacities=(small, *buckets.capacities))

    monkeypatch.setattr(raf, "presampled", tiny_first)
    again = trained(execution(**of_execution))
    assert (plain[1], again[1]) == (0, 3)
    for expected, found in zip(jax.tree.leaves(plain[0]), jax.tree.leaves(again[0]), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_batch_that_is_too_large_runs_again_and_changes_nothing(monkeypatch):
    check_too_large(monkeypatch, shards=2)


def trained(execution):
    """Parameters after three updates, and how many of them ran in a larger bucket."""
    programs = execution.compile()
    state = programs.place(execution.initial_state(1))
    for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(3), strict=False):
        state, _ = programs.update(state, batch)
    return jax.tree.map(np.asarray, programs.whole(state.params)), programs.overflows
