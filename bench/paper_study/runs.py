"""The runs that the paper's experiments need, and sums over their figures; `profiled` takes them."""

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from jhgnn import models
from jhgnn.config import Config
from jhgnn.config.recipe import override

MODELS = ("han", "rgcn", "rgat")
DATASETS = ("acm", "imdb", "dblp")
METAPATHS = {"acm": ["PAP", "PSP"], "imdb": ["MDM", "MAM", "MAMDM"], "dblp": ["APA", "APVPA", "APTPA"]}
LENGTHS = {3: "MAM", 5: "MAMAM", 7: "MAMAMAM", 9: "MAMAMAMAM"}
NUMBERS = ("MAMAM", "MAMDM", "MDMAM", "MDMDM", "MAMAMAM", "MAMAMDM", "MAMDMAM", "MDMAMAM")
SAMPLED = {"imdb": (1.0, 128), "dblp": (1.0, 128), "mag": (0.1, 1024)}
"""Data set -> scale and targets a batch; the paper's batches are 64 to 256, on MAG 512 to 2048."""
MAG_METAPATHS = ("paper,author,paper", "paper,field_of_study,paper")
SAMPLED_LENGTHS = {
    "imdb": LENGTHS,
    "mag": {1 + 2 * steps: "paper" + ",author,paper" * steps for steps in (1, 2, 3)},
}
SAMPLED_NUMBERS = {
    "imdb": NUMBERS,
    "mag": (*MAG_METAPATHS, "paper" + ",author,paper" * 2, "paper" + ",field_of_study,paper" * 2),
}
AGGREGATIONS = ("segment", "fused")
"""How neighbors are aggregated: by a message for each edge and sums of those, as the paper's stack does, or by this
stack's own kernels. Messages of whole graphs are summed by segments, those of sampled neighbors by rows of a table."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One profile to take: `group` names the experiment, `aggregation` one of `AGGREGATIONS`."""

    group: str
    name: str
    aggregation: str
    config: Config

    @property
    def key(self) -> tuple[str, str, str]:
        """What a stored row of it is found by."""
        return self.group, self.name, self.aggregation


def planned(quick: bool = False) -> list[Run]:
    """Every run, in order; `quick` takes a small part of each data set, to try the study out."""
    scale = 0.05 if quick else 1.0
    runs = []
    for aggregation in reversed(AGGREGATIONS):
        for model in MODELS:
            for dataset in DATASETS:
                runs.append(_whole("pairs", f"{model} {dataset}", aggregation, model, dataset, scale))
        for length, metapath in LENGTHS.items():
            runs.append(_whole("length", str(length), aggregation, "han", "imdb", scale, [metapath]))
        for number in range(1, len(NUMBERS) + 1):
            runs.append(_whole("number", str(number), aggregation, "han", "imdb", scale, list(NUMBERS[:number])))
        for model in ("gcn", "gat"):
            for dataset in DATASETS:
                runs.append(_whole("homogeneous", f"{model} {dataset}", aggregation, model, dataset, scale))
        for dataset in SAMPLED:
            for model in MODELS:
                runs.append(_sampled("sampled", f"{model} {dataset}", aggregation, model, dataset, scale))
    for dataset, lengths in SAMPLED_LENGTHS.items():
        for length, metapath in lengths.items():
            runs.append(_sampled("sample length", f"{dataset} {length}", "fused", "han", dataset, scale, [metapath]))
    for dataset, names in SAMPLED_NUMBERS.items():
        for number in (each for each in (1, 2, 4, 8) if each <= len(names)):
            metapaths = list(names[:number])
            runs.append(_sampled("sample number", f"{dataset} {number}", "fused", "han", dataset, scale, metapaths))
    return runs


def over_metapaths(model: str) -> bool:
    """Whether a model aggregates over metapaths."""
    return models.find(model).over == "metapaths"


def _sampled(
    group: str, name: str, aggregation: str, model: str, dataset: str, scale: float, metapaths: list[str] | None = None
) -> Run:
    """Mini-batches prepared in turn, as in the paper, so that nothing hides the sampling; HAN by random walks."""
    own_scale, batch_size = SAMPLED[dataset]
    aggregates = "attention" if models.find(model).attends() else "mean"
    metapaths = metapaths or (list(MAG_METAPATHS) if dataset == "mag" else METAPATHS[dataset])
    tables: dict[str, Any] = {
        "data": {"preset": dataset, "scale": scale * own_scale, "reverse_relations": dataset == "mag"},
        "model": {"name": model, **({"metapaths": metapaths} if over_metapaths(model) else {"layers": 2})},
        "kernels": {aggregates: "fanout"} if aggregation == "segment" else {},
        "sampling": {"batch_size": batch_size, "prefetch_threads": 0, "side": "host"}
        | ({"walks": 20, "fan_out": 20} if over_metapaths(model) else {"fan_out": "25,20"}),
    }
    return Run(group, name, aggregation, override(Config(), tables, where="bench.paper"))


def _whole(
    group: str, name: str, aggregation: str, model: str, dataset: str, scale: float, metapaths: list[str] | None = None
) -> Run:
    tables: dict[str, Any] = {
        "data": {"preset": dataset, "scale": scale},
        "model": {"name": model, **({"metapaths": metapaths or METAPATHS[dataset]} if over_metapaths(model) else {})},
        "kernels": {"attention": "segment", "mean": "segment"} if aggregation == "segment" else {},
        "training": {"rows": "all"},  # as the paper's stack, which knows no other way
    }
    return Run(group, name, aggregation, override(Config(), tables, where="bench.paper"))


def total(row: Mapping[str, Any], key: str = "seconds", stage: str = "", direction: str = "") -> float:
    """A sum over the stages of one run; empty means any."""
    return sum(
        float(each[key])
        for each in row["stages"]
        if (not stage or each["stage"] == stage) and (not direction or each["direction"] == direction)
    )


def geometric_mean(values: list[float]) -> float:
    """As the paper averages."""
    return statistics.geometric_mean(values)
