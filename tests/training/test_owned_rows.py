"""Learnable rows on one device each, in programs: evaluation, requests that do not fit, and other ways to go on."""

import dataclasses

import jax
import numpy as np
import pytest

from jhgnn.data import load
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.joined_tables import JOINED
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.sampled_layout import Variant
from tests.executions import noisy
from tests.training.minibatches import recipe
from tests.training.rel_equality import mag_like

SPLITS = ("train", "val", "test")


def execution(shards: int):
    """Two shards on this process's two devices, or all relations on one."""
    config = recipe("rgcn", sampling={"evaluation": "sampled"})
    ways = {"strategy": "raf", "relation_shards": shards} if shards > 1 else {}
    distributed = dataclasses.replace(config.distributed, devices=shards, **ways)
    return execution_of(pose(mag_like(), dataclasses.replace(config, distributed=distributed)))


@pytest.fixture(scope="module")
def divided():
    made = execution(2)
    return made, made.compile()


@pytest.fixture(scope="module")
def params(divided):
    return noisy(jax.tree.map(np.asarray, divided[0].initial_params(1)))


def tight(counts):
    """Room for one row where there is room for any."""
    return tuple(tuple(min(1, each) for each in own) for own in counts)


@pytest.mark.slow
def test_figures_are_those_of_whole_tables_on_one_device(divided, params):
    made, programs = divided
    one = execution(1)
    alone = one.compile()
    expected = alone.evaluate(alone.place(params), SPLITS, 0)
    found = programs.evaluate(programs.place(params), SPLITS, 0)
    assert found.keys() == expected.keys() == set(SPLITS)
    for split, figures in expected.items():
        assert found[split] == pytest.approx(figures, rel=1e-5)
    variants = (Variant(0, tight(made.layout.variants[0].requests)), made.layout.variants[-1])
    layout = made.layout
    made.__dict__["layout"] = dataclasses.replace(layout, variants=variants)
    try:  # the first program has no room for the rows, and the second one counts
        again = made.compile().evaluate(programs.place(params), SPLITS, 0)
    finally:
        made.__dict__["layout"] = layout
    for split, figures in found.items():
        assert again[split] == pytest.approx(figures, rel=1e-6)


def trained(made, programs, params, steps=3):
    state = programs.place(made.initial_state(1)._replace(params=params))
    for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(steps), strict=False):
        state, report = programs.update(state, batch)
        assert bool(local(report.finite))
    return programs.whole(state)


@pytest.mark.slow
def test_requests_that_do_not_fit_run_again_and_change_nothing(divided, params):
    made, programs = divided
    expected = trained(made, programs, params)
    assert programs.overflows == 0
    source = made.rel_source
    few, any_batch = tight(source.requests[0]), source.requests[-1]
    assert few != any_batch
    ends = {name: (getattr(source, name)[0], getattr(source, name)[-1]) for name in ("capacities", "readers")}
    made.__dict__["rel_source"] = dataclasses.replace(source, requests=(few, any_batch), **ends)
    try:
        again = made.compile()
        found = trained(made, again, params)
    finally:
        made.__dict__["rel_source"] = source
    assert again.overflows == 3
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
def test_a_row_that_is_not_finite_is_named(divided, params):
    """The batch is run again with whole tables, which are gathered for it."""
    made, programs = divided
    broken = jax.tree.map(np.copy, params)
    broken["embeddings"]["tables"]["author"][:] = np.nan
    state = programs.place(made.initial_state(1)._replace(params=broken))
    batch = next(programs.feed(0).iterate(Cursor()))
    state, report = programs.update(state, batch)
    assert not bool(local(report.finite))
    assert "embeddings.tables.author" in programs.explain(state, batch, "here")


def test_where_all_types_have_features_nothing_is_owned():
    graph = load("synthetic", "acm", scale=0.05, progress=False)
    config = recipe("rgcn")
    distributed = dataclasses.replace(config.distributed, strategy="raf", relation_shards=2, devices=2)
    made = execution_of(pose(graph, dataclasses.replace(config, distributed=distributed)))
    assert made.parts is None
    assert JOINED not in str(jax.tree.structure(made.placed(made.abstract_state)))
    assert not any("learnable rows" in line for line in made.describe())
