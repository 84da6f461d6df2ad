"""`training.rows`: a step over the training nodes' receptive field is the step over the whole graph."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn import native
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.models import find
from jhgnn.nn.inputs import FieldInputs, GraphInputs
from jhgnn.training.checks import check
from tests.executions import built, configured, loss_of, whole
from tests.models.heterographs import academic

CASES = {
    "rgcn": {"name": "rgcn", "layers": 2},
    "rgcn without self-loops": {"name": "rgcn", "layers": 2, "self_loop": False},
    "rgcn, bases, residual": {"name": "rgcn", "layers": 2, "bases": 2, "residual": True, "layer_norm": True},
    "rgcn, blocks": {"name": "rgcn", "layers": 2, "blocks": 2},
    "rgat": {"name": "rgat", "layers": 2},
    "rgat without self-loops": {"name": "rgat", "layers": 2, "self_loop": False, "residual": True},
}
FASTEST = "native" if native.available() else "segment"
RUNS = [("rgcn", FASTEST), ("rgat", FASTEST)]
SLOW_RUNS = [(case, FASTEST) for case in CASES if (case, FASTEST) not in RUNS] + [
    ("rgcn", "segment"),
    ("rgat", "segment"),
    ("rgat", "dense"),
]


def few_train(count: int):
    """The academic graph with `count` training nodes."""
    graph = academic()
    return dataclasses.replace(graph, splits=dict(graph.splits) | {"train": graph.splits["train"][:count]})


def with_rows(config, rows, **kernels):
    return dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, rows=rows),
        kernels=dataclasses.replace(config.kernels, **kernels),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "implementation"), RUNS + [pytest.param(*each, marks=pytest.mark.long) for each in SLOW_RUNS]
)
def test_loss_and_gradients_are_those_of_the_whole_graph_with_dropout(case, implementation):
    graph = few_train(3)
    config = configured(**CASES[case], feature_dropout=0.3, attention_dropout=0.4, dropout=0.3)
    found = {}
    for rows in ("all", "needed"):
        chosen = with_rows(config, rows, attention=implementation, mean=implementation)
        problem, params = built(graph, chosen)
        assert problem.rows_computed[0] == rows
        assert isinstance(problem.resident.inputs, FieldInputs if rows == "needed" else GraphInputs)

        def loss(params, inputs, ids, problem=problem):
            return loss_of(problem, params, inputs, ids, jnp.uint32(5))

        found[rows] = jax.jit(jax.value_and_grad(loss))(params, problem.resident.inputs, problem.task.splits["train"])
    np.testing.assert_allclose(found["needed"][0], found["all"][0], rtol=1e-6)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(found["all"][1]))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6 * largest),
        found["needed"][1],
        found["all"][1],
    )


def test_a_type_that_no_training_node_reaches_is_left_out():
    """Paper 39 has no author (the last of both is isolated), so one layer reads no author at all."""
    graph = academic()
    graph = dataclasses.replace(graph, splits={"train": np.array([39], np.int32), "val": np.array([0], np.int32)})
    for name in ("rgcn", "rgat"):
        config = with_rows(configured(name=name, layers=1), "needed")
        problem, params = built(graph, config)
        field, ids = problem.resident.inputs, problem.task.splits["train"]
        assert set(field.features) == {"paper"}
        assert field.counts[1].as_dict() == {"paper": 1, "subject": 1}
        loss = jax.jit(lambda inputs, ids, of=problem, at=params: loss_of(of, at, inputs, ids))
        found, expected = (loss(inputs, ids) for inputs in (field, problem.inputs))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_auto_takes_the_field_where_it_is_small():
    config = configured(name="rgcn", layers=1)
    assert whole(few_train(2), config).rows_computed[0] == "needed"
    everyone = dataclasses.replace(academic(), splits={"train": np.arange(40, dtype=np.int32)})
    problem = whole(everyone, config)
    assert problem.rows_computed == (
        "all",
        "training nodes reach 99% of the layers' rows and edges",
    )  # an author is isolated
    assert problem.resident.inputs is problem.inputs


@pytest.mark.parametrize("name", ["han", "gcn", "gat"])
def test_auto_computes_all_rows_for_models_that_read_them(name):
    metapaths = {"metapaths": ("PAP",)} if name == "han" else {}
    computed = whole(few_train(2), configured(name=name, **metapaths)).rows_computed
    assert computed == ("all", f"{name} computes all rows")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": {"name": "han"}}, "its fusion averages over all targets: use 'all'"),
        ({"model": {"name": "gcn"}}, "'gcn' is a control: use 'all'"),
        ({"model": {"name": "rgcn"}, "sampling": {"batch_size": 8}}, "leave it out for mini-batches and links"),
    ],
)
def test_what_cannot_be_is_refused(tables, message):
    config = override(configured(), tables | {"training": {"rows": "needed"}}, where="test")
    with pytest.raises(InputError, match=message):
        check(config, find(config.model.name))


def test_named_all_is_obeyed():
    graph, config = few_train(2), with_rows(configured(name="rgat", layers=1), "all")
    assert whole(graph, config).rows_computed == ("all", "named by training.rows")
