"""Relations first by plans that cut branches deeper: the gradients and the steps of one device, and what is sent."""

import dataclasses
import itertools

import numpy as np
import pytest

from jhgnn.distributed.meta.plan import Piece
from jhgnn.distributed.meta.tree import tree_of_schema
from jhgnn.errors import InputError
from jhgnn.profiling.hlo import parse
from jhgnn.training import raf
from jhgnn.training.frontier_meeting import Frontier, frontier_meetings
from tests.models.heterographs import academic
from tests.training.rel_equality import PLANS
from tests.training.test_relation_plans import (
    BATCH,
    BRANCHES,
    COVERS,
    TREE,
    WRITES,
    check_too_large,
    execution,
    pieces_below,
    plan_of,
)
from tests.training.test_relations_first import SGD, check_gradients, exchanged, met_bytes, run_cases

CUT = (tuple(Piece(node, 0, BATCH) for node in (BRANCHES["self"], *TREE.children(BRANCHES[WRITES]))),
       (COVERS, Piece(BRANCHES[WRITES], 0, BATCH, whole=False)))  # fmt: skip
"""The second shard computes a branch of which the first one computes all that is below it."""

COLLECTIVES = ("all-reduce", "collective-permute")
QUICK = [{"graph": "academic", "model": {"name": "rgcn", "layers": 2}, "data": 1, "rel": 2, "plan": "one cut"}]
GRADIENTS = [
    {"graph": "mag", "model": {"name": "rgcn", "layers": 2, "layer_norm": True}, "data": 2, "rel": 3, "plan": "cut"},
    {"graph": "academic", "model": {"name": "rgat", "layers": 2}, "data": 1, "rel": 4, "plan": "cut"},
    {"graph": "academic", "model": {"name": "rgat", "layers": 2}, "data": 2, "rel": 2, "plan": "cut and divided"},
    {
        "graph": "acm",
        "model": {"name": "rgcn", "layers": 2, "self_loop": False},
        "data": 1,
        "rel": 4,
        "plan": "cut and divided",
    },
    {
        "graph": "mag",
        "model": {"name": "rgcn", "layers": 2},
        "data": 1,
        "rel": 2,
        "plan": "one cut",
        "training": {"remat": "full"},
    },
    {"graph": "academic", "model": {"name": "rgcn", "layers": 3}, "data": 2, "rel": 3, "plan": "cut twice and divided"},
    {"graph": "acm", "model": {"name": "rgat", "layers": 3}, "data": 1, "rel": 4, "plan": "cut twice"},
]
STEPS = [
    {"graph": "mag", "model": {"name": "rgcn", "layers": 2}, "data": 2, "rel": 2, "plan": "cut"},
    {"graph": "academic", "model": {"name": "rgat", "layers": 2}, "data": 1, "rel": 3, "plan": "cut"},
]


@pytest.mark.slow
def test_gradients_are_those_of_one_device_in_float64():
    check_gradients(QUICK)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "case", GRADIENTS, ids=lambda case: f"{case['model']['name']}-{case['graph']}-{case['plan'].replace(' ', '-')}"
)
def test_gradients_of_more_cuts_models_and_meshes(case):
    check_gradients([case])


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPS, ids=lambda case: case["model"]["name"])
def test_twenty_steps_are_those_of_one_device(case):
    (found,) = run_cases([case | {"steps": 20, "training": SGD}], x64=False)
    assert found["steps"] == 20
    assert found["losses"] <= 1e-5, found
    assert found["params"] <= 1e-5, found


def test_a_shard_draws_the_way_to_its_frontier_and_all_below_its_branches(tmp_path):
    first, second = execution(plan=plan_of(tmp_path / "plan.json", *CUT)).shards
    frontier = Frontier((WRITES,), 0, BATCH)
    assert first.names == (f"{WRITES} / paper:written_by:author",)
    assert second.names == (COVERS, WRITES)
    drawn = [
        [{draw.name for draw in piece.plan.draws_at(hop)} for hop in range(2)]
        for piece in (*first.pieces, *second.pieces)
    ]
    assert [(piece.into, piece.given) for piece in (*first.pieces, *second.pieces)] == [
        (None, None),
        (frontier, None),
        (None, None),
        (None, frontier),
    ]
    assert drawn[0] == [set(), {WRITES, COVERS}]  # the own row of the targets
    assert drawn[1] == [{WRITES}, {"paper:written_by:author"}]
    assert drawn[3] == [{WRITES}, set()]
    assert first.pieces[1].own.reads == ("author", "paper")
    assert second.pieces[1].own.reads == ()


@pytest.mark.parametrize("model", ["rgcn", "rgat"])
def test_all_pieces_have_the_vertices_of_a_frontier_in_the_same_slots(model, tmp_path):
    plan = tmp_path / "plan.json"
    PLANS["cut and divided"](plan, TREE, BATCH, 2)
    made = execution(model, plan=plan)
    seeds = made.seeds_of(np.arange(BATCH, dtype=np.int32), 0, 3)
    found: dict[Frontier, list[np.ndarray]] = {}
    for shard, samplers, capacities in zip(
        made.shards, made._branch_samplers, made.rel_source.capacities[0], strict=True
    ):
        for piece, sampler, own in zip(shard.pieces, samplers, capacities, strict=True):
            blocks, _ = sampler.sample(piece.seeds(seeds), 0, 3, raf.Buckets((own,)))
            if piece.into:
                found.setdefault(piece.into, []).append(blocks.frontier(piece.own.hop, piece.own.node_type))
            if piece.given:
                found.setdefault(piece.given, []).append(blocks.frontier(piece.own.hop + 1, piece.own.given))
    assert len(found) > 3
    for several in found.values():
        assert len(several) > 1
        assert (several[0] >= 0).any()
        for one, other in itertools.pairwise(several):
            np.testing.assert_array_equal(one, other)


