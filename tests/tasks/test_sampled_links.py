"""Links in mini-batches: what the whole graph gives, on the host, on devices and in parts; and no link shows itself."""

import dataclasses

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn.graph.link_split import reverses
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.executions import noisy, whole
from tests.tasks.link_graphs import liked, recipe, sampling
from tests.tasks.test_link_edges import knowledge_graph
from tests.tasks.test_link_edges import recipe as knowledge_recipe
from tests.training.minibatches import compiled, sampled, steps
from tests.training.whole_and_sampled import first_shard, losses_and_gradients

TOLERANCE = {"rtol": 3e-4, "atol": 3e-5}  # float32 sums in another order, through two layers and back

CASES = {
    "rgcn": (liked, lambda **more: recipe("rgcn", **more)),
    "rgcn, left out": (liked, lambda **more: recipe("rgcn", task=EXCLUDING, **more)),
    "rgcn, left out, negatives of links": (liked, lambda **more: recipe("rgcn", task=EXCLUDING | OWN, **more)),
    "rgcn, skip, regularized, binary": (liked, lambda **more: recipe("rgcn", task=SKIPPING, **more)),
    "rgat": (liked, lambda **more: recipe("rgat", **more)),
    "rgat, skip, negatives of links": (liked, lambda **more: recipe("rgat", task={"skip": True} | OWN, **more)),
    "rgcn, bases": (knowledge_graph, lambda **more: knowledge_recipe(task={"negatives": 4}, **more)),
    "rgcn, bases, left out": (
        knowledge_graph,
        lambda **more: knowledge_recipe(task={"negatives": 4} | EXCLUDING, **more),
    ),
}
EXCLUDING = {"exclude_targets": True}
OWN = {"negatives_of": "link", "negatives": 3}
SKIPPING = {"skip": True, "regularization": 0.01, "loss": "binary"}
MIGHT_DROP = {"feature_dropout": 0.2, "attention_dropout": 0.3, "dropout": 0.3}


IN_DEFAULT_SUITE = ("rgcn, bases, left out",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case if case in IN_DEFAULT_SUITE else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
@pytest.mark.parametrize("side", ["host", pytest.param("device", marks=pytest.mark.slow)])
def test_all_neighbours_give_the_loss_and_gradients_of_the_whole_graph(case, side):
    made, config_of = CASES[case]
    graph = made()
    full = whole(graph, config_of())
    part = sampled(graph, config_of(sampling=sampling(side=side)))
    params = noisy(full.initial_params(1))
    shard = first_shard(part)
    ids = np.asarray(shard.ids)
    assert (ids >= 0).sum() > 8
    expected, found = losses_and_gradients(full, part, params, shard)
    np.testing.assert_allclose(found[0], expected[0], **TOLERANCE)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected[1]))
    assert largest > 1e-3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=3e-4, atol=3e-5 * largest), found[1], expected[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "rgcn, left out, negatives of links",
        pytest.param("rgat", marks=pytest.mark.slow),
        pytest.param("rgcn, bases, left out", marks=pytest.mark.slow),
    ],
)
def test_host_and_device_draw_the_same_tables(case):
    made, config_of = CASES[case]
    on_host, on_device = (
        sampled(made(), config_of(sampling=sampling("3,2", side=side))) for side in ("host", "device")
    )
    inputs = []
    for execution in (on_host, on_device):
        shard = first_shard(execution)
        reader = execution.reader(0)
        made_inputs = jax.jit(reader.inputs)(execution.layout.resident, shard)
        inputs.append(made_inputs.blocks)
    assert [sorted(hop) for hop in inputs[0].hops] == [sorted(hop) for hop in inputs[1].hops]
    for first, second in zip(inputs[0].hops, inputs[1].hops, strict=True):
        for name in first:
            rows = min(len(first[name].num_neighbors), len(second[name].num_neighbors))
            np.testing.assert_array_equal(first[name].num_neighbors[:rows], second[name].num_neighbors[:rows])
            for field in ("entry_relations", "entry_weights"):
                one, other = getattr(first[name], field), getattr(second[name], field)
                assert (one is None) == (other is None)
                if one is not None:
                    np.testing.assert_allclose(one[:rows], other[:rows], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "rgcn, left out, negatives of links",
        "rgat, skip, negatives of links",
        "rgcn, bases",
    ],
)
def test_two_devices_and_micro_batches_do_what_one_device_does(case):
    made, config_of = CASES[case]
    graph, settings = made(), sampling("3,2")
    alone_state, alone_reports = steps(compiled(graph, config_of(sampling=settings, training=TRAINING)), 3)
    for devices, parts in ((2, 1), (1, 2), (2, 2)):
        training = TRAINING | {"micro_batches": parts}
        state, reports = steps(compiled(graph, config_of(sampling=settings, training=training), devices), 3)
        for one, other in zip(alone_reports, reports, strict=True):
            assert not one.overflowed
            assert not other.overflowed
            assert one.num_examples == other.num_examples
            np.testing.assert_allclose(other.loss, one.loss, rtol=1e-4)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), state.params, alone_state.params
        )


