"""A script: gradients and steps of relation-aggregation-first training against one device, in float64, on 8 devices.

Prints one JSON line a case: the largest differences of loss, weights' and tables' gradients, relative to the largest
entry, and of the parameters after some steps.
"""

import dataclasses
import functools
import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.data import load
from jhgnn.distributed.meta.plan import TRAFFIC, MetaPlan, Piece, write_plan
from jhgnn.distributed.meta.tree import MetaTree, tree_of_schema
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.joined_tables import JOINED
from jhgnn.training.mesh import DATA, REL, REPLICATED, SHARDED, local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.raf import RelationsFirst
from jhgnn.training.raf_feed import SPECS, RelFeed
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_feed import SampledFeed
from jhgnn.training.state import TrainState
from tests.executions import noisy
from tests.models.heterographs import academic
from tests.training.minibatches import recipe


def mag_like(seed: int = 0) -> HeteroGraph:
    """The types of ogbn-mag: features of papers alone, reverse relations, and a relation within papers both ways."""
    rng = np.random.default_rng(seed)
    sizes = {"paper": 60, "author": 50, "field": 12, "institution": 6}
    ends = {
        ("author", "writes", "paper"): 160,
        ("paper", "cites", "paper"): 180,
        ("field", "topic", "paper"): 150,
        ("institution", "employs", "author"): 60,
    }
    edges = {}
    for (source, name, target), count in ends.items():
        pair = (rng.integers(0, sizes[source], count), rng.integers(0, sizes[target] - 1, count))
        edges[source, name, target] = pair
        edges[target, f"rev_{name}", source] = pair[::-1]
    order = rng.permutation(60)
    return HeteroGraph.from_arrays(
        name="mag-like",
        num_nodes=sizes,
        edges=edges,
        features={"paper": rng.normal(size=(60, 7)).astype(np.float32)},
        target="paper",
        labels=rng.integers(0, 4, 60),
        splits={"train": order[:40], "val": order[40:50], "test": order[50:]},
    )


def aifb_like(seed: int = 0) -> HeteroGraph:
    """Many relations between few types, none with features, several between the same two types."""
    rng = np.random.default_rng(seed)
    types = ("person", "paper", "project")
    sizes = dict(zip(types, (40, 50, 15), strict=True))
    edges = {}
    for source in types:
        for target in types:
            for number in range(3):
                count = int(rng.integers(20, 90))
                pair = (rng.integers(0, sizes[source], count), rng.integers(0, sizes[target], count))
                edges[source, f"r{number}", target] = pair
    order = rng.permutation(40)
    return HeteroGraph.from_arrays(
        name="aifb-like",
        num_nodes=sizes,
        edges=edges,
        features={},
        target="person",
        labels=rng.integers(0, 4, 40),
        splits={"train": order[:24], "val": order[24:32], "test": order[32:]},
    )


def acm_like() -> HeteroGraph:
    return load("synthetic", "acm", scale=0.1, progress=False)


GRAPHS = {"academic": academic, "mag": mag_like, "aifb": aifb_like, "acm": acm_like}


def executions(case: dict, dtype: str) -> tuple[Sampled, RelationsFirst]:
    """One device, and a mesh of `data` x `rel`."""
    graph = GRAPHS[case["graph"]]()
    model = dict(case["model"]) | {"dtype": dtype}
    fan_out = ",".join(["3"] if model["name"] == "han" else ["4", "3", "2"][: model["layers"]])
    sampling = {"fan_out": fan_out} | case.get("sampling", {})
    config = recipe(**model, sampling=sampling, training=case.get("training", {}))
    if dtype == "float64":
        op = "mean" if model["name"] == "rgcn" else "attention"  # the native ones compute in float32
        config = dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, **{op: "fanout"}))

    def of(**distributed):
        own = dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, **distributed))
        return execution_of(pose(graph, own))

    devices = case["data"] * case["rel"]
    if "plan" not in case:
        return of(devices=1), of(devices=devices, strategy="raf", relation_shards=case["rel"])
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        tree = tree_of_schema(graph.schema, graph.target or "", model["layers"])
        PLANS[case["plan"]](plan, tree, config.sampling.batch_size, case["rel"])
        return of(devices=1), of(devices=devices, strategy="raf", plan=str(plan))


