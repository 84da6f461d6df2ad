"""A run as a program that needs no model code: `jax.export` with its weights, its inputs, and a schema of them."""

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.errors import InputError
from jhgnn.graph.edge_features import EdgeFeatures
from jhgnn.graph.semantic_graph import Coo, Csr, SemanticGraph
from jhgnn.nn.inputs import GraphInputs, GraphSpec
from jhgnn.runtime.files import replacing_folder, write_json
from jhgnn.runtime.output_folder import not_written
from jhgnn.runtime.platform import WITHOUT_KERNELS, compiling_for
from jhgnn.tasks.node_classification import NodeClassification
from jhgnn.training.execution import builder_of
from jhgnn.training.problem import Problem, build_graphs, feature_widths, relations_of, with_edge_features
from jhgnn.training.state import Params, abstract_params, param_names, structure_of

PLATFORMS = ("cpu", "cuda")
"""What a program runs on; its operations are XLA's own, and no kernel of this package."""
IMPLEMENTATION = "segment"
VERSION = 1


def export(problem: Problem, params: Params, folder: Path) -> None:
    """Writes `program.bin`, `weights.npz`, `graph.npz` and `schema.json`; the folder appears whole or not at all.

    The program is called with the arrays of `weights.npz` and those of `graph.npz` by their names, and gives
    `probabilities` `[num_targets, num_classes]` and `embeddings` `[num_targets, hidden]`.

    Args:
        problem: of node classification.
        params: the trained parameters.
        folder: must not be there.

    Raises:
        InputError: the task is another one, flatbuffers is not installed, the folder is there already, or it cannot be
            written.
    """
    if not isinstance(problem.task, NodeClassification):
        raise InputError(f"task {problem.task.name!r} cannot be exported; runs of 'node_classification' can")
    if importlib.util.find_spec("flatbuffers") is None:
        raise InputError(
            "jax.export writes programs with flatbuffers, which is not installed; run: python -m pip install"
            " 'jhgnn[export]'"
        )
    if folder.exists():
        raise InputError(f"{folder} exists; name a folder that is not there yet")
    task, config, graph = problem.task, problem.config.model, problem.graph
    metapaths, built = build_graphs(problem)
    graphs, edge_features = with_edge_features(problem, built)
    spec = GraphSpec(
        num_nodes=dict(graph.num_nodes),
        feature_widths=feature_widths(graph),
        targets=task.targets,
        relations=relations_of(problem, graphs),
        metapaths=tuple(metapath.name for metapath in metapaths),
        implementations=dict.fromkeys(graphs, IMPLEMENTATION),
        sparse_implementation=IMPLEMENTATION,
        edge_widths={name: each.width for name, each in edge_features.items()},
    )

    build = builder_of(problem.model, task, config, spec)
    structure, abstract = structure_of(build), abstract_params(build)
    model: Any = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    read = {name for layer in model.layers for name in layer.plan.relations}
    used = {name: each for name, each in graphs.items() if name in read}
    arrays = _inputs(graph.features, model.embeddings.widths, used)
    arrays |= _edge_inputs({name: each for name, each in edge_features.items() if name in used})
    names, tree = list(param_names(abstract)), jax.tree.structure(abstract)
    activation = jax.nn.sigmoid if graph.multi_label else jax.nn.softmax

    def program(weights: Mapping[str, jax.Array], inputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        own: Any = nnx.merge(structure, jax.tree.unflatten(tree, [weights[name] for name in names]))
        features: Any = {name.partition("/")[2]: each for name, each in inputs.items() if name.startswith("features/")}
        graphs = {name: _graph(name, inputs, each) for name, each in used.items()}
        of_edges = {
            name: EdgeFeatures(inputs[f"edge_features/{name}"], inputs.get(f"edge_senders/{name}"))
            for name in used
            if name in edge_features
        }
        read = GraphInputs(features, graphs, edge_features=of_edges)
        rows = task.represent(own, read, own.encode(read))
        embeddings = rows[task.target].astype(jnp.float32)
        return {"probabilities": activation(task.infer(own, rows)), "embeddings": embeddings}

    weights = {name: np.asarray(leaf) for name, leaf in param_names(params).items()}
    shapes = [{name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in each.items()} for each in (weights, arrays)]
    with compiling_for(WITHOUT_KERNELS):
        made = jax.export.export(jax.jit(program), platforms=PLATFORMS)(*shapes)
    schema = {
        "version": VERSION,
        "platforms": list(made.platforms),
        "jax_version": jax.__version__,
        "model": problem.config.model.name,
        "target": task.target,
        "node_types": [
            {"name": name, "num_nodes": count, "feature_width": spec.feature_widths.get(name)}
            for name, count in graph.num_nodes.items()
        ],
        "graphs": {
            name: {
                "num_senders": each.num_sources,
                "num_receivers": each.num_targets,
                "relation": dataclasses.asdict(spec.relations[name]) if name in spec.relations else None,
            }
            for name, each in used.items()
        },
        "classes": list(graph.class_names) or [str(number) for number in range(graph.num_classes)],
        "several_classes": graph.multi_label,
        "weights": _described(weights),
        "inputs": _described(arrays),
        "outputs": {
            "probabilities": {"shape": [graph.num_nodes[task.target], graph.num_classes], "dtype": "float32"},
            "embeddings": {"shape": [graph.num_nodes[task.target], config.hidden], "dtype": "float32"},
        },
    }
    _write(folder, bytes(made.serialize()), weights, arrays, schema)


def _inputs(
    features: Mapping[str, Any], widths: Mapping[str, int], graphs: Mapping[str, SemanticGraph]
) -> dict[str, np.ndarray]:
    """What a program reads: dense features, and edges by receiver."""
    arrays = {}
    for node_type in widths:
        if node_type in features:
            matrix = features[node_type]
            dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            arrays[f"features/{node_type}"] = np.ascontiguousarray(dense, np.float32)
    for name, graph in graphs.items():
        counts = np.diff(graph.incoming.indptr)
        arrays[f"senders/{name}"] = np.asarray(graph.incoming.indices, np.int32)
        arrays[f"receivers/{name}"] = np.repeat(np.arange(graph.num_targets, dtype=np.int32), counts)
    return arrays


def _edge_inputs(edge_features: Mapping[str, EdgeFeatures]) -> dict[str, np.ndarray]:
    """Means of edge features, or those of split senders and the originals of these."""
    arrays = {f"edge_features/{name}": np.asarray(each.rows) for name, each in edge_features.items()}
    arrays |= {
        f"edge_senders/{name}": np.asarray(each.senders)
        for name, each in edge_features.items()
        if each.senders is not None
    }
    return arrays


def _graph(name: str, inputs: Mapping[str, jax.Array], like: SemanticGraph) -> SemanticGraph:
    """Traced: a graph of the arrays of its edges; only in-edges are read."""
    senders, receivers = inputs[f"senders/{name}"], inputs[f"receivers/{name}"]
    starts = jnp.arange(like.num_targets + 1, dtype=jnp.int32)
    incoming = Csr(jnp.searchsorted(receivers, starts).astype(jnp.int32), senders)
    coo = Coo(receivers, senders, senders)
    return SemanticGraph(incoming, incoming, coo, None, like.num_sources, like.num_targets, name)


def _described(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}


def _write(
    folder: Path, program: bytes, weights: Mapping[str, Any], arrays: Mapping[str, Any], schema: Mapping[str, Any]
) -> None:
    try:
        with replacing_folder(folder) as temporary:
            (temporary / "program.bin").write_bytes(program)
            for name, content in (("weights", weights), ("graph", arrays)):
                with (temporary / f"{name}.npz").open("wb") as file:
                    np.savez(file, allow_pickle=False, **content)
            write_json(temporary / "schema.json", schema)
    except OSError as error:
        raise not_written(str(folder), error) from None
