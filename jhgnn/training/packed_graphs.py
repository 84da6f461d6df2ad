"""Which whole-graph layers aggregate along all their semantic graphs at once, and those graphs on the device."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.one_hot_slots import OneHotSlots, is_one_hot
from jhgnn.graph.packed import PackedGraphs, pack_attention, pack_means
from jhgnn.graph.receptive_field import ReceptiveField
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.ops.basis_rows import has_kernel
from jhgnn.ops.registry import OPS
from jhgnn.tasks.link_prediction import LinkPrediction
from jhgnn.training.problem import Choice, Problem, check_kernel, stackable, summing

PACKED_BELOW = 0.5
"""Share of the rows that graphs one by one project, below which `auto` packs: a row costs about twice as much in a
product of tiles as in one wide product (docs/experiments.md)."""

MANY = 16
"""Graphs of a layer from which `auto` packs in any case: apart, instructions and seconds of compilation grow with them
(docs/performance.md)."""

VIEWS = ("coo", "buckets")
"""What packed graphs can have: an adjacency matrix of slots would be far larger than those of the graphs."""


class Packing(NamedTuple):
    """How a model computes along packed graphs, as recipes name implementations."""

    attends: bool
    aggregation: str
    summing: str
    """All implementations of attention but `dense` have namesakes that sum."""
    sparse: str
    combines: bool = False
    """Whether one-hot rows are read of combined bases (`basis_rows`)."""
    self_loop: bool = False

    def choice(self, apart: Choice, why: str) -> Choice:
        """What a report says of a graph in the place of what it would say of it by itself."""
        op = "neighbor_attention" if self.attends else "neighbor_sum"
        return Choice(op, apart.subject, self.aggregation or self.summing, f"packed with all others: {why}")

    def place(
        self,
        plan: LayerPlan,
        graphs: Mapping[str, SemanticGraph],
        read: Mapping[str, int],
        num_rows: Mapping[str, int],
        features: Mapping[str, Any],
    ) -> PackedGraphs | None:
        """One layer's graphs as one, on the device; None where the layer has no edge.

        Args:
            plan: of the layer.
            graphs: those of its relations or metapaths that there are, on the host.
            read: rows that it reads of each type.
            num_rows: rows that it makes of each type.
            features: the SciPy matrices of types whose rows are sparse in this layer.
        """
        own = {name: graphs[name] for name in plan.relations if name in graphs and graphs[name].num_edges}
        if not own:
            return None
        made = {node_type: num_rows[node_type] for node_type in plan.makes if num_rows.get(node_type)}
        if self.attends:
            packed = pack_attention(own, plan.relations, read, made, features)
        else:
            packed = pack_means(own, plan.relations, read, made, features, self._by_bases(plan, own, made, features))
        return packed.place(self.aggregation, self.summing, _views, self.sparse)

    def _by_bases(
        self,
        plan: LayerPlan,
        graphs: Mapping[str, SemanticGraph],
        made: Mapping[str, int],
        features: Mapping[str, Any],
    ) -> dict[str, int]:
        """Types whose slots read rows of combined bases, and how many rows of their own do.

        They do so where the slots are no more than the rows of the matrices that would be made, as where each row has a
        feature of its own.
        """
        found = {}
        for node_type, table in features.items() if self.combines else ():
            names = [name for name in graphs if plan.relations[name].source == node_type]
            own_rows = made.get(node_type, 0) if self.self_loop else 0
            slots = own_rows + sum(int(np.count_nonzero(np.diff(graphs[name].outgoing.indptr))) for name in names)
            matrices = len(names) + (own_rows > 0)
            if is_one_hot(table) and slots <= matrices * table.shape[1]:
                found[node_type] = own_rows
        return found


def choose_packing(
    problem: Problem, plans: Sequence[LayerPlan], graphs: Mapping[str, SemanticGraph], sparse: str
) -> tuple[Packing | None, str]:
    """How layers aggregate along all semantic graphs at once, or None where they do so along one by one; and why.

    Args:
        problem: what is trained.
        plans: of the model's layers.
        graphs: semantic graph name -> whole graph, on the host.
        sparse: the implementation of sparse projections.

    Raises:
        InputError: the recipe asks for packed graphs where there can be none.
    """
    named = problem.config.kernels.relations
    if named == "apart":
        return None, "named by kernels.relations"
    obstacle = _obstacle(problem)
    if obstacle:
        if named == "packed":
            raise InputError(f"kernels.relations = 'packed': {obstacle}; use 'auto'")
        return None, obstacle
    why = "named by kernels.relations"
    if named == "auto":
        share, why = _share(plans, graphs)
        if share >= PACKED_BELOW and max((len(plan.relations) for plan in plans), default=0) < MANY:
            return None, why
    if not problem.model.attends():
        model = problem.config.model
        combines = bool(problem.model.reads_one_hot_slots and model.bases) and sparse == "native" and has_kernel()
        return Packing(False, "", summing(problem), sparse, combines, model.self_loop), why
    op, implementation = OPS["neighbor_attention"], problem.config.kernels.attention
    if implementation == "auto":
        implementation = op.choose(SemanticGraph, views=VIEWS)[0]
    check_kernel(problem, "attention", SemanticGraph, 0, "packed")
    return Packing(True, implementation, implementation, sparse), why


def place_whole(
    packing: Packing,
    plans: Sequence[LayerPlan],
    graphs: Mapping[str, SemanticGraph],
    num_nodes: Mapping[str, int],
    features: Mapping[str, Any],
) -> tuple[PackedGraphs | None, ...]:
    """The whole graph's packed graphs by hop; hop 0 is the last layer's. Layers with the same plan share theirs."""
    found: list[PackedGraphs | None] = []
    for index, plan in enumerate(plans):
        own = features if index == 0 else {}
        same = [each for each, other in enumerate(plans[:index]) if other == plan and (each > 0 or not features)]
        found.append(found[same[0]] if same else packing.place(plan, graphs, num_nodes, num_nodes, own))
    return tuple(reversed(found))


def place_field(
    packing: Packing, field: ReceptiveField, graphs: Mapping[str, SemanticGraph], features: Mapping[str, Any]
) -> tuple[PackedGraphs | None, ...]:
    """A receptive field's packed graphs by hop."""
    found = []
    for hop, plan in enumerate(field.layers):
        assert isinstance(plan, LayerPlan)
        own = features if hop == len(field.layers) - 1 else {}
        counts = field.counts[hop + 1], field.counts[hop]
        found.append(packing.place(plan, field.graphs(hop, graphs), *counts, own))
    return tuple(found)


