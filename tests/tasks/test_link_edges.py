"""Message passing for links: stacked relations equal single ones, and edges left out are as if they had never been."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation
from jhgnn.tasks.link_edges import edge_weights
from jhgnn.tasks.link_prediction import LinkPrediction
from jhgnn.training.state import structure_of
from tests.executions import whole

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}  # float32 sums in another order


def knowledge_graph(seed: int = 0, relations: int = 4) -> HeteroGraph:
    """Relations within one type, one of them symmetric, with parallel edges."""
    rng = np.random.default_rng(seed)
    edges = {}
    for number in range(relations):
        senders, receivers = rng.integers(0, 20, 30), rng.integers(0, 20, 30)
        if number == 1:
            senders, receivers = np.concatenate([senders, receivers]), np.concatenate([receivers, senders])
        edges[Relation("entity", f"r{number}", "entity")] = senders, receivers
    return HeteroGraph.from_arrays(num_nodes={"entity": 20}, edges=edges, name="kg")


def recipe(**changes) -> Config:
    tables = {
        "data": {"reverse_relations": True},
        "task": {"name": "link_prediction", "relations": ["r0", "r1", "r2", "r3"], "batch_size": 16},
        "model": {"name": "rgcn", "hidden": 8, "layers": 2, "bases": 3, "dropout": 0.0},
    }
    for section, values in changes.items():
        tables[section] = tables.get(section, {}) | values
    return override(Config(), tables, where="test")


def encode(structure, params, inputs):
    """Rows of all nodes, as they are scored, by type."""
    model = nnx.merge(structure, params)
    made = model.encode(inputs)
    own = model.embeddings(inputs) if model.scorer.reads_inputs else {}
    return {name: model.scorer.represent(name, rows, own.get(name)) for name, rows in made.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("self_loop", "implementation"), [(True, "auto"), (False, "segment")])
def test_stacked_relations_give_what_single_ones_give_gradients_included(self_loop, implementation):
    config = recipe(model={"self_loop": self_loop}, kernels={"mean": implementation})
    problem = whole(knowledge_graph(), config)
    assert problem.inputs.stacks
    assert not problem.inputs.graphs
    # The same parameters over graphs of their own: as the layer runs without stacks.
    from jhgnn.graph.semantic_graph import SemanticGraph

    graphs = {
        str(relation): SemanticGraph.from_incoming(own.indptr, own.senders, 20, str(relation)).place(("coo",))
        for relation, own in problem.graph.edges.items()
    }
    single = dataclasses.replace(problem.inputs, stacks={}, graphs=graphs)
    names = dict.fromkeys(graphs, "segment")
    structure = structure_of(problem.builder(names))
    params = problem.initial_params(3)

    def run(params, inputs):
        (rows,) = encode(structure, params, inputs).values()
        return jnp.sin(rows).sum() + jnp.cos(rows[::2]).sum(), rows

    gradient = jax.jit(jax.grad(run, has_aux=True))
    first, second = gradient(params, problem.inputs), gradient(params, single)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), first, second)


@pytest.mark.slow
@pytest.mark.parametrize("bases", [0, 3])
def test_edges_left_out_are_as_if_the_graph_did_not_have_them(bases):
    """The training links of a batch become test links of another split: the same rows must come out."""
    graph = knowledge_graph()
    config = recipe(task={"exclude_targets": True}, model={"bases": bases})
    problem = whole(graph, config)
    params, train = problem.initial_params(3), problem.task.resident()
    ids = np.array([0, 3, 7, len(train) - 1, -1], np.int32)
    weights = edge_weights(problem.resident.excluded, jnp.asarray(ids), len(train))
    structure = problem.structure
    found = encode(structure, params, dataclasses.replace(problem.inputs, weights=weights))

    chosen = np.isin(np.arange(len(train)), ids)
    triples = dict(problem.task.links.triples) | {"train": train[~chosen]}
    triples["test"] = np.concatenate([triples["test"], train[chosen]])
    links = dataclasses.replace(problem.task.links, triples=triples)
    without = whole(dataclasses.replace(graph, links=links), recipe(model={"bases": bases}, task={"relations": []}))
    assert without.graph.num_edges < problem.graph.num_edges
    expected = encode(without.structure, params, without.inputs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), found, expected)


def test_no_edge_left_out_gives_the_plain_means():
    config = recipe(task={"exclude_targets": True})
    problem = whole(knowledge_graph(), config)
    weights = edge_weights(problem.resident.excluded, jnp.full(4, -1, jnp.int32), problem.split_size("train"))
    for name, stack in problem.inputs.stacks.items():
        np.testing.assert_allclose(weights[name], stack.weights, rtol=1e-6)


@pytest.mark.parametrize("name", ["rgcn", pytest.param("rgat", marks=pytest.mark.slow)])
def test_an_objective_over_two_types_has_gradients_for_everything(name):
    rng = np.random.default_rng(1)
    graph = HeteroGraph.from_arrays(
        num_nodes={"user": 12, "item": 9, "tag": 4},
        edges={
            ("user", "likes", "item"): (rng.integers(0, 12, 40), rng.integers(0, 9, 40)),
            ("item", "has", "tag"): (rng.integers(0, 9, 20), rng.integers(0, 4, 20)),
        },
        features={"item": rng.normal(size=(9, 5))},
    )
    task = {"relations": ["likes"], "skip": True, "exclude_targets": name == "rgcn"}
    # Four heads: with two, no receiver of one relation has logits of both signs, and softmax's shift makes
    # the gradient of its projection exactly zero.
    config = recipe(task=task, model={"name": name, "bases": 0, "heads": 4, "layers": 2})
    problem = whole(graph, config)
    state, program = problem.initial_state(3), problem.update_program
    ids = jnp.arange(16, dtype=jnp.int32)

    def objective(params):
        return program.loss(params, state, program.reader.inputs(problem.resident, ids), problem.resident, ids).loss

    loss, gradients = jax.jit(jax.value_and_grad(objective))(state.params)
    assert np.isfinite(loss)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients))


def test_evaluation_takes_a_fixed_choice_of_links():
    graph, task = knowledge_graph(), recipe(task={"test_links": 4}).task
    first, again = (LinkPrediction(graph, task, seed=0, reverse_relations=True) for _ in range(2))
    chosen, other = (each.evaluation_set("test").positive for each in (first, again))
    np.testing.assert_array_equal(chosen, other)
    assert len(chosen) == 4
    assert {tuple(row) for row in chosen} <= {tuple(row) for row in first.links.triples["test"]}
    assert len(first.evaluation_set("test", every=True).positive) == len(first.links.triples["test"])
