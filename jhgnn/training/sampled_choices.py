"""What sampled training draws, where it draws, and which features it reads.

All of it is decided from the recipe and the graph, and nothing by timing, so that it is the same in every run.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from scipy import sparse

from jhgnn.config import Config
from jhgnn.config.fan_out import parse as parse_fan_out
from jhgnn.distributed.part_rows import PartRows
from jhgnn.errors import InputError
from jhgnn.graph.erased import NAME as ERASED
from jhgnn.graph.erased import type_offsets
from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.row_ids import RowIds
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.schema import Metapath, Relation, Schema
from jhgnn.graph.semantic_graph import Csr, SemanticGraph
from jhgnn.graph.sparse_rows import SparseRows, padded_bytes
from jhgnn.graph.stacked import StackedRelations, stack_relations
from jhgnn.nn.inputs import GraphSpec, SampledStack
from jhgnn.ops.registry import AS_ROWS, OPS, check_named
from jhgnn.runtime.platform import target_platform
from jhgnn.sampling.entries import EdgeFacts, HostEntries
from jhgnn.sampling.hot import HotVertices
from jhgnn.sampling.plan import Draw, SamplingPlan, fan_out_plan, walk_plan
from jhgnn.sampling.reuse import Reuse
from jhgnn.sampling.side import Side, choose_side
from jhgnn.sampling.temporal import check_seed_times
from jhgnn.stores.file_rows import is_mapped
from jhgnn.stores.host import HostRows, HostTable
from jhgnn.tasks.link_edges import ShownLinks, shown_links
from jhgnn.tasks.link_prediction import LinkPrediction
from jhgnn.training.problem import (
    Choice,
    Problem,
    build_graphs,
    feature_widths,
    featured_edges,
    read_metapaths,
    relations_of,
    stackable,
)
from jhgnn.training.weighted_rows import choose_weighted_rows

FEATURE_SHARE = 0.25
"""Share of a device's memory that features may take where `auto` decides; the rest is for edges and parameters."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sampling:
    """What a run samples from.

    Attributes:
        spec: what the model is built for.
        sampled: the graph that the plan draws from: the problem's own, that of its metapaths, of its stacks, or the one
            with types erased.
        plan: what is drawn at each hop.
        num_layers: layers of the model; each reads one hop.
        features: those of the types that the model reads, on the host.
        side: where to sample, and why.
        features_on_device: whether the compiled step gathers features, and why.
        compressed: draws whose tables the host compresses in both directions, for the kernels of the CPU.
        facts: by draw, what its edges stand for, where some are left out of a batch or weighted, or have features.
        stacks: the draws over several relations at once.
        stacked: by draw, all edges of these relations, on the host.
        offsets: as in `SampledInputs`.
        metapaths: those that are drawn from or walked; none for other models.
        choices: implementations, with their reasons.
        sgb_s: seconds of semantic graph build.
        table_rows: implementation that reads and writes the rows of embedding tables.
        hot: the vertices that draw nothing at the bottom hop, since their means are kept among `features`; or None.
        reuse: the vertices whose rows of the first layer are reused; or None.
        partitioned: whether edges are cut over the devices, which draw from them.
    """

    spec: GraphSpec
    sampled: HeteroGraph
    plan: SamplingPlan
    num_layers: int
    features: HostRows
    side: tuple[Side, str]
    features_on_device: tuple[bool, str]
    compressed: frozenset[str]
    facts: Mapping[str, EdgeFacts]
    stacks: tuple[SampledStack, ...]
    stacked: Mapping[str, StackedRelations]
    offsets: tuple[tuple[str, int, int], ...]
    metapaths: tuple[Metapath, ...]
    choices: tuple[Choice, ...]
    sgb_s: float
    table_rows: str = "xla"
    hot: HotVertices | None = None
    reuse: Reuse | None = None
    partitioned: bool = False

    def host_entries(self) -> HostEntries | None:
        """What completes the host sampler's blocks; None where there is nothing to do."""
        edges = {
            draw.name: Csr(self.sampled.edges[draw.steps[0]].indptr, self.sampled.edges[draw.steps[0]].senders)
            for draw in self.plan.draws
            if draw.name in self.facts
        }
        return HostEntries(self.plan, edges, self.facts) if self.facts else None

    @property
    def endpoints(self) -> tuple[tuple[str, str, str], ...]:
        """Relation or metapath, source and target type of each table, but for those of stacks."""
        stacked = {stack.name for stack in self.stacks}
        named = {draw.name: (draw.name, draw.source, draw.target) for draw in self.plan.draws}
        return tuple(each for name, each in named.items() if name not in stacked)


