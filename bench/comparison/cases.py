"""What is compared: three models on four data sets, each with one recipe that every framework trains by."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bench.comparison.graph_folder import PlainGraph, write_graph
from bench.comparison.molecules import molecules
from bench.record import DATA_ROOT, ROOT
from jhgnn import models
from jhgnn.config import Config
from jhgnn.config.fan_out import parse as parse_fan_out
from jhgnn.config.recipe import load_recipe
from jhgnn.data import load
from jhgnn.data.synthetic_presets import PRESETS
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.nn.layer_plan import LayerPlan, plan_layers
from jhgnn.training.problem import Problem, build_graphs, pose, read_metapaths

MODELS = ("han", "rgcn", "rgat")
DATASETS = {
    "acm": ("arrays", "acm_gtn"),
    "imdb": ("magnn", "magnn_imdb"),
    "dblp": ("magnn", "magnn_dblp"),
    "aifb": ("rdf", "rdf_aifb"),
}
TARGET_F1 = {"acm": 0.90, "imdb": 0.55, "dblp": 0.90, "aifb": 0.80}
"""Validation micro-F1 whose first reaching is the time to accuracy; every framework reaches it in most cells."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model on a data set."""

    model: str
    dataset: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.dataset}"


CASES = tuple(Case(model, dataset) for dataset in DATASETS for model in MODELS)
MOLECULE_CASES = (Case("rgcn", "molecules"), Case("rgat", "molecules"))
"""On the generated graph of MUTAG's size and relations, with AIFB's recipes; beside the twelve, in no mean."""
FEATURELESS = ("aifb", "molecules")
TIMED = tuple(Case(model, dataset) for dataset in ("acm", "dblp", "imdb", "aifb") for model in MODELS) + (
    MOLECULE_CASES
)
"""In the order of timing: what people look for comes first, and AIFB is the first to go without time."""
MINIBATCH_CASES = tuple(Case(model, "mag") for model in MODELS)
"""Neighbour-sampled training on the synthetic graph of ogbn-mag's size, by the recipes of `configs/`."""


def recipe(case: Case) -> Config:
    """The repository's own recipe."""
    if case in MOLECULE_CASES:
        aifb = recipe(Case(case.model, "aifb"))
        return dataclasses.replace(aifb, model=dataclasses.replace(aifb.model, bases=0))
    return load_recipe(ROOT / "configs" / f"{case.model}_{case.dataset}.toml")


def is_real(dataset: str) -> bool:
    """Whether its files are here or it is made for this comparison; else its synthetic graph stands in, if any."""
    return dataset == "molecules" or (dataset in DATASETS and (DATA_ROOT / DATASETS[dataset][1]).is_dir())


def read_dataset(dataset: str) -> HeteroGraph:
    """The heterograph by jhgnn's reader, or the synthetic one where the files are not here; peers get it by `export`.

    Raises:
        InputError: the files are not here, and no synthetic graph stands in for them.
    """
    if dataset == "molecules":
        return molecules()
    if is_real(dataset):
        layout, folder = DATASETS[dataset]
        return load(layout, DATA_ROOT / folder, progress=False)
    if dataset not in PRESETS:
        raise InputError(f"{dataset}: no data at {DATA_ROOT / DATASETS[dataset][1]}; set JHGNN_DATA_ROOT")
    graph = load("synthetic", dataset, progress=False)
    return graph.with_reverse_relations() if dataset == "mag" else graph


def problem_of(graph: HeteroGraph, config: Config) -> Problem:
    """A recipe's problem on a graph that is as every framework gets it: no nodes are moved, nothing is added."""
    data = dataclasses.replace(config.data, validation=True, reverse_relations=False, one_hot=False)
    return pose(graph, dataclasses.replace(config, data=data))


def semantic_edges(graph: HeteroGraph, config: Config) -> int:
    """Edges of the semantic graphs that the model aggregates over."""
    _, graphs = build_graphs(problem_of(graph, config))
    return sum(each.num_edges for each in graphs.values())


def uses_metapaths(config: Config) -> bool:
    """Whether the recipe's model aggregates over metapaths."""
    return models.find(config.model.name).over == "metapaths"


def plain(graph: HeteroGraph, config: Config) -> PlainGraph:
    """The graph in its neutral form, with the metapaths that the model aggregates over, if it does."""
    assert graph.target is not None
    assert graph.labels is not None
    relations = list(graph.schema.relations)
    metapaths = {}
    if uses_metapaths(config):
        for metapath in read_metapaths(graph, config.model):
            metapaths[metapath.name] = [relations.index(step) for step in metapath.relations]
    return PlainGraph(
        name=graph.name,
        num_nodes=graph.num_nodes,
        relations=[(each.source, each.name, each.target) for each in relations],
        edges=[
            (graph.edges[each].senders.astype(np.int64), graph.edges[each].receivers.astype(np.int64))
            for each in relations
        ],
        features={
            node_type: matrix if isinstance(matrix, np.ndarray) else sparse.csr_array(matrix)
            for node_type, matrix in graph.features.items()
        },
        target=graph.target,
        labels=graph.labels if graph.multi_label else graph.labels.astype(np.int64),
        num_classes=graph.num_classes,
        splits={split: ids.astype(np.int64) for split, ids in graph.splits.items()},
        metapaths=metapaths,
    )


def export(graph: HeteroGraph, config: Config, folder: Path) -> Path:
    """Writes the neutral folder, once."""
    if not (folder / "graph.json").exists():
        write_graph(plain(graph, config), folder)
    return folder


def settings(graph: HeteroGraph, config: Config) -> dict[str, Any]:
    """The recipe as the peers read it: the model's and the training's fields, activation and layers resolved.

    `plan` lists for each layer over relations the positions of those that it computes, and the node types that it reads
    and makes; all frameworks leave out what no later layer reads.
    """
    assert graph.target is not None
    kind, training = models.find(config.model.name), config.training
    model = kind.settled(config.model)
    relations = {str(each): each for each in graph.schema.relations}
    order = list(relations)
    plans: tuple[LayerPlan, ...] = ()
    if kind.over == "relations":
        plans = plan_layers(relations, (graph.target,), model.layers, reads_targets=True)
    return dataclasses.asdict(model) | {
        "plan": [
            {"relations": [order.index(name) for name in layer.relations], "reads": layer.reads, "makes": layer.makes}
            for layer in plans
        ],
        "epochs": training.epochs,
        "patience": training.patience,
        "learning_rate": training.learning_rate,
        "weight_decay": training.weight_decay,
        "batch_size": config.sampling.batch_size,
        "walks": config.sampling.walks,
        "fan_out": _fan_out(config, model.layers),
    }


def _fan_out(config: Config, layers: int) -> list[int]:
    """Neighbours drawn at each hop, or of each metapath's walks."""
    found = parse_fan_out(config.sampling.fan_out, "sampling.fan_out")
    if isinstance(found, int):
        return [found] * layers
    if not isinstance(found, list):
        raise InputError(f"sampling.fan_out = {config.sampling.fan_out!r}: the comparison takes one number a hop")
    return [int(each) for each in found]