def test_a_cut_is_one_more_meeting_each_way(tmp_path):
    """Of the frontier alone, between the two shards concerned; the meeting of the targets is as without a cut."""
    made = execution(plan=plan_of(tmp_path / "plan.json", *CUT, row_owners={"subject": 1}))
    (meeting,) = made.frontier_meetings()
    ((frontier, slots),) = meeting.rows.items()
    assert frontier.way == (WRITES,)
    assert meeting.exchange.distances == ((slots, ((0, 1),)),)
    found = exchanged(made)
    assert found["all-reduce"].count == 2
    assert found["all-reduce"].num_bytes == met_bytes(made)
    # Beside them the learnable rows of the other shard's subjects: requests, rows and gradients.
    requests = made.rel_source.requests[0]
    asked = max(requests[0][1], requests[1][0])
    assert found["collective-permute"].count == 2 + 3 * (asked > 0)
    hidden = made.config.model.hidden
    assert found["collective-permute"].num_bytes == 4 * (
        2 * (slots * hidden + 1) + asked * (1 + 2 * hidden) + 3 * (asked > 0)
    )


@pytest.mark.slow
def test_programs_of_all_shards_have_the_same_collectives_in_one_order(tmp_path):
    """Rows come, then sums; the targets meet; gradients of sums go back, then those of rows; weights' are summed."""
    plan, found = plan_of(tmp_path / "plan.json", *CUT, row_owners={"subject": 1}), []
    for only in range(2):
        made = execution(plan=plan)
        made.only = only
        module = parse(made.lower_update().compile().as_text())
        instructions = (each for own in module.executed.values() for each in own.instructions.values())
        found.append([(each.opcode, each.num_bytes) for each in instructions if each.opcode in COLLECTIVES])
    sent, met = "collective-permute", "all-reduce"
    assert [opcode for opcode, _ in found[0]] == [sent, sent, sent, met, sent, sent, met]
    assert found[0] == found[1]


def test_where_sums_lie_between_three_shards():
    """Two frontiers of the first shard, one of the last; the second shard makes sums of all of them."""
    one, two, three = (Frontier((name,), 0, 8) for name in ("a", "b", "c"))
    rows = {one: 3, two: 4, three: 5}
    made = [[(one, 3)], [(one, 3), (two, 4), (three, 5), (two, 4)], [(three, 5)]]
    (meeting,) = frontier_meetings(made, [[(one, 3), (two, 4)], [], [(three, 5)]])
    assert meeting.exchange.counts == ((0, 0, 0), (7, 0, 5), (0, 0, 0))
    assert meeting.size == 5 + 5 + 7  # what stays of the last shard's, then distance 1, then distance 2
    sums = {frontier: np.full((count, 2), count, np.float32) for frontier, count in rows.items()}
    buffers = [
        meeting.pack(shard, {each: sums[each] for each, _ in made[shard]}, np.zeros((0, 2), np.float32))
        for shard in range(3)
    ]
    arrived = [np.zeros((17, 2), np.float32) for _ in range(3)]
    for shard in range(3):
        arrived[shard][:5] = buffers[shard][:5]
        arrived[(shard + 1) % 3][5:10] = buffers[shard][5:10]
        arrived[(shard + 2) % 3][10:] = buffers[shard][10:]
    read = [meeting.unpack(shard, arrived[shard]) for shard in range(3)]
    assert [set(own) for own in read] == [{one, two}, set(), {three}]
    np.testing.assert_array_equal(read[0][one], 2 * sums[one])
    np.testing.assert_array_equal(read[0][two], sums[two])
    np.testing.assert_array_equal(read[2][three], 2 * sums[three])
    with pytest.raises(ValueError, match="has 4 slots in one piece and 3 in another one"):
        frontier_meetings([[(one, 3)], []], [[], [(one, 4)]])


def test_a_run_says_who_computes_what_of_a_cut_branch(tmp_path):
    lines = execution(plan=plan_of(tmp_path / "plan.json", *CUT)).describe()
    assert f"relations of shard 0: the own row; {WRITES} / paper:written_by:author, the own row of {WRITES}" in lines
    assert f"relations of shard 1: {COVERS}; {WRITES}, without what is below" in lines


def test_a_cut_plan_of_a_graph_with_other_relations_is_refused(tmp_path):
    """The relations into the targets are the same; below one of them the plan knows of one less."""
    schema = academic().schema
    fewer = dataclasses.replace(
        schema, relations=tuple(each for each in schema.relations if str(each) != "paper:written_by:author")
    )
    tree = tree_of_schema(fewer, "paper", 2)
    cut = next(node for node in tree.children(0) if tree.nodes[node].name == WRITES)
    below = tuple(Piece(node, 0, BATCH) for node in tree.children(cut))
    rest = tuple(Piece(node, 0, BATCH) for node in tree.children(0) if node != cut)
    path = plan_of(tmp_path / "plan.json", (*below, *rest), (Piece(cut, 0, BATCH, whole=False),), tree=tree)
    with pytest.raises(InputError, match=rf"other branches than this recipe's below '{WRITES}': self; need paper:"):
        execution(plan=path)


@pytest.mark.slow
def test_a_batch_that_is_too_large_runs_again_and_changes_nothing(tmp_path, monkeypatch):
    path = plan_of(tmp_path / "plan.json", (*pieces_below(WRITES)[1:], "self"), (pieces_below(WRITES)[0], COVERS))
    check_too_large(monkeypatch, plan=path)