def plan_sampling(problem: Problem) -> Sampling:
    """Decides what to sample, and builds metapath graphs where neighbours are drawn from them.

    Raises:
        InputError: a fan-out that does not fit the graph or the layers, or a kernel named that samples do not use.
    """
    _check_kernels(problem)
    config, graph, model = problem.config, problem.graph, problem.model
    start = time.perf_counter()
    metapaths: tuple[Metapath, ...] = ()
    sampled = graph
    offsets: tuple[tuple[str, int, int], ...] = ()
    stacked: dict[str, StackedRelations] = {}
    orders: dict[str, np.ndarray] = {}
    if model.over == "metapaths":
        metapaths = read_metapaths(graph, config.model)
        if not config.sampling.walks:
            metapaths, host_graphs = build_graphs(problem)
            sampled = _graph_of(
                graph,
                (graph.target or "",),
                {Relation(graph.target or "", name, graph.target or ""): each for name, each in host_graphs.items()},
            )
    elif model.over == "erased":
        _, host_graphs = build_graphs(problem)
        sampled = _graph_of(graph, (ERASED,), {Relation(ERASED, ERASED, ERASED): host_graphs[ERASED]})
        starts = type_offsets(dict(graph.num_nodes))
        offsets = tuple((name, starts[name], count) for name, count in graph.num_nodes.items())
    else:
        stacked, orders, sampled = _stack(problem)
    sgb_s = time.perf_counter() - start
    relations = {} if metapaths else relations_of(problem, [str(each) for each in graph.schema.relations])
    names = [*relations, *(metapath.name for metapath in metapaths)]
    featured = featured_edges(problem)
    spec = GraphSpec(
        num_nodes=dict(graph.num_nodes),
        feature_widths=feature_widths(graph),
        targets=problem.task.targets,
        relations=relations,
        metapaths=tuple(metapath.name for metapath in metapaths),
        implementations=dict.fromkeys(names, ""),  # chosen below; what the model reads does not depend on it
        sparse_implementation=OPS["sparse_matmul"].choose(SparseRows)[0],
        edge_widths={name: edges.features.shape[1] for name, edges in featured.items() if edges.features is not None},
    )
    built: Any = nnx.eval_shape(lambda: model(config.model, spec, rngs=nnx.Rngs(0)))
    num_layers = len(built.layers)
    plan = _make_plan(problem, sampled, metapaths, num_layers)
    if config.sampling.temporal != "none":
        check_seed_times(graph, plan.seed_types)
        plan = dataclasses.replace(plan, temporal=config.sampling.temporal)
    tables, choices = {}, []
    for node_type in built.embeddings.widths:
        if node_type in graph.features:
            tables[node_type], choice = host_features(config, node_type, graph.features[node_type])
            choices += [choice] if choice else []
    if model.over == "erased":
        degrees = np.diff(next(iter(sampled.edges.values())).indptr)
        tables[ERASED] = degrees.astype(np.float32)[:, None]
    features = HostRows(cast(Any, tables))  # those of parts are cut for the devices, and never gathered here
    side = _choose_side(config, sampled, plan, featured)
    drawn = dict.fromkeys(draw.name for draw in plan.draws if any(draw.widths))
    aggregation = _choose_aggregation(problem, side[0])
    chosen = dict.fromkeys((*names, *drawn), aggregation) | choose_weighted_rows(problem, plan, tables, featured)
    spec = dataclasses.replace(spec, implementations={name: chosen[name][0] for name in names})
    compressed = frozenset(name for name in drawn if _reads_edges(model.aggregation, chosen[name][0]))
    choices += [
        Choice("neighbor_sum", name, aggregation[0], f"{len(stacked[name].relations)} relations drawn as one, by basis")
        if name in stacked
        else Choice(model.aggregation, name, *chosen[name])
        for name in drawn
    ]
    table_rows = _choose_table_rows(config, [name for name in built.embeddings.widths if name not in graph.features])
    choices += [table_rows] if table_rows else []
    return Sampling(
        spec=spec,
        sampled=sampled,
        plan=plan,
        num_layers=num_layers,
        features=features,
        side=side,
        features_on_device=_choose_feature_side(config, features, side[0]),
        compressed=compressed,
        facts=_facts(problem, plan, stacked, orders) | _edge_features(problem, plan, featured),
        stacks=tuple(
            SampledStack(name, each.relations, each.source, each.target, "native" if name in compressed else "segment")
            for name, each in stacked.items()
        ),
        stacked=stacked,
        offsets=offsets,
        metapaths=metapaths,
        choices=tuple(choices),
        sgb_s=sgb_s,
        table_rows=table_rows.implementation if table_rows else "xla",
        partitioned=config.distributed.topology == "partitioned",
    )