def of_rows(choice: Choice, packed: Sequence[PackedGraphs | None]) -> Choice:
    """What a report says of the projection of a type's sparse rows, by the first layer's packed graphs."""
    groups = packed[-1].senders.groups.get(choice.subject) if packed and packed[-1] else None
    if groups is None or not isinstance(groups.features, OneHotSlots):
        return choice
    return choice._replace(reason=f"{choice.reason}; one-hot rows of combined bases, no matrix of a relation is made")


def sparse_matrices(problem: Problem, placed: Mapping[str, Any]) -> dict[str, Any]:
    """The SciPy matrices of the types whose features lie sparse on the device."""
    return {name: problem.graph.features[name] for name, own in placed.items() if isinstance(own, SparseFeatures)}


def _obstacle(problem: Problem) -> str:
    """Why graphs cannot be packed; empty where they can."""
    config, model = problem.config, problem.model
    if not model.packs(config.model):
        return f"{config.model.name!r} with these settings aggregates along each graph by itself"
    if isinstance(problem.task, LinkPrediction) and (config.task.exclude_targets or stackable(problem)):
        return "link prediction weighs each relation's edges by itself"
    if config.model.edge_features:
        return "model.edge_features are read along each relation by itself"
    key = "attention" if model.attends() else "mean"
    if getattr(config.kernels, key) == "dense":
        return f"kernels.{key} = 'dense' multiplies each graph's adjacency matrix"
    return ""


def _share(plans: Sequence[LayerPlan], graphs: Mapping[str, SemanticGraph]) -> tuple[float, str]:
    """Rows that packed layers project over those that graphs one by one do, and the same in words."""
    names = [name for plan in plans for name in plan.relations if name in graphs]
    slots = sum(int(np.count_nonzero(np.diff(graphs[name].outgoing.indptr))) for name in names)
    rows = sum(graphs[name].num_sources for name in names)
    return slots / max(1, rows), f"{slots:,} of {rows:,} projected rows have an edge"


def _views(op: str, implementation: str) -> Collection[str]:
    return OPS[op].views(implementation) if op != "sparse_matmul" else OPS[op].views(implementation, SparseFeatures)
