"""The loss of link prediction against its definition in NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.config import TaskConfig
from jhgnn.models.link_predictor import LinkRows
from jhgnn.sampling.negatives import negative_nodes
from jhgnn.training.link_objective import LinkBatch, link_loss

TASK = TaskConfig(name="link_prediction")
SEED, STEP = 7, 3


def rows_and_batch() -> tuple[LinkRows, LinkBatch]:
    rng = np.random.default_rng(0)
    rows = LinkRows(*(jnp.asarray(rng.normal(size=(count, 5)), jnp.float32) for count in (6, 9, 2)))
    head, relation, tail = (jnp.asarray(rng.integers(0, count, 7), jnp.int32) for count in (6, 2, 9))
    mask = jnp.asarray([True] * 5 + [False] * 2)
    return rows, LinkBatch(jnp.arange(7, dtype=jnp.int32), head, relation, tail, mask)


def reference(rows: LinkRows, batch: LinkBatch, task: TaskConfig) -> float:
    head_rows, tail_rows, relation_rows = (np.asarray(part, np.float64) for part in rows)
    each = []
    for i in np.flatnonzero(batch.mask):
        h, r, t = int(batch.head[i]), int(batch.relation[i]), int(batch.tail[i])
        for side, count, true in (("tail", 9, t), ("head", 6, h)):
            nodes = negative_nodes(SEED, STEP, side, task.negatives, count) if task.negatives else np.arange(count)
            query = (head_rows[h] if side == "tail" else tail_rows[t]) * relation_rows[r]
            scores = np.array([query @ (tail_rows if side == "tail" else head_rows)[n] for n in nodes if n != true])
            positive = float((head_rows[h] * relation_rows[r]) @ tail_rows[t])
            if task.loss == "softmax":
                each.append(np.log(np.exp(scores).sum() + np.exp(positive)) - positive)
            else:
                each.append(np.log1p(np.exp(-positive)) + np.log1p(np.exp(scores)).mean())
    mean = float(np.mean(each))
    if task.regularization:
        parts = head_rows[batch.head], relation_rows[batch.relation], tail_rows[batch.tail]
        mean += task.regularization * sum(float((part**2).mean()) for part in parts)
    return mean


@pytest.mark.parametrize("loss", ["softmax", "binary"])
@pytest.mark.parametrize(("negatives", "regularization"), [(0, 0.0), (4, 0.1), (40, 0.0)])
def test_loss_is_that_of_the_definition(loss, negatives, regularization):
    task = dataclasses.replace(TASK, loss=loss, negatives=negatives, regularization=regularization)
    rows, batch = rows_and_batch()
    found = jax.jit(lambda rows: link_loss(rows, batch, task, jnp.uint32(SEED), jnp.uint32(STEP)))(rows)
    assert float(found) == pytest.approx(reference(rows, batch, task), rel=1e-5)


@pytest.mark.parametrize("loss", ["softmax", "binary"])
def test_gradients_are_finite_at_extreme_scores_and_without_links(loss):
    task = dataclasses.replace(TASK, loss=loss, scorer_dropout=0.3)
    rows, batch = rows_and_batch()
    for scale, mask in ((1e4, batch.mask), (1.0, jnp.zeros(7, bool))):
        big = jax.tree.map(lambda x, scale=scale: x * scale, rows)

        def run(each, mask=mask):
            return link_loss(each, batch._replace(mask=mask), task, jnp.uint32(SEED), jnp.uint32(STEP))

        value, gradient = jax.jit(jax.value_and_grad(run))(big)
        assert np.isfinite(value)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert value == 0.0