def _graph_of(graph: HeteroGraph, node_types: tuple[str, ...], edges: Mapping[Relation, SemanticGraph]) -> HeteroGraph:
    """A graph of one node type with these semantic graphs as its relations, to draw neighbours from."""
    sets = {
        relation: EdgeSet(np.asarray(each.incoming.indptr, np.int64), np.asarray(each.incoming.indices))
        for relation, each in edges.items()
    }
    (node_type,) = node_types
    count = next(iter(edges.values())).num_targets
    return dataclasses.replace(
        graph, schema=Schema(node_types, tuple(sets)), num_nodes={node_type: count}, features={}, edges=sets
    )


def _stack(problem: Problem) -> tuple[dict[str, StackedRelations], dict[str, np.ndarray], HeteroGraph]:
    """Stacks and the order of their edges, by draw, and the graph with each stack in the place of its relations."""
    graph = problem.graph
    stacked, orders, edges = {}, {}, dict(graph.edges)
    for own in stackable(problem):
        source, target = next(iter(own)).source, next(iter(own)).target
        stack, order = stack_relations(own, graph.num_nodes[source], "native")
        relation = Relation(source, stack.graph.name, target)
        stacked[str(relation)], orders[str(relation)] = stack, order
        for each in own:
            del edges[each]
        assert isinstance(stack.graph, SemanticGraph)
        incoming = stack.graph.incoming
        edges[relation] = EdgeSet(np.asarray(incoming.indptr, np.int64), np.asarray(incoming.indices))
    if not stacked:
        return {}, {}, graph
    return (
        stacked,
        orders,
        dataclasses.replace(graph, schema=Schema(graph.schema.node_types, tuple(edges)), edges=edges),
    )


def _facts(
    problem: Problem, plan: SamplingPlan, stacked: Mapping[str, StackedRelations], orders: Mapping[str, np.ndarray]
) -> dict[str, EdgeFacts]:
    task = problem.task
    shown: Mapping[Relation, ShownLinks] = {}
    num_links = 0
    if isinstance(task, LinkPrediction):
        num_links = len(task.links.triples["train"])
        if problem.config.task.exclude_targets:
            shown = shown_links(task.whole, task.links, problem.graph.edges)
    by_name = {str(relation): each for relation, each in shown.items()}
    facts = {}
    for draw in plan.draws:
        if draw.name in stacked:
            stack = stacked[draw.name]
            links: tuple[Any, Any] = (None, None)
            if any(name in by_name for name in stack.relations):
                links = _joined(problem, stack, by_name, orders[draw.name], num_links)
            facts[draw.name] = EdgeFacts(
                *links, stack.relation_of_edge, stack.group_of_edge, stack.num_groups, num_links
            )
        elif draw.name in by_name:
            facts[draw.name] = EdgeFacts(*by_name[draw.name], None, None, 0, num_links)
    return facts


def _edge_features(problem: Problem, plan: SamplingPlan, featured: Mapping[str, EdgeSet]) -> dict[str, EdgeFacts]:
    """Features of edges by draw; attention reads each entry as a sender of its own."""
    splits = problem.model.attends()
    return {
        draw.name: EdgeFacts(None, None, None, None, 0, 0, featured[draw.name].features, splits)
        for draw in plan.draws
        if draw.name in featured and any(draw.widths)
    }