TRAINING = {"optimizer": "sgd", "learning_rate": 0.05, "weight_decay": 0.0}


@pytest.mark.slow
def test_layerwise_rows_rank_as_the_whole_graph_does():
    graph = liked()
    full, part = whole(graph, recipe("rgat")), sampled(graph, recipe("rgat", sampling=sampling("3,2")))
    params = noisy(full.initial_params(1))
    expected = full.task.scores_of_rows(full.structure, params, full.rows(params, 0), {"val": None, "test": None})
    found = part.task.scores_of_rows(part.structure, params, part.rows(params, 0), {"val": None, "test": None})
    assert set(found) == {"val", "test"}
    for split, figures in expected.items():
        for name, value in figures.items():
            np.testing.assert_allclose(found[split][name], value, rtol=1e-4, err_msg=f"{split} {name}")


def test_every_pair_of_types_has_negatives_of_its_own_types():
    execution = sampled(liked(), recipe(sampling=sampling("3,2")))
    ids = execution.batches(0).batch(execution.batches(0).order(0), 0)
    requests = execution.task.requests(execution.task.resident(), ids, np.uint32(0), np.uint32(0))
    assert [request.node_type for request in requests] == [
        "user", "item", "item", "user",
        "user", "user", "user", "user",
    ]  # fmt: skip
    triples = execution.task.resident()[ids]
    is_like = triples[:, 1] == 0
    np.testing.assert_array_equal(requests[0].ids, np.where(is_like, triples[:, 0], -1))
    np.testing.assert_array_equal(requests[4].ids, np.where(is_like, -1, triples[:, 0]))


def test_execution_of_links_describes_both_pairs():
    execution = execution_of(pose(liked(), recipe(sampling=sampling("3,2"))))
    assert "user -> item, user -> user" in execution.task.describe()
    assert dataclasses.is_dataclass(execution.layout)


def shown_pairs(links, relations, reversed_by, ids):
    """(relation, sender, receiver) of every edge that would show one of some links, forwards or backwards."""
    found = set()
    for head, number, tail in links[ids].tolist():
        relation = relations[number]
        found.add((str(relation), head, tail))
        found.update((str(reverse), tail, head) for reverse in reversed_by[relation])
    return found


SHOWN = [
    ("rgcn", "host"),
    ("rgat", "host"),
    ("rgat", "device"),
    ("bases", "host"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "side"), SHOWN)
@hypothesis.given(seed=st.integers(0, 1000), fan_out=st.sampled_from(["all", "3,2", "1,1"]))
@hypothesis.settings(max_examples=8)
def test_neither_held_out_links_nor_those_of_the_batch_nor_their_reverses_pass_messages(name, side, seed, fan_out):
    if name == "bases":
        graph = knowledge_graph(seed)
        config = knowledge_recipe(task={"negatives": 4} | EXCLUDING, sampling=sampling(fan_out, side=side))
    else:
        graph = liked(seed)
        config = recipe(name, task=EXCLUDING, sampling=sampling(fan_out, side=side))
    execution = sampled(graph, config)
    task, shard = execution.task, first_shard(execution)
    blocks = execution.reader(0).inputs(jax.device_put(execution.layout.resident), shard).blocks
    relations = task.links.relations
    reversed_by = {each: {*reverses(graph, each), each.reversed()} for each in relations}
    triples = {split: np.asarray(own) for split, own in task.splits.items()}
    ids = np.asarray(shard.ids)
    hidden = shown_pairs(triples["train"], relations, reversed_by, ids[ids >= 0])
    for split in ("val", "test"):
        hidden |= shown_pairs(triples[split], relations, reversed_by, np.arange(len(triples[split])))
    messages = 0
    stacks = {stack.name: stack for stack in execution.sampling.stacks}
    for hop, tables in enumerate(blocks.hops):
        for draw in execution.plan.draws_at(hop):
            table = tables[draw.name]
            receivers = np.asarray(blocks.frontier(hop, draw.target))
            senders = np.asarray(blocks.nodes[draw.source])[np.asarray(table.senders)]
            passes = np.asarray(table.mask)
            if table.entry_weights is not None:
                passes = passes & (np.asarray(table.entry_weights) > 0)
            for row, entry in zip(*np.nonzero(passes), strict=True):
                of = draw.name
                if draw.name in stacks:
                    of = str(stacks[draw.name].relations[int(table.entry_relations[row, entry])])
                assert (of, int(senders[row, entry]), int(receivers[row])) not in hidden
                messages += 1
    assert messages > 0
