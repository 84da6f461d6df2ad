"""How far strategies are from one device: `python -m tests.training.agreement WIDTH MODELS STRATEGIES METHOD DEVICES
[TOPOLOGY]`. `leapgnn:3` takes three time steps.

Prints JSON: for each model, strategy and number of devices the largest difference of the first gradient, over the
largest gradient, and of the parameters after all steps of plain gradient descent; and whether the blocks were the same.
"""

import dataclasses
import json
import sys
from typing import Any

import jax
import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.execution import Batch
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.sampled import Sampled
from tests.models.heterographs import academic
from tests.training.minibatches import recipe

BATCH_SIZE = 16


def execution(
    name: str,
    strategy: str,
    method: str,
    devices: int,
    side: str = "host",
    graph: HeteroGraph | None = None,
    topology: str = "replicated",
    time_steps: int = 0,
    parts: str = "",
) -> Sampled:
    """A small model on parts, whose momentum after one step is the gradient; of `academic` where no graph is given."""
    training = {"optimizer": "sgd", "weight_decay": 0.0}
    config = recipe(
        name, training=training, sampling={"batch_size": BATCH_SIZE, "side": side, "evaluation": "layerwise"}
    )
    if jax.config.read("jax_enable_x64"):  # the native kernels are of float32
        key = "mean" if name == "rgcn" else "attention"
        config = dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, **{key: "fanout"}))
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, dtype="float64"))  # type: ignore[arg-type]
    distributed = dataclasses.replace(
        config.distributed,
        strategy=strategy,  # type: ignore[arg-type]
        method=method,  # type: ignore[arg-type]
        devices=devices,
        topology=topology,  # type: ignore[arg-type]
        time_steps=time_steps,
        parts=parts,
    )
    graph = academic() if graph is None else graph
    found = execution_of(pose(graph, dataclasses.replace(config, distributed=distributed)))
    assert isinstance(found, Sampled)
    if jax.config.read("jax_enable_x64"):
        wide = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float64), found.abstract_params)
        found.__dict__["abstract_params"] = wide
    return found


def trained(made: Sampled, steps: int, programs: Any = None) -> tuple[Any, Any, list[float], list[set]]:
    """State after the first step and after the last, losses, and what each batch drew."""
    programs = made.compile() if programs is None else programs
    rng = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(leaf.dtype), made.abstract_params)
    fresh = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), made.abstract_state)
    state = programs.place(fresh._replace(params=params, seed=np.uint32(0)))
    first, losses, drawn = None, [], []
    for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(steps), strict=False):
        if batch.arguments[0].blocks is not None:
            drawn.append(neighbours(batch))
        state, report = programs.update(state, batch)
        losses.append(float(local(report.loss)))
        first = jax.tree.map(np.copy, programs.whole(state)) if first is None else first
    return first, jax.tree.map(np.copy, programs.whole(state)), losses, drawn


def neighbours(batch: Batch) -> set[tuple]:
    """(hop, relation, receiver, its neighbours) of all that a batch drew on any device of this process."""
    blocks: SampledBlocks = jax.tree.map(_here, batch.arguments[0].blocks)
    found = set()
    leading = blocks.added.ndim - 2
    for index in np.ndindex(*blocks.added.shape[:leading]):
        for hop, tables in enumerate(blocks.hops):
            for name, table in tables.items():
                source, *_, target = name.split(":") if ":" in name else ("paper", "paper")  # or a metapath
                ids, receivers = blocks.nodes[source][index], blocks.nodes[target][index]
                for row in np.flatnonzero(table.num_neighbors[index]):
                    own = ids[table.senders[index][row][: table.num_neighbors[index][row]]]
                    found.add((hop, name, int(receivers[row]), tuple(own.tolist())))
    return found


def _here(leaf: Any) -> np.ndarray:
    """A batch's array as this process's devices hold it."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return np.concatenate([np.asarray(shard.data) for shard in leaf.addressable_shards])
    return np.asarray(leaf)


def main(width: str, models: str, strategies: str, method: str, devices: str, topology: str = "replicated") -> None:
    jax.config.update("jax_enable_x64", width == "64")
    steps = 3 if width == "64" else 20
    found = []
    for name in models.split(","):
        expected = trained(execution(name, "data", "", 1), steps)
        for strategy in strategies.split(","):
            for count in map(int, devices.split(",")):
                side = "host" if topology == "replicated" else "auto"
                only, _, time_steps = strategy.partition(":")
                made = execution(name, only, method, count, side, None, topology, int(time_steps or 0))
                own = trained(made, steps)
                gradient = max_difference(own[0].opt_state, expected[0].opt_state)
                largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected[0].opt_state))
                found.append(
                    {
                        "case": [name, strategy, count],
                        "gradient": gradient / largest,
                        "params": max_difference(own[1].params, expected[1].params),
                        "loss": max(abs(a - b) for a, b in zip(own[2], expected[2], strict=True)),
                        "same_graphs": own[3] == expected[3] and bool(own[3]),  # blocks of devices do not leave them
                        "dtype": str(jax.tree.leaves(own[1].params)[0].dtype),
                    }
                )
    print(json.dumps(found))


def max_difference(tree: Any, other: Any) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