def write_divided(path: Path, tree: MetaTree, batch: int, shards: int) -> None:
    """A plan in which two shards share the targets of each branch, unequally; the own row is a branch."""
    pieces: list[list[Piece]] = [[] for _ in range(shards)]
    for number, node in enumerate(tree.children(0)):
        border = 2 + number % (batch - 3)
        pieces[number % shards].append(Piece(node, 0, border))
        pieces[(number + 1) % shards].append(Piece(node, border, batch))
    write_pieces(path, tree, batch, pieces)


def write_own_row_alone(path: Path, tree: MetaTree, batch: int, shards: int) -> None:
    """A plan whose last shard has the targets' own row, and no relation into them."""
    pieces: list[list[Piece]] = [[] for _ in range(shards)]
    for number, node in enumerate(tree.children(0)):
        own_row = tree.nodes[node].name == "self"
        pieces[-1 if own_row else number % (shards - 1)].append(Piece(node, 0, batch))
    write_pieces(path, tree, batch, pieces)


def write_cut(path: Path, tree: MetaTree, batch: int, shards: int, *, hops: int = 1, divided: bool = False) -> None:
    """A plan that cuts all branches down to some hops, whose nodes are dealt out in turns, or shared by two shards."""
    pieces: list[list[Piece]] = [[] for _ in range(shards)]
    for number, node in enumerate(node for node in tree.nodes[1:] if node.hop <= hops + 1):
        border = 2 + 2 * (number % (batch // 2 - 1)) if divided and number % 4 else batch
        whole = node.hop > hops
        pieces[number % shards].append(Piece(node.number, 0, border, whole))
        if border < batch:
            pieces[(number + 1) % shards].append(Piece(node.number, border, batch, whole))
    write_pieces(path, tree, batch, pieces)


def write_one_cut(path: Path, tree: MetaTree, batch: int, shards: int) -> None:
    """A plan that cuts the last branch: one shard has it alone, another one what is below, and all have the others."""
    *others, last = tree.children(0)
    pieces: list[list[Piece]] = [[] for _ in range(shards)]
    for number, node in enumerate(others):
        pieces[number % shards].append(Piece(node, 0, batch))
    pieces[-1].append(Piece(last, 0, batch, whole=False))
    pieces[0] += [Piece(node, 0, batch) for node in tree.children(last)]
    write_pieces(path, tree, batch, pieces)


def write_pieces(path: Path, tree: MetaTree, batch: int, pieces: list[list[Piece]]) -> None:
    sent = {kind: np.zeros(len(pieces)) for kind in TRAFFIC}
    write_plan(MetaPlan(tree, batch, tuple(map(tuple, pieces)), {}, np.zeros((len(pieces), 3)), sent, 0.0), path)


PLANS = {
    "divided": write_divided,
    "own row alone": write_own_row_alone,
    "one cut": write_one_cut,
    "cut": write_cut,
    "cut and divided": functools.partial(write_cut, divided=True),
    "cut twice": functools.partial(write_cut, hops=2),
    "cut twice and divided": functools.partial(write_cut, hops=2, divided=True),
}


def single_gradients(execution: Sampled, state, step: int):
    """Summed gradients, weights and whole tables, and the loss; of the batch of a step."""
    batch = batch_of(execution, step)
    program = execution.update_program(num_devices=1)

    def sums(state, resident, shard):
        own, rows = program.part_sums(state, resident, shard)
        return own, whole_tables(rows, state, DATA)

    mesh = execution.mesh
    arguments = (state, execution.layout.resident, jax.tree.map(np.asarray, batch.arguments[0]))
    specs = (REPLICATED, REPLICATED, SHARDED)
    compiled = mesh.compile(sums, arguments, specs)
    return host(compiled(*(mesh.place(each, spec) for each, spec in zip(arguments, specs, strict=True))))


def rel_gradients(execution: RelationsFirst, state, step: int):
    """The same of shards, summed over the mesh."""
    batch = batch_of(execution, step)
    program = execution.rel_update_program()

    def sums(state, resident, own):
        found, rows = program._sums(state, resident, own)
        return jax.lax.psum(found, (DATA, REL)), {name: own_table(each, state, name) for name, each in rows.items()}

    mesh, parts = execution.mesh, execution.parts
    specs = (REPLICATED if parts is None else parts.specs(state), REPLICATED, SPECS)
    own = jax.tree.map(np.asarray, batch.arguments[0])
    arguments = (state if parts is None else parts.cut(state), execution.layout.resident, own)
    compiled = mesh.compile(sums, arguments, specs, results=(REPLICATED, mesh.by_device))
    found, cut = compiled(*(mesh.place(each, spec) for each, spec in zip(arguments, specs, strict=True)))
    if parts is None:  # all types have features
        return host(found), {}
    return host(found), {name: parts.gathered(name, cut[JOINED]) for name in parts.placement.homes}


def whole_tables(rows, state, axis):
    return {name: jax.lax.psum(own_table(each, state, name), axis) for name, each in rows.items()}


def own_table(rows, state, name: str):
    """Gradients by row of this device's table."""
    table = jnp.zeros_like(tables_of(state.params)[name])
    where = jnp.where(rows.ids >= 0, rows.ids, table.shape[0])
    return table.at[where].add(rows.gradients, mode="drop")


def host(tree):
    return jax.tree.map(lambda leaf: np.asarray(local(leaf)), tree)


def batch_of(execution, step: int):
    """The batch of a step, from the feed of the execution."""
    kind = RelFeed if isinstance(execution, RelationsFirst) else SampledFeed
    source = execution.rel_source if isinstance(execution, RelationsFirst) else execution.source
    batches = execution.batches(execution.config.run.seed)
    cursor = Cursor(0, step)
    return next(kind(source, batches).iterate(cursor))


def difference(found, expected) -> float:
    """The largest, over leaves, of the largest difference relative to the leaf's largest entry."""
    leaves = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max([float(np.abs(a - b).max() / max(1e-6, np.abs(b).max())) for a, b in leaves if a.size], default=0.0)


def gradients_of(case: dict) -> dict:
    """Float64 differences of one case."""
    one, many = executions(case, "float64")
    with jax.enable_x64(False):  # initial weights are drawn in 32 bits
        params = noisy(jax.tree.map(np.asarray, one.initial_params(1)))
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    state = TrainState(np.int32(2), np.uint32(3), params, ())
    expected, found = single_gradients(one, state, 0), rel_gradients(many, state, 0)
    dense = [with_tables(each[0].gradients, {}) for each in (found, expected)]
    leaves = jax.tree.leaves(dense[1])
    return {
        "loss": difference(found[0].loss, expected[0].loss),
        "count": float(found[0].num_examples - expected[0].num_examples),
        "weights": difference(*dense),
        "tables": difference(found[1], expected[1]),
        "nonzero": sum(bool(np.abs(leaf).max() > 1e-9) for leaf in leaves) / len(leaves),
        "shards": [list(shard.names) for shard in many.shards],
    }


def steps_of(case: dict, count: int) -> dict:
    """Differences of losses and parameters after updates in float32."""
    found = []
    for execution in executions(case, "float32"):
        programs = execution.compile()
        state = programs.place(execution.initial_state(1)._replace(seed=np.uint32(0)))
        losses = []
        stop = zip(range(count), programs.feed(0).iterate(Cursor()), strict=False)
        for _, batch in stop:
            state, report = programs.update(state, batch)
            assert bool(local(report.finite))
            losses.append(float(local(report.loss)))
        found.append((losses, jax.tree.map(np.asarray, programs.whole(state.params))))
    (losses, params), (expected_losses, expected) = found[1], found[0]
    return {
        "losses": max(abs(a - b) for a, b in zip(losses, expected_losses, strict=True)),
        "params": max(
            float(np.abs(a - b).max())
            for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True)
            if a.size
        ),
        "steps": len(losses),
    }


def main() -> None:
    jax.config.update("jax_num_cpu_devices", 8)
    cases = json.loads(sys.argv[1])
    for case in cases:
        found = steps_of(case, case["steps"]) if case.get("steps") else gradients_of(case)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
