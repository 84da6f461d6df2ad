"""From a graph and a recipe to what a planner of shards reads: the metatree, and counts of the recipe's own batches."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from jhgnn.config import Config
from jhgnn.config.fan_out import parse as parse_fan_out
from jhgnn.distributed.meta.counts import TreeCounts, count_tree
from jhgnn.distributed.meta.tree import MetaTree, tree_of_metapaths, tree_of_schema
from jhgnn.distributed.meta.work import ModelShape, WorkCosts, measured_costs, shape_of
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Metapath, Relation
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.fan_out import fan_outs
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan

BATCHES = 4
"""Batches that are counted for the plan, and as many others that its balance is measured on."""
BATCH_SIZE = 1024
LAYERS = 2


@dataclasses.dataclass(frozen=True, eq=False)
class PlanRequest:
    """Attributes:
    tree: of the model's layers, or of its metapaths.
    fan_outs: relation -> neighbours at each hop.
    counts: of the first batches of the recipe's first epoch.
    shape, costs: of the model and the machine.
    other_batches: further batches of that epoch, from step `first_other_step` on.
    """

    tree: MetaTree
    fan_outs: Mapping[Relation, Sequence[int]]
    counts: TreeCounts
    shape: ModelShape
    costs: WorkCosts
    other_batches: tuple[np.ndarray, ...]
    first_other_step: int


def request_of(
    graph: HeteroGraph,
    config: Config,
    metapaths: Sequence[Metapath],
    *,
    over: Literal["relations", "metapaths", "erased"],
    reads_receivers: bool,
    measured_costs: bool = False,
    network_gbit: float = 10.0,
) -> PlanRequest:
    """Reads `model.*`, `sampling.*` and `run.seed`: the batches counted are those that training with them would draw.

    A model over relations draws along all of them, layer by layer (two where the recipe leaves it open). One over
    metapaths draws along those: as many neighbours as walks or the fan-out say at the first hop, and one from each of
    them at those that follow.

    Args:
        metapaths: that the model aggregates over, or none.
        over: what the model aggregates over, as `Model.over` says.
        reads_receivers: whether a layer over relations reads the receivers' own rows, too.
        measured_costs: measure what work costs on this machine, instead of as `WorkCosts` states it.
        network_gbit: gigabits a second between shards.

    Raises:
        InputError: no target type or no training nodes; a model without relations; what `fan_outs` refuses.
    """
    train = graph.splits.get("train", np.zeros(0, np.int32))
    if graph.target is None or not len(train):
        raise InputError(f"--method meta counts the batches of training; graph {graph.name!r} has no training nodes")
    model, sampling = config.model, config.sampling
    if over == "erased":
        raise InputError(f"--method meta divides relations; {model.name!r} has none: name 'rgcn', 'rgat' or 'han'")
    fan_out = parse_fan_out(sampling.fan_out, "sampling.fan_out")
    if over == "metapaths":
        tree = tree_of_metapaths(metapaths)
        first = sampling.walks or (fan_out if isinstance(fan_out, int) else None)
        if first is None:
            raise InputError(
                f"sampling.fan_out = {sampling.fan_out!r}: metapaths draw one number of neighbours; give one"
            )
        drawn: Mapping[Relation, Sequence[int]] = dict.fromkeys(
            graph.schema.relations, (first, *[1] * (tree.num_hops - 1))
        )
    else:
        layers = model.layers or (len(fan_out) if isinstance(fan_out, list) else LAYERS)
        tree = tree_of_schema(graph.schema, graph.target, layers, self_loops=reads_receivers)
        drawn = fan_outs(fan_out, graph.schema, layers, "sampling.fan_out")
    epoch = EpochBatches(train, min(sampling.batch_size or BATCH_SIZE, len(train)), config.run.seed)
    order = epoch.order(0)
    batches = [_batch(epoch, order, step) for step in range(min(2 * BATCHES, epoch.steps_per_epoch))]
    counted = batches[: max(1, len(batches) // 2)]
    others = batches[len(counted) :] or batches
    counts = count_tree(graph, tree, drawn, counted, config.run.seed)
    shape = shape_of(graph, model.hidden)
    costs = _measured(graph, drawn, batches, shape, config.run.seed) if measured_costs else WorkCosts()
    costs = dataclasses.replace(costs, exchange_byte_s=8e-9 / network_gbit)
    return PlanRequest(tree, drawn, counts, shape, costs, tuple(others), len(counted) % len(batches))


def _batch(epoch: EpochBatches, order: np.ndarray, step: int) -> np.ndarray:
    """A full batch: the last one of an epoch is filled up from its start."""
    return np.take(epoch.seeds, order[np.arange(step * epoch.batch_size, (step + 1) * epoch.batch_size) % len(order)])


def _measured(
    graph: HeteroGraph,
    drawn: Mapping[Relation, Sequence[int]],
    batches: Sequence[np.ndarray],
    shape: ModelShape,
    seed: int,
) -> WorkCosts:
    """Costs of this machine; a draw's is that of the native sampler, which draws along all relations."""
    assert graph.target is not None
    num_hops = max(len(per_hop) for per_hop in drawn.values())
    table = {str(relation): list(per_hop) for relation, per_hop in drawn.items()}
    sampler = HostSampler(graph, fan_out_plan(graph, table, num_hops))
    target = graph.target
    slots = np.cumsum(sampler.count({target: batches[0]}, seed, 0), axis=0)
    types = sampler.plan.node_types
    exact = fixed(tuple(FrozenCounts.of(dict(zip(types, map(int, row), strict=True))) for row in slots))
    blocks, _ = sampler.sample({target: batches[0]}, seed, 0, exact)
    draws = sum(int(table.num_neighbors.sum()) for tables in blocks.hops for table in tables.values())

    def sample(turn: int) -> int:
        sampler.count({target: batches[turn % len(batches)]}, seed, turn)
        return draws

    costs = measured_costs(shape, sample)
    sampler.close()
    return costs
