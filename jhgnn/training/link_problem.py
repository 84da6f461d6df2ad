"""From a recipe to what link prediction trains on: the split, and the graph without held-out edges, placed."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn import native
from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.link_split import edge_positions, link_split, message_graph, reverses
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Metapath, Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.stacked import StackedRelations, stack_relations
from jhgnn.models.inputs import GraphInputs, GraphSpec
from jhgnn.models.link_predictor import LinkPredictor
from jhgnn.ops import neighbor_attention, neighbor_mean
from jhgnn.training.link_ranking import KnownFacts
from jhgnn.training.problem import (
    USES_ATTENTION,
    Choice,
    choose_aggregation,
    place_features,
    read_graph,
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class TargetEdges:
    """Which training link each edge of a graph or stack shows, forwards and backwards, so that it can be left out.

    Attributes:
        forwards, backwards: int32 `[num_edges]`, a link's position in the training split; its length where none.
        group: int32 `[num_edges]`, ascending: the edges over which a mean is taken together.
        num_groups: how many.
    """

    forwards: Any
    backwards: Any
    group: Any
    num_groups: int = dataclasses.field(metadata={"static": True})


class LinkData(NamedTuple):
    """What the compiled step reads beside the state and the batch."""

    inputs: GraphInputs
    triples: jax.Array  # int32 [num_train, 3]
    excluded: dict[str, TargetEdges]  # empty where no edges are left out


@dataclasses.dataclass(frozen=True, eq=False)
class LinkProblem:
    """What a run trains on; shared by all its seeds.

    Attributes:
        graph: that messages pass over, on the host: without held-out edges.
        links: the edges to predict, by split.
        facts: all known ones, for filtered ranks.
        ends: node types of heads and tails.
        spec: what the encoder is built for.
        data: on the device.
        metapaths, choices, read_s, sgb_s: as in `Problem`.
    """

    graph: HeteroGraph
    links: LinkTriples
    facts: KnownFacts
    ends: tuple[str, str]
    spec: GraphSpec
    data: LinkData
    metapaths: tuple[Metapath, ...]
    choices: tuple[Choice, ...]
    read_s: float
    sgb_s: float

    @property
    def splits(self) -> Mapping[str, np.ndarray]:
        return self.links.triples

    def split_size(self, split: str) -> int:
        return len(self.links.triples.get(split, ()))

    def builder(self, config: Config) -> Any:
        """Makes the model from `nnx.Rngs`."""
        return _builder(config, self.spec, self.ends, len(self.links.relations))


def prepare_links(config: Config, *, progress: bool = True) -> LinkProblem:
    """Reads, splits, takes held-out edges away, builds, chooses and places.

    Raises:
        InputError: as `jhgnn.training.problem.prepare`; or the split cannot be made.
    """
    start = time.perf_counter()
    graph = read_graph(config, progress=progress)
    return place_links(graph, config, read_s=time.perf_counter() - start)


def place_links(graph: HeteroGraph, config: Config, *, read_s: float = 0.0) -> LinkProblem:
    """The same from a graph that is read already, with all its edges."""
    start = time.perf_counter()
    task = config.task
    links = link_split(
        graph, task.relations, val_share=task.val_share, test_share=task.test_share, seed=config.data.seed
    )
    facts = KnownFacts.of(graph, links)
    messages = message_graph(graph, links)
    if config.data.reverse_relations:
        messages = messages.with_reverse_relations()
    ends = links.relations[0].source, links.relations[0].target
    encodes = task.encoder == "graph"
    edges = dict(messages.edges) if encodes else {}
    stacks, orders, singles = _stacked(messages, edges, config)
    placed = [_choose(config, relation, edges[relation], messages) for relation in singles]
    choices = [choice for choice, _ in placed]
    choices += [
        Choice("neighbor_sum", name, stack.implementation, f"{len(stack.relations)} relations stacked, by basis")
        for name, stack in stacks.items()
    ]
    spec = GraphSpec(
        num_nodes=dict(messages.num_nodes),
        feature_widths={node_type: matrix.shape[1] for node_type, matrix in messages.features.items()},
        target=ends[0],
        num_classes=0,
        relations={str(relation): relation for relation in edges},
        metapaths=(),
        implementations={str(relation): "segment" for relation in edges}
        | {c.subject: c.implementation for c in choices},
        sparse_implementation="segment",
    )
    structure: Any = nnx.eval_shape(lambda: _builder(config, spec, ends, len(links.relations))(nnx.Rngs(0)))
    features: dict[str, jax.Array | SparseFeatures] = {}
    for node_type in (structure.encoder or structure).embeddings.widths:
        if node_type in messages.features:
            features[node_type], choice = place_features(config, node_type, messages.features[node_type])
            choices += [choice] if choice else []
    sparse_choices = {choice.implementation for choice in choices if choice.op == "sparse_matmul"} - {"dense"}
    spec = dataclasses.replace(spec, sparse_implementation=next(iter(sparse_choices), "segment"))
    excluded = _target_edges(graph, links, edges, stacks, orders) if task.exclude_targets else {}
    op = neighbor_attention if config.model.name in USES_ATTENTION else neighbor_mean
    graphs = {}
    for choice, host_graph in placed:
        views = ("coo",) if choice.subject in excluded else op.VIEWS[choice.implementation]
        graphs[choice.subject] = host_graph.place(views)
    data = LinkData(
        GraphInputs(features, graphs, {}, jax.device_put(stacks)),
        jax.device_put(np.asarray(links.triples["train"])),
        jax.device_put(excluded),
    )
    return LinkProblem(
        graph=messages,
        links=links,
        facts=facts,
        ends=ends,
        spec=spec,
        data=data,
        metapaths=(),
        choices=tuple(choices),
        read_s=read_s,
        sgb_s=time.perf_counter() - start,
    )


def edge_weights(excluded: Mapping[str, TargetEdges], ids: jax.Array, num_links: int) -> dict[str, jax.Array]:
    """Weights with which messages are summed to the means over all edges but those of some training links.

    Args:
        ids: int32 `[batch]`, the links' positions in the training split; -1 for none.

    Returns:
        float32 `[num_edges]` for each graph and stack: 0 for an edge left out, else 1 / edges that stay in its group.
    """
    batch = jnp.zeros(num_links + 1, bool).at[jnp.where(ids >= 0, ids, num_links)].set(True).at[num_links].set(False)
    weights = {}
    for name, edges in excluded.items():
        kept = 1.0 - (batch[edges.forwards] | batch[edges.backwards])
        counts = jax.ops.segment_sum(kept, edges.group, edges.num_groups, indices_are_sorted=True)
        weights[name] = kept / jnp.maximum(counts, 1.0)[edges.group]
    return weights


def _builder(config: Config, spec: GraphSpec, ends: tuple[str, str], num_relations: int) -> Any:
    return lambda rngs: LinkPredictor(config.model, config.task, spec, ends, num_relations, rngs=rngs)


def _stacked(
    graph: HeteroGraph, edges: Mapping[Relation, EdgeSet], config: Config
) -> tuple[dict[str, StackedRelations], dict[str, np.ndarray], list[Relation]]:
    """Stacks by name with the order of their edges, and the relations that are aggregated one by one."""
    if config.model.name != "rgcn" or not config.model.bases:
        return {}, {}, list(edges)
    if config.kernels.mean not in ("auto", "native", "segment"):
        raise InputError(f"kernels.mean = {config.kernels.mean!r}: bases are summed by 'native' or 'segment'")
    implementation = _summing(config)
    stacks, orders = {}, {}
    for source in graph.num_nodes:
        for target in graph.num_nodes:
            own = {
                relation: edges[relation]
                for relation in edges
                if (relation.source, relation.target) == (source, target)
            }
            if own and source not in graph.features:
                stack, order = stack_relations(own, graph.num_nodes[source], implementation)
                stacks[stack.graph.name], orders[stack.graph.name] = stack, order
    inside = {name for stack in stacks.values() for name in stack.relations}
    return stacks, orders, [relation for relation in edges if str(relation) not in inside]


def _summing(config: Config) -> str:
    """The implementation of weighted sums."""
    if config.kernels.mean == "native" and not native.available():
        raise InputError(f"kernels.mean = 'native': {native.HOW_TO_GET_IT}")
    if config.kernels.mean != "auto":
        return config.kernels.mean
    return "native" if jax.default_backend() == "cpu" and native.available() else "segment"


def _choose(config: Config, relation: Relation, edges: EdgeSet, graph: HeteroGraph) -> tuple[Choice, SemanticGraph]:
    name = str(relation)
    host_graph = SemanticGraph.from_incoming(edges.indptr, edges.senders, graph.num_nodes[relation.source], name)
    if config.task.exclude_targets:
        return Choice("neighbor_sum", name, _summing(config), "means without the batch's own edges"), host_graph
    return choose_aggregation(config, name, host_graph), host_graph


def _target_edges(
    graph: HeteroGraph,
    links: LinkTriples,
    edges: Mapping[Relation, EdgeSet],
    stacks: Mapping[str, StackedRelations],
    orders: Mapping[str, np.ndarray],
) -> dict[str, TargetEdges]:
    train = links.triples["train"]
    none = len(train)
    shown = {
        relation: (np.full(own.num_edges, none, np.int32), np.full(own.num_edges, none, np.int32))
        for relation, own in edges.items()
    }
    for number, relation in enumerate(links.relations):
        ids = np.flatnonzero(train[:, 1] == number).astype(np.int32)
        heads, tails = train[ids, 0], train[ids, 2]
        pairs, positions = edge_positions(edges[relation], heads, tails)
        shown[relation][0][positions] = ids[pairs]
        # Of the graph with all edges: the split does not change who is whose reverse. Relations added since are too.
        back = {*reverses(graph, relation), relation.reversed()} & edges.keys()
        for reverse in sorted(back):
            pairs, positions = edge_positions(edges[reverse], tails, heads)
            shown[reverse][1][positions] = ids[pairs]
    found = {}
    for relation, own in edges.items():
        forwards, backwards = shown[relation]
        found[str(relation)] = TargetEdges(forwards, backwards, own.receivers, own.num_targets)
    for name, stack in stacks.items():
        joined = [found.pop(relation) for relation in stack.relations]
        forwards, backwards = (
            np.concatenate([getattr(own, side) for own in joined])[orders[name]] for side in ("forwards", "backwards")
        )
        found[name] = TargetEdges(forwards, backwards, stack.group_of_edge, stack.num_groups)
    return found