def _joined(
    problem: Problem, stack: StackedRelations, shown: Mapping[str, ShownLinks], order: np.ndarray, num_links: int
) -> tuple[np.ndarray, np.ndarray]:
    sizes = {str(relation): edges.num_edges for relation, edges in problem.graph.edges.items()}
    parts = []
    for name in stack.relations:
        empty = np.full(sizes[name], num_links, np.int32)
        parts.append(shown.get(name, ShownLinks(empty, empty)))
    forwards, backwards = (np.concatenate(sides)[order] for sides in zip(*parts, strict=True))
    return forwards, backwards


def _make_plan(
    problem: Problem, sampled: HeteroGraph, metapaths: tuple[Metapath, ...], num_layers: int
) -> SamplingPlan:
    """The draws of the recipe, one hop for each layer.

    Draws from metapath graphs are named after the metapath, those from the erased graph after that.
    """
    config = problem.config
    fan_out = parse_fan_out(config.sampling.fan_out, "sampling.fan_out")
    if config.sampling.walks:
        if not isinstance(fan_out, int) or fan_out < 1:
            raise InputError(
                f"sampling.fan_out = {config.sampling.fan_out!r} with sampling.walks: give one number, the neighbours"
                " to keep of each metapath's walks"
            )
        return walk_plan(sampled, metapaths, config.sampling.walks, fan_out, num_layers)
    if isinstance(fan_out, list) and len(fan_out) != num_layers:
        raise InputError(
            f"sampling.fan_out = {config.sampling.fan_out!r} has {len(fan_out)} numbers, but {config.model.name} has"
            f" {num_layers} layers; give one number a layer, from the targets outwards, or set model.layers"
        )
    seed_types = (ERASED,) if problem.model.over == "erased" else problem.task.targets
    plan = fan_out_plan(sampled, fan_out, num_layers, seed_types)
    if problem.model.over == "relations":
        return plan

    def named(draw: Draw) -> Draw:
        return dataclasses.replace(draw, name=draw.steps[0].name)

    return dataclasses.replace(plan, draws=tuple(named(draw) for draw in plan.draws))


def _check_kernels(problem: Problem) -> None:
    """Refuses kernels that a sampled batch cannot run, and those of ops that the model does not have."""
    config = problem.config
    used = "attention" if problem.model.attends() else "mean"
    for key in ("attention", "mean"):
        named = getattr(config.kernels, key)
        if named != "auto" and key != used:
            raise InputError(
                f"kernels.{key} = {named!r}: {config.model.name!r} aggregates by kernels.{used}; use 'auto'"
            )
        check_named(key, named, NeighborTable)


def _choose_aggregation(problem: Problem, side: Side) -> tuple[str, str]:
    """The implementation of neighbor aggregation on sampled tables, and why.

    Raises:
        InputError: the recipe names one whose views the sampler of this side does not make.
    """
    op = OPS[problem.model.aggregation]
    key = "attention" if op.name == "neighbor_attention" else "mean"
    named, made = getattr(problem.config.kernels, key), ("edges",) if side == "host" else ()
    if named == "auto":
        return op.choose(NeighborTable, views=made)
    if named == AS_ROWS:  # which reads the table itself; `choose_weighted_rows` says where it cannot be
        return named, f"named by kernels.{key}"
    if not set(op.views(named, NeighborTable)) <= set(made):
        raise InputError(f"kernels.{key} = {named!r} runs on blocks that the host samples for it; use 'auto'")
    return named, f"named by kernels.{key}"


def _reads_edges(op: str, implementation: str) -> bool:
    return implementation != AS_ROWS and "edges" in OPS[op].views(implementation, NeighborTable)


def _choose_table_rows(config: Config, learnt: Sequence[str]) -> Choice | None:
    """How rows of embedding tables are read and updated; None where no type has any.

    Raises:
        InputError: the recipe names what does not run here, or what nothing would use.
    """
    named, distributed = config.kernels.tables, config.distributed
    check_named("tables", named, RowIds)
    if named != "auto" and not learnt:
        raise InputError(f"kernels.tables = {named!r}, but every node type has features: there is no embedding table")
    if named == "native" and (distributed.parts or distributed.method or distributed.strategy != "data"):
        raise InputError(
            f"kernels.tables = 'native' beside distributed.strategy = {distributed.strategy!r} with rows or relations"
            " divided over devices: use 'auto'"
        )
    if not learnt:
        return None
    chosen, why = OPS["read_rows"].choose(RowIds) if named == "auto" else (named, "named by kernels.tables")
    return Choice("table_rows", ", ".join(learnt), chosen, why)


