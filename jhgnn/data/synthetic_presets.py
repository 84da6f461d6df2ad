"""What each synthetic heterograph looks like: counts of the real one, and where its class signal is planted.

A class is planted as two or three *facets*, coarser partitions of the classes. A relation follows one facet only, so
no relation tells all classes apart; those that follow different facets do so together. Features follow the class
itself, faintly.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jhgnn.data.synthetic_edges import Degrees


@dataclasses.dataclass(frozen=True)
class PlantedRelation:
    """Attributes:
    source, name, target: the relation as it is named; its reverse is added.
    num_edges: at full scale.
    facet: community of each class, `[num_classes]`.
    fidelity: share of edges that stay within a community by intention.
    degrees: the left side is the target type where `left_is_target`.
    undirected: within one type, both directions in one relation; `num_edges` counts pairs.
    """

    source: str
    name: str
    target: str
    num_edges: int
    facet: np.ndarray
    fidelity: float
    degrees: Degrees
    left_is_target: bool = False
    undirected: bool = False


_WORD_DEGREES = Degrees(left_skew=0.25, right_skew=0.75, covered=False)


@dataclasses.dataclass(frozen=True)
class PlantedWords:
    """Binary bag of words: CSR `[num_nodes, width]` with exactly `nnz` entries at full scale."""

    width: int
    nnz: int
    fidelity: float
    degrees: Degrees = _WORD_DEGREES


@dataclasses.dataclass(frozen=True)
class PlantedVectors:
    """Dense `[num_nodes, width]`: `signal` times a vector of the node's class, plus noise of variance 1 a column."""

    width: int
    signal: float


@dataclasses.dataclass(frozen=True)
class Preset:
    """Attributes:
    target: the labelled type.
    num_nodes: of each type, at full scale.
    class_weights: whole weights; the class sizes of the target type are in proportion to them.
    label_noise: share of target nodes that swap labels among each other after everything is drawn.
    splits: sizes of train, val and test at full scale.
    """

    target: str
    num_nodes: Mapping[str, int]
    class_weights: np.ndarray
    relations: tuple[PlantedRelation, ...]
    features: Mapping[str, PlantedWords | PlantedVectors]
    splits: tuple[int, int, int]
    label_noise: float

    @property
    def num_classes(self) -> int:
        return len(self.class_weights)


def _facet(*communities: int) -> np.ndarray:
    return np.array(communities)


ACM = Preset(
    target="paper",
    num_nodes={"paper": 3025, "author": 5912, "subject": 57},
    class_weights=np.array([994, 970, 1061]),
    relations=(
        PlantedRelation(
            "author", "writes", "paper", 9936, _facet(0, 1, 1), 0.95,
            Degrees(left_skew=0.375, right_skew=0.5), left_is_target=True,
        ),
        PlantedRelation("paper", "has_subject", "subject", 3025, _facet(0, 0, 1), 0.95, Degrees(right_skew=1.75)),
    ),
    features={
        "paper": PlantedWords(1902, 257484, 0.1),
        "author": PlantedWords(1902, 701276, 0.1),
        "subject": PlantedWords(1902, 27329, 0.1),
    },
    splits=(600, 300, 2125),
    label_noise=0.03,
)  # fmt: skip

IMDB = Preset(
    target="movie",
    num_nodes={"movie": 4278, "director": 2081, "actor": 5257},
    class_weights=np.array([1135, 1584, 1559]),
    relations=(
        PlantedRelation("director", "directs", "movie", 4278, _facet(0, 1, 1), 0.95, Degrees(right_skew=0.5), True),
        PlantedRelation(
            "actor", "acts_in", "movie", 12828, _facet(0, 0, 1), 0.95,
            Degrees(right_skew=0.5, least=3), left_is_target=True,
        ),
    ),
    features={
        "movie": PlantedWords(3066, 27175, 0.4),
        "director": PlantedWords(3066, 25784, 0.4),
        "actor": PlantedWords(3066, 76501, 0.4),
    },
    splits=(400, 400, 3478),
    label_noise=0.1,
)  # fmt: skip

DBLP = Preset(
    target="author",
    num_nodes={"author": 4057, "paper": 14328, "term": 7723, "venue": 20},
    class_weights=np.array([1197, 745, 1109, 1006]),
    relations=(
        PlantedRelation("author", "writes", "paper", 19645, _facet(0, 1, 2, 3), 0.9, Degrees(0.5, 0.0)),
        PlantedRelation("paper", "published_in", "venue", 14328, _facet(0, 0, 1, 1), 0.95, Degrees(right_skew=0.5)),
        PlantedRelation("paper", "has_term", "term", 85810, _facet(0, 1, 0, 1), 0.95, Degrees(0.125, 0.75)),
    ),
    features={
        "author": PlantedWords(334, 48810, 0.2),
        "paper": PlantedWords(4231, 95030, 0.2),
        "term": PlantedVectors(50, 0.1),
    },
    splits=(400, 400, 3257),
    label_noise=0.04,
)

_MAG_CLASSES = np.arange(349)

MAG = Preset(
    target="paper",
    num_nodes={"author": 1134649, "field_of_study": 59965, "institution": 8740, "paper": 736389},
    class_weights=np.sqrt(2**40 // (1 + _MAG_CLASSES)).astype(np.int64),
    relations=(
        PlantedRelation(
            "author", "affiliated_with", "institution", 1043998, _MAG_CLASSES // 19, 0.8,
            Degrees(left_skew=0.25, right_skew=0.875, least=0),
        ),
        PlantedRelation(
            "author", "writes", "paper", 7145660, _MAG_CLASSES // 19, 0.8,
            Degrees(left_skew=0.5, right_skew=0.5), left_is_target=True,
        ),
        PlantedRelation(
            "paper", "cites", "paper", 5416271, (_MAG_CLASSES // 19 + _MAG_CLASSES) % 19, 0.6,
            Degrees(left_skew=0.5, right_skew=0.625, least=0, covered=False), undirected=True,
        ),
        PlantedRelation(
            "paper", "has_topic", "field_of_study", 7505078, _MAG_CLASSES % 19, 0.6,
            Degrees(left_skew=0.25, right_skew=0.75),
        ),
    ),
    features={"paper": PlantedVectors(128, 0.25)},
    splits=(629571, 64879, 41939),
    label_noise=0.2,
)  # fmt: skip

PRESETS: Mapping[str, Preset] = {"acm": ACM, "imdb": IMDB, "dblp": DBLP, "mag": MAG}
