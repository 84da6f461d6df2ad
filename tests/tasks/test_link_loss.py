"""The loss of link prediction against its definition in NumPy, over one pair of types and over several."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jhgnn.config import ModelConfig, TaskConfig
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.no_layers import NoLayers
from jhgnn.sampling.negatives import negative_nodes
from jhgnn.tasks.link_prediction import LinkPrediction

NUM_NODES = {"a": 6, "b": 9, "c": 4}
SEED, STEP, WIDTH = 7, 3, 5
RELATIONS = {"one pair": ["r", "s"], "two pairs": ["r", "s", "t"]}


def task_of(pairs: str = "one pair", **options) -> LinkPrediction:
    """Relations r and s from a to b, and t from c to a, with all their edges in training but one of each."""
    rng = np.random.default_rng(0)
    ends = {"r": ("a", "b"), "s": ("a", "b"), "t": ("c", "a")}
    edges = {}
    for name, (source, target) in ends.items():
        packed = rng.permutation(NUM_NODES[source] * NUM_NODES[target])[:8]
        edges[(source, name, target)] = np.divmod(packed, NUM_NODES[target])
    graph = HeteroGraph.from_arrays(num_nodes=NUM_NODES, edges=edges)
    config = TaskConfig(name="link_prediction", relations=tuple(RELATIONS[pairs]), val_share=0.0, test_share=0.1)
    return LinkPrediction(graph, dataclasses.replace(config, **options), seed=0, reverse_relations=False)


def model_and_rows(task: LinkPrediction):
    """A model with the head alone, and rows of all nodes."""
    spec = GraphSpec(NUM_NODES, {}, task.targets, {}, (), {}, "segment")
    config = NoLayers.settled(ModelConfig(hidden=WIDTH))
    model = NoLayers(config, spec, rngs=nnx.Rngs(0))
    task.add_head(model, config, spec, rngs=nnx.Rngs(1))
    rng = np.random.default_rng(1)
    rows = {name: jnp.asarray(rng.normal(size=(count, WIDTH)), jnp.float32) for name, count in NUM_NODES.items()}
    return model, rows


def loss(task: LinkPrediction, model, rows, ids):
    """The mean loss, with each request's rows picked from those of all nodes."""
    about = (jnp.asarray(task.resident()), ids, jnp.uint32(SEED), jnp.uint32(STEP))
    picked = [rows[name] if own is None else rows[name][jnp.maximum(own, 0)] for name, own in task.requests(*about)]
    total = task.loss(model, picked, *about)
    return total.loss / jnp.maximum(total.num_examples, 1.0)


def reference(task: LinkPrediction, model, rows, ids) -> float:
    config, triples = task.config, task.resident()
    relations = np.asarray(model.scorer.relations(), np.float64)
    each, squares = [], []
    for i in ids[ids >= 0]:
        head, number, tail = triples[i]
        relation = task.links.relations[number]
        heads, tails = (np.asarray(rows[name], np.float64) for name in (relation.source, relation.target))
        squares.append([(part**2).mean() for part in (heads[head], relations[number], tails[tail])])
        for side, candidates, true in (("tail", tails, tail), ("head", heads, head)):
            nodes = np.arange(len(candidates))
            if config.negatives:
                positions = np.arange(config.negatives, dtype=np.uint32)
                if config.negatives_of == "link":
                    nodes = negative_nodes(SEED, STEP, side, np.full(len(positions), i), len(candidates), positions)
                else:
                    nodes = negative_nodes(SEED, STEP, side, positions, len(candidates))
            query = (heads[head] if side == "tail" else tails[tail]) * relations[number]
            scores = np.array([query @ candidates[node] for node in nodes if node != true])
            positive = float(query @ candidates[true])
            if config.loss == "softmax":
                each.append(np.log(np.exp(scores).sum() + np.exp(positive)) - positive)
            else:
                each.append(np.log1p(np.exp(-positive)) + np.log1p(np.exp(scores)).mean())
    return float(np.mean(each)) + config.regularization * float(np.sum(np.mean(squares, axis=0)))


@pytest.mark.parametrize("pairs", RELATIONS)
@pytest.mark.parametrize("kind", ["softmax", "binary"])
@pytest.mark.parametrize(
    ("negatives", "of", "regularization"), [(0, "batch", 0.0), (4, "batch", 0.1), (40, "batch", 0.0), (6, "link", 0.1)]
)
def test_loss_is_that_of_the_definition(pairs, kind, negatives, of, regularization):
    task = task_of(pairs, loss=kind, negatives=negatives, negatives_of=of, regularization=regularization)
    model, rows = model_and_rows(task)
    train = task.training_examples()
    ids = np.append(train[np.random.default_rng(2).permutation(len(train))[:7]], [-1, -1]).astype(np.int32)
    found = jax.jit(lambda rows: loss(task, model, rows, jnp.asarray(ids)))(rows)
    assert float(found) == pytest.approx(reference(task, model, rows, ids), rel=1e-5)


@pytest.mark.parametrize("kind", ["softmax", "binary"])
def test_gradients_are_finite_at_extreme_scores_and_without_links(kind):
    task = task_of(loss=kind, scorer_dropout=0.3)
    model, rows = model_and_rows(task)
    for scale, ids in ((1e4, np.arange(7)), (1.0, np.full(7, -1))):
        big = jax.tree.map(lambda x, scale=scale: x * scale, rows)

        def run(each, ids=ids):
            return loss(task, model, each, jnp.asarray(ids, jnp.int32))

        value, gradient = jax.jit(jax.value_and_grad(run))(big)
        assert np.isfinite(value)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert value == 0.0


@pytest.mark.parametrize("pairs", RELATIONS)
@pytest.mark.parametrize("of", ["batch", "link"])
def test_the_host_and_a_compiled_step_request_the_same_nodes(pairs, of):
    task = task_of(pairs, negatives=3, negatives_of=of)
    resident, ids = task.resident(), np.array([0, 5, -1, 9], np.int32)
    host = task.requests(resident, ids, np.uint32(4), np.uint32(11))

    @jax.jit
    def traced(ids, seed, step):
        return [own for _, own in task.requests(jnp.asarray(resident), ids, seed, step)]

    for (_, own), other in zip(host, traced(ids, jnp.uint32(4), jnp.uint32(11)), strict=True):
        np.testing.assert_array_equal(own, other)
    heads, tails = host[0].ids, host[1].ids
    assert heads[2] == tails[2] == -1


def test_links_of_several_pairs_stay_among_their_types():
    task = task_of("two pairs", negatives=5)
    assert task.targets == ("a", "b", "c")
    ids = task.training_examples()
    requests = task.requests(task.resident(), ids, np.uint32(0), np.uint32(0))
    assert [name for name, _ in requests] == ["a", "b", "b", "a", "c", "a", "a", "c"]
    first, second = requests[0].ids >= 0, requests[4].ids >= 0
    np.testing.assert_array_equal(first, ~second)
    assert isinstance(task.links, LinkTriples)