def host_features(
    config: Config, node_type: str, matrix: np.ndarray | sparse.csr_array | PartRows
) -> tuple[HostTable | PartRows, Choice | None]:
    """A type's features as rows that gather into static shapes, and what was chosen where they are sparse.

    Raises:
        InputError: the recipe names a kernel of whole matrices, or would round the rows of a file.
    """
    dtype = jnp.dtype(config.sampling.feature_dtype)
    if isinstance(matrix, np.ndarray):
        if dtype != np.float32 and is_mapped(matrix):
            raise InputError(
                f"sampling.feature_dtype = {dtype.name!r} rounds features in memory, and those of {node_type!r} are"
                " rows of a file; leave it out"
            )
        return np.ascontiguousarray(matrix, dtype), None
    if isinstance(matrix, PartRows):
        if not matrix.sparse:
            return matrix, None
        choice = _projection(config, node_type, matrix.padded_bytes, matrix.dense_bytes)
        return dataclasses.replace(matrix, sparse=choice.implementation == "rows"), choice
    dense_bytes = dtype.itemsize * matrix.shape[0] * matrix.shape[1]
    choice = _projection(config, node_type, padded_bytes(matrix), dense_bytes)
    if choice.implementation == "rows":
        return SparseRows.from_scipy(matrix), choice
    return matrix.toarray().astype(dtype), choice


def _projection(config: Config, node_type: str, rows_bytes: int, dense_bytes: int) -> Choice:
    """Whether sparse features are kept as padded rows or dense, from what either takes."""
    if config.kernels.projection == "dense":
        return Choice("sparse_matmul", node_type, "dense", "named by kernels.projection")
    if config.kernels.projection != "auto":
        raise InputError(
            f"kernels.projection = {config.kernels.projection!r} works on the whole matrix; sampled batches gather its"
            " rows: use 'auto' or 'dense'"
        )
    if rows_bytes >= dense_bytes:
        return Choice("sparse_matmul", node_type, "dense", "its longest row would make padded rows as large")
    return Choice("sparse_matmul", node_type, "rows", "padded rows of sampled vertices")


def _memory_bytes() -> int | None:
    statistics = jax.local_devices()[0].memory_stats()
    return (statistics or {}).get("bytes_limit")


def _choose_side(
    config: Config, sampled: HeteroGraph, plan: SamplingPlan, featured: Mapping[str, EdgeSet]
) -> tuple[Side, str]:
    if plan.temporal != "none":
        return "host", "sampling.temporal"
    if config.distributed.topology == "partitioned":
        return "device", "each device keeps the edges of its own nodes"
    if config.sampling.side == "auto":
        if config.sampling.features == "host" or config.sampling.cache:
            return "host", "features are gathered on the host"
        if config.sampling.tables == "mapped":
            return "host", "the host stages the rows of mapped tables"
        if config.sampling.hot in ("stale", "literal"):
            return "host", "batches of a super-batch are drawn from different graphs"
        feature_bytes = sum(edges.features.nbytes for edges in featured.values() if edges.features is not None)
        return choose_side(sampled, plan, target_platform(), _memory_bytes(), feature_bytes)
    return config.sampling.side, "named by sampling.side"


def _choose_feature_side(config: Config, features: HostRows, side: Side) -> tuple[bool, str]:
    if config.distributed.parts or config.distributed.method:
        return True, "cut over the devices by parts"
    if config.sampling.cache:
        return False, "sampling.cache keeps rows on the host"
    if config.sampling.features != "auto":
        return config.sampling.features == "device", "named by sampling.features"
    if side == "device":
        return True, "the device samples"
    if target_platform() == "cpu":
        return False, "host threads gather while the CPU trains"
    need, have = features.nbytes, _memory_bytes()
    if have is None or need > FEATURE_SHARE * have:
        return False, f"{need / 2**30:.2f} GiB are over {FEATURE_SHARE:.0%} of the device's memory, or it is not known"
    return True, f"{need / 2**30:.2f} GiB are within {FEATURE_SHARE:.0%} of the device's memory"
