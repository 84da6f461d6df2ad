"""How far a whole graph in parts is from one device: `python -m tests.training.parts_agreement WIDTH MODELS DEVICES`.

Prints JSON: for each model and number of devices the largest difference of the first gradient, over the largest
gradient, of the parameters after all steps of plain gradient descent, of losses, and of the figures of all splits.
"""

import dataclasses
import json
import sys
from typing import Any

import jax
import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.execution import Execution
from jhgnn.training.graph_in_parts import GraphInParts
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.executions import configured
from tests.models.heterographs import academic
from tests.training.agreement import max_difference

SPLITS = ("train", "val", "test")


def execution(name: str, devices: int, graph: HeteroGraph | None = None) -> Execution:
    """A small model with dropout, of two layers, whose momentum after one step is the gradient; 1 device: whole."""
    shape = {"metapaths": ("PAP", "PSP")} if name == "han" else {}
    dropouts = {"feature_dropout": 0.2, "attention_dropout": 0.3, "dropout": 0.3}
    wide = jax.config.read("jax_enable_x64")
    config = configured(name=name, layers=2, dtype="float64" if wide else "float32", **shape, **dropouts)
    training = dataclasses.replace(config.training, optimizer="sgd", weight_decay=0.0, rows="all", learning_rate=0.05)
    kernels = {}
    if devices == 1:
        key = "mean" if name == "rgcn" else "attention"
        kernels = {key: "segment", "projection": "dense"}
    distributed = dataclasses.replace(
        config.distributed,
        strategy="owner" if devices > 1 else "data",
        method="random" if devices > 1 else "",
        devices=devices,
    )
    config = dataclasses.replace(
        config, training=training, kernels=dataclasses.replace(config.kernels, **kernels), distributed=distributed
    )
    found = execution_of(pose(academic() if graph is None else graph, config))
    assert isinstance(found, GraphInParts) == (devices > 1)
    if wide:
        found.__dict__["abstract_params"] = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float64), found.abstract_params
        )
    return found


def trained(made: Execution, steps: int, programs: Any = None) -> tuple[Any, Any, list[float], Any, Any]:
    """State after the first step and after the last, losses, figures of all splits, and rows of the targets."""
    programs = made.compile() if programs is None else programs
    rng = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(leaf.dtype), made.abstract_params)
    fresh = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), made.abstract_state)
    state, first, losses = programs.place(fresh._replace(params=params, seed=np.uint32(0))), None, []
    for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(steps), strict=False):
        state, report = programs.update(state, batch)
        losses.append(float(local(report.loss)))
        first = jax.tree.map(np.array, programs.whole(state)) if first is None else first
    scores, whole = programs.evaluate(state.params, SPLITS, 0), jax.tree.map(np.array, programs.whole(state))
    return first, whole, losses, scores, jax.tree.map(np.asarray, dict(made.rows(whole.params, 0)))


def differences(own: Any, expected: Any) -> dict[str, float]:
    """By what; see the module."""
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected[0].opt_state))
    return {
        "gradient": max_difference(own[0].opt_state, expected[0].opt_state) / largest,
        "params": max_difference(own[1].params, expected[1].params),
        "loss": max(abs(a - b) for a, b in zip(own[2], expected[2], strict=True)),
        "scores": max(
            abs(own[3][split][name] - x) for split, named in expected[3].items() for name, x in named.items()
        ),
        "rows": max_difference(own[4], expected[4]),
    }


def main(width: str, models: str, devices: str) -> None:
    jax.config.update("jax_enable_x64", width == "64")
    steps, found = 3 if width == "64" else 20, []
    for name in models.split(","):
        expected = trained(execution(name, 1), steps)
        for count in map(int, devices.split(",")):
            made = trained(execution(name, count), steps)
            dtype = str(jax.tree.leaves(made[1].params)[0].dtype)
            found.append({"case": [name, count], "dtype": dtype} | differences(made, expected))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
