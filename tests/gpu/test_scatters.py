"""Updates scatter no floats when they are traced for a GPU, in what JAX hands to the compiler: no GPU's is needed."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jhgnn.config import Config
from jhgnn.runtime.platform import compiling_for
from jhgnn.training.execution import Execution
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.executions import configured
from tests.models.heterographs import academic
from tests.tasks.link_graphs import liked, sampling
from tests.tasks.link_graphs import recipe as links
from tests.tasks.test_link_edges import knowledge_graph
from tests.tasks.test_link_edges import recipe as knowledge
from tests.training.minibatches import recipe as minibatches

SCATTER = re.compile(r'"stablehlo\.scatter"\([^)]*\) <\{(.*?)\}> \(\{.*?\}\) : \(tensor<([^>]*)>', re.DOTALL)
LEFT_OUT = {"exclude_targets": True, "negatives": 4}
DROPS = {"attention_dropout": 0.3, "feature_dropout": 0.2}


def scattered_floats(lowered: jax.stages.Lowered) -> list[str]:
    """What is scattered to, but for writes of rows of which no two meet."""
    return [
        shape
        for attributes, shape in SCATTER.findall(lowered.as_text())
        if re.search(r"x?(f|bf)\d+$", shape) and "unique_indices = true" not in attributes
    ]


def divided(config: Config, **distributed: Any) -> Config:
    return dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, devices=2, **distributed))


def packed(config: Config) -> Config:
    return dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, relations="packed"))


CASES: Mapping[str, tuple[Callable[[], Any], Callable[[], Config]]] = {
    "han": (academic, lambda: configured(name="han", metapaths=("PAP", "PSP"), **DROPS)),
    "rgcn": (academic, lambda: configured(name="rgcn", layers=2)),
    "rgat": (academic, lambda: configured(name="rgat", layers=2, **DROPS)),
    "han, packed": (academic, lambda: packed(configured(name="han", metapaths=("PAP", "PSP"), **DROPS))),
    "rgcn, packed": (academic, lambda: packed(configured(name="rgcn", layers=2, bases=2))),
    "rgat, packed": (academic, lambda: packed(configured(name="rgat", layers=2, **DROPS))),
    "links by bases": (knowledge_graph, lambda: knowledge(task=LEFT_OUT)),
    "links, rgat": (liked, lambda: links("rgat")),
    "links, rgcn": (liked, lambda: links("rgcn", task=LEFT_OUT)),
    "links by bases, sampled": (knowledge_graph, lambda: knowledge(task=LEFT_OUT, sampling=sampling("2"))),
    "han, sampled": (academic, lambda: minibatches("han")),
    "rgcn, sampled": (academic, lambda: minibatches("rgcn")),
    "rgat, sampled": (academic, lambda: minibatches("rgat", sampling={"side": "device"})),
    "rgcn, two devices": (academic, lambda: divided(minibatches("rgcn"))),
    "rgat, on parts": (academic, lambda: divided(minibatches("rgat"), strategy="owner", method="random")),
    "han, relations first": (academic, lambda: divided(minibatches("han"), strategy="raf", relation_shards=2)),
    "rgcn, relations first": (academic, lambda: divided(minibatches("rgcn"), strategy="raf", relation_shards=2)),
}


IN_DEFAULT_SUITE = ("rgat", "rgat, packed", "links by bases", "links by bases, sampled")


@pytest.mark.parametrize(
    "case", [case if case in IN_DEFAULT_SUITE else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_an_update_scatters_no_floats(case: str) -> None:
    graph, config = CASES[case]
    with compiling_for("cuda"):
        execution: Execution = execution_of(pose(graph(), config()))
        assert scattered_floats(execution.lower_update()) == []


def test_a_scatter_is_seen_and_a_write_of_rows_is_let_be() -> None:
    table, ids, rows = jnp.ones((5, 3)), jnp.array([1, 1]), jnp.ones((2, 3))
    added = jax.jit(lambda table: table.at[ids].add(rows)).lower(table)
    assert scattered_floats(added) == ["5x3xf32"]
    assert (
        scattered_floats(jax.jit(lambda table: table.at[ids[:1]].set(rows[:1], unique_indices=True)).lower(table)) == []
    )
    assert scattered_floats(jax.jit(lambda table: table.at[ids].add(1)).lower(jnp.ones((5, 3), jnp.int32))) == []
    assert scattered_floats(jax.jit(lambda total: total.at[ids].add(1.0)).lower(jnp.ones(5, jnp.bfloat16))) == [
        "5xbf16"
    ]
