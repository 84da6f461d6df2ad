"""One of several processes that train relations first, once by each kind of programs: `python -m
tests.training.rel_processes FOLDER ADDRESS PROCESSES NUMBER CASES`.

Writes `CASE-PROGRAMS-NUMBER.npz` into FOLDER for each of the named cases: parameters after some steps, losses, and how
many batches ran in a larger bucket. A single process trains on one device without shards, and needs no ADDRESS.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jhgnn.config import DistributedConfig
from jhgnn.distributed.meta.plan import Piece
from jhgnn.distributed.meta.tree import MetaTree, tree_of_schema
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.runtime.processes import join
from jhgnn.sampling.capacities import Buckets, presampled
from jhgnn.sampling.epoch import Cursor
from jhgnn.training import raf
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from tests.training.minibatches import recipe
from tests.training.rel_equality import GRAPHS, PLANS, write_divided
from tests.training.test_relation_plans import plan_of

STEPS = 5
SGD = {"optimizer": "sgd", "learning_rate": 0.05}


@dataclasses.dataclass(frozen=True)
class Case:
    """A recipe and its shards.

    Attributes:
        rel: shards; as many processes as places on `data` times these.
        plan: writes one, from the shards' number.
        tiny: whether the first shard's first bucket holds next to nothing.
    """

    graph: str
    model: str
    rel: int
    layers: int = 2
    plan: Callable[[Path, MetaTree, int, int], Any] | None = None
    tiny: bool = False


def owned_by_a_shard_that_reads_none(path: Path, tree: MetaTree, batch: int, shards: int) -> None:
    """The first shard keeps all learnable rows, and its branches read none of them."""
    branches = {tree.nodes[node].name: Piece(node, 0, batch) for node in tree.children(0)}
    first, learnt = ("author:writes:paper",), ("subject",)
    if shards == 3:
        first, learnt = ("self", "paper:cites:paper", "paper:rev_cites:paper"), ("author", "field", "institution")
    rest = [name for name in branches if name not in first]
    own = [[name for number, name in enumerate(rest) if number % (shards - 1) == shard] for shard in range(shards - 1)]
    pieces = [[branches[name] for name in each if name in branches] for each in (first, *own)]
    plan_of(path, *pieces, tree=tree, row_owners=dict.fromkeys(learnt, 0))


CASES = {
    "mag": Case("mag", "rgcn", 2),
    "han": Case("academic", "han", 2),
    "rgat": Case("academic", "rgat", 2),
    "owned": Case("academic", "rgcn", 2, plan=owned_by_a_shard_that_reads_none),
    "overflow": Case("mag", "rgcn", 2, tiny=True),
    "three": Case("mag", "rgcn", 3, layers=1, plan=owned_by_a_shard_that_reads_none),
    "three rgat": Case("aifb", "rgat", 3),
    "divided": Case("mag", "rgcn", 3, plan=write_divided),
    "cut": Case("academic", "rgcn", 2, plan=PLANS["one cut"]),
    "cut and divided": Case("mag", "rgat", 2, plan=PLANS["cut and divided"]),
    "cut twice": Case("academic", "rgcn", 3, layers=3, plan=PLANS["cut twice"]),
}


def execution(case: Case, folder: Path, **distributed: Any) -> Any:
    graph, model = GRAPHS[case.graph](), {}
    if case.model != "han":
        model = {"layers": case.layers, "sampling": {"fan_out": ",".join("322"[: case.layers])}}
    config = recipe(case.model, training=SGD, **model)
    if distributed.get("strategy") == "raf":
        distributed["relation_shards"] = case.rel
        if case.plan is not None:
            distributed |= {"relation_shards": 0, "plan": str(folder / "plan.json")}
            tree = tree_of_schema(graph.schema, graph.target or "", case.layers)
            case.plan(folder / "plan.json", tree, config.sampling.batch_size, case.rel)
    config = dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, **distributed))
    return execution_of(pose(graph, config))


def tiny_first() -> Callable[..., Buckets]:
    """`presampled`, where the first shard's first bucket holds a vertex of each type beyond the targets."""
    calls = itertools.count()

    def learnt(*arguments: Any, **named: Any) -> Buckets:
        buckets = presampled(*arguments, **named)
        first = buckets.capacities[0]
        if next(calls):
            return dataclasses.replace(buckets, capacities=(first, *buckets.capacities))
        targets = first[0].as_dict()
        small = tuple(
            FrozenCounts(tuple((name, min(count, targets.get(name, 0) + 1)) for name, count in counts.items))
            for counts in first
        )
        return dataclasses.replace(buckets, capacities=(small, *buckets.capacities))

    return learnt


def trained(made: Any) -> dict[str, np.ndarray]:
    programs = made.compile()
    state = programs.place(made.initial_state(1)._replace(seed=np.uint32(0)))
    losses = []
    for batch, _ in zip(programs.feed(0).iterate(Cursor()), range(STEPS), strict=False):
        state, report = programs.update(state, batch)
        assert bool(local(report.finite))
        losses.append(float(local(report.loss)))
    params = jax.tree.leaves(programs.whole(state.params))
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in params])
    return {"params": flat, "losses": np.array(losses), "overflows": np.array(programs.overflows)}


def main(folder: str, address: str, processes: str, number: str, *names: str) -> None:
    if int(processes) > 1:
        join(DistributedConfig(coordinator=address, num_processes=int(processes), process_id=int(number)))
    own = Path(folder) / number
    own.mkdir(parents=True)
    for name in names:
        case = CASES[name]
        if int(processes) == 1:
            np.savez(Path(folder) / f"{name}-0.npz", **trained(execution(case, own, devices=1)))
            continue
        for programs in ("own", "one"):
            raf.presampled = tiny_first() if case.tiny else presampled  # type: ignore[attr-defined]
            made = execution(case, own, devices=1, strategy="raf", programs=programs)
            assert (made.only is None) == (programs == "one")
            np.savez(Path(folder) / f"{name}-{programs}-{number}.npz", **trained(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
