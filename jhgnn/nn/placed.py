"""What a model is built for and reads, made from a heterograph alone: for somebody's own `jax.jit` loop."""

from typing import Literal

import jax
import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph_build import build_relation
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.nn.inputs import GraphInputs, GraphSpec
from jhgnn.ops.registry import OPS


def whole_graph(
    graph: HeteroGraph,
    *,
    target: str | None = None,
    aggregation: Literal["neighbor_attention", "neighbor_mean"] = "neighbor_mean",
) -> tuple[GraphSpec, GraphInputs]:
    """The sizes that a model over relations is built for, and the whole graph as its input on the default device.

        spec, inputs = jhgnn.nn.whole_graph(graph)
        model = MyModel(jhgnn.nn.ModelConfig(hidden=64), spec, rngs=nnx.Rngs(0))
        rows = model.encode(inputs)["paper"]  # [num_papers, 64]

    `inputs` is a pytree: give it to a compiled function as an argument, so that it does not become a constant of the
    program. Every relation is a semantic graph; node types and relations that are empty are left out. The fastest
    implementation for the default device is chosen for each relation, as `fit` chooses it.

    Args:
        graph: on the host.
        target: the node type whose rows are asked for; None: the graph's labelled type.
        aggregation: the op of neighbor aggregation that the model uses, its class attribute of that name.

    Raises:
        InputError: there is no such node type, the graph has no labelled one, or there is no such op.
    """
    if aggregation not in ("neighbor_attention", "neighbor_mean"):
        raise InputError(f"aggregation is {aggregation!r}; need 'neighbor_attention' or 'neighbor_mean'")
    target = graph.target if target is None else target
    if target is None:
        raise InputError(f"graph {graph.name!r} has no labelled node type; name the target")
    if target not in graph.num_nodes:
        raise InputError(f"target {target!r} is not a node type of {graph.name!r}; known: {', '.join(graph.num_nodes)}")
    bare = graph.without_empty()
    op, sparse_op = OPS[aggregation], OPS["sparse_matmul"]
    features: dict[str, jax.Array | SparseFeatures] = {}
    sparse_implementation = "segment"
    for node_type, matrix in bare.features.items():
        if isinstance(matrix, np.ndarray):
            features[node_type] = jax.device_put(matrix)
        else:
            sparse = SparseFeatures.from_scipy(matrix)
            sparse_implementation, _ = sparse_op.choose(sparse)
            features[node_type] = sparse.place(sparse_op.views(sparse_implementation, SparseFeatures))
    graphs, implementations = {}, {}
    for relation in bare.edges:
        built = build_relation(bare, relation)
        implementations[str(relation)], _ = op.choose(built)
        graphs[str(relation)] = built.place(op.views(implementations[str(relation)]))
    spec = GraphSpec(
        num_nodes=dict(bare.num_nodes),
        feature_widths={node_type: matrix.shape[1] for node_type, matrix in bare.features.items()},
        targets=(target,),
        relations={str(relation): relation for relation in bare.edges},
        metapaths=(),
        implementations=implementations,
        sparse_implementation=sparse_implementation,
    )
    return spec, GraphInputs(features, graphs)
