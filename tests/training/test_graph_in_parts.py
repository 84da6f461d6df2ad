"""A whole graph cut over devices trains as on one, in a constant number of collectives."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation, Schema
from jhgnn.nn.embeddings import tables_of
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from tests.models.heterographs import academic
from tests.training.parts_agreement import differences, execution, trained

ROOT = Path(__file__).parents[2]
CLOSE = 1e-5  # float32 sums in another order, after 20 updates


@pytest.fixture(scope="module")
def alone():
    return trained(execution("rgcn", 1), 20)


@pytest.fixture(scope="module")
def in_two():
    made = execution("rgcn", 2)
    return made, made.compile()


def test_two_devices_train_as_one(alone, in_two):
    made, programs = in_two
    found = differences(trained(made, 20, programs), alone)
    assert max(found.values()) < CLOSE, found
    assert max(np.abs(np.diff(alone[2]))) > 1e-3  # it has learnt something


def test_vertices_are_cut_and_halos_are_smaller_than_what_is_not_owned(in_two):
    made, programs = in_two
    params = programs.initial_state(1).params
    rows, plan = made.parts.placement.rows, made.plan
    assert tables_of(params)["subject"].shape[:2] == (2, rows["subject"])
    for name, ids in plan.ids.items():
        owned = [set(own[: rows[name]][own[: rows[name]] >= 0]) for own in ids]
        assert owned[0] | owned[1] == set(range(made.spec.num_nodes[name]))
        assert not owned[0] & owned[1]
        halos = [set(own[rows[name] :][own[rows[name] :] >= 0]) for own in ids]
        assert halos[0] <= owned[1]
        assert halos[1] <= owned[0]
    assert 0 < plan.halo["author"] < made.spec.num_nodes["author"]
    jax.tree.map(
        np.testing.assert_array_equal, programs.whole(params), jax.tree.map(np.asarray, made.initial_params(1))
    )


@pytest.mark.slow
def test_more_relations_need_no_more_collectives(in_two):
    """Of two layers: an exchange of rows before each, the gradients of both but for fixed features, and one sum."""
    graph = academic()
    edges = dict(graph.edges)
    for relation, own in graph.edges.items():
        edges[Relation(relation.source, f"{relation.name}_again", relation.target)] = own
    more = dataclasses.replace(graph, schema=Schema(graph.schema.node_types, tuple(edges)), edges=edges)
    programs = [in_two[1].step.call, execution("rgcn", 2, more).lower_update().compile()]
    for program in programs:
        found = collectives(parse(program.as_text()))
        assert {kind: each.count for kind, each in found.items()} == {"all-reduce": 1, "all-to-all": 4}


def test_kernels_that_do_not_run_on_parts_are_one_line(monkeypatch):
    import tests.training.parts_agreement as agreement

    config = agreement.configured(name="rgcn")
    named = dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, mean="native"))
    monkeypatch.setattr(agreement, "configured", lambda **_: named)
    with pytest.raises(InputError, match=r"kernels.mean = 'native' does not run on a graph in parts"):
        execution("rgcn", 2)


def agreement(*arguments: str) -> list[dict]:
    environment = dict(os.environ) | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    command = [sys.executable, "-m", "tests.training.parts_agreement", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_gradients_figures_and_rows_are_those_of_one_device_in_float64():
    found = agreement("64", "rgcn,rgat,han", "2,4")
    assert len(found) == 6
    for case in found:
        assert case.pop("dtype") == "float64"
        name = case.pop("case")
        assert max(case.values()) < 1e-12, (name, case)
