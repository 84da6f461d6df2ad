"""Explanation: what one node's prediction rests on, as plain values."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class RelationShare:
    """What a relation, or a metapath that the model aggregates over, adds.

    Attributes:
        relation: its name.
        num_edges: in the receptive field.
        gradient: derivative of the class's log-odds by a factor on all its messages, in nats.
        without: the class's probability where its edges are not there.
        mask: the mean of its edges' learnt masks; None where none were learnt or it has no edges.
        attention: the attention flow along its edges, over all layers; None for models without edge attention.
    """

    relation: str
    num_edges: int
    gradient: float
    without: float
    mask: float | None
    attention: float | None


@dataclasses.dataclass(frozen=True)
class Metapath:
    """A chain of relations in the order in which messages pass, and its contribution in nats."""

    metapath: str
    contribution: float


@dataclasses.dataclass(frozen=True)
class ExplainedEdge:
    """An edge of the receptive field, with what each way says of it; `gradient` in nats, the others as above."""

    relation: str
    sender: str
    receiver: str
    gradient: float
    mask: float | None
    attention: float | None


@dataclasses.dataclass(frozen=True)
class FeatureShare:
    """A feature's gradient times its value, summed over the nodes of a type, in nats; `own`: of the node itself."""

    node_type: str
    feature: str
    contribution: float
    own: float


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """How well the `num_edges` most important edges carry a prediction.

    Attributes:
        plus: fall of the class's probability without these edges; high is good.
        minus: fall of the class's probability with these edges alone; low is good.
        num_edges: how many.
    """

    plus: float
    minus: float
    num_edges: int


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """What a node's prediction rests on.

    Attributes:
        node_type, node: its type and key.
        predicted: the class that is explained.
        probability: of it.
        num_nodes, num_edges: of the receptive field.
        relations: those with edges first; by contribution.
        metapaths: the largest contributions first.
        edges: those that any way counts among its `top`.
        features: the largest contributions first.
        fidelity: way -> of the edges that it puts first; `random` is the mean of five draws, to compare with.
        semantic_attention: layer -> metapath -> weight, of models that have it.
        settings: that it was made with.
        picture: the SVG of the neighbourhood.
    """

    node_type: str
    node: str
    predicted: str
    probability: float
    num_nodes: int
    num_edges: int
    relations: Sequence[RelationShare]
    metapaths: Sequence[Metapath]
    edges: Sequence[ExplainedEdge]
    features: Sequence[FeatureShare]
    fidelity: dict[str, Fidelity]
    semantic_attention: dict[int, dict[str, float]]
    settings: dict[str, Any]
    picture: str = dataclasses.field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the picture."""
        found = dataclasses.asdict(self)
        del found["picture"]
        found["semantic_attention"] = {str(layer): each for layer, each in self.semantic_attention.items()}
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class EdgeScores:
    """What each way says of every edge of a receptive field, float64 `[num_edges]`.

    `gradients` are signed, in nats; `masks` are in (0, 1), or None; `attention` is not negative, or None.
    """

    gradients: np.ndarray
    masks: np.ndarray | None
    attention: np.ndarray | None

    def by_way(self) -> dict[str, np.ndarray]:
        """Way -> its scores, of the ways that there are."""
        found = {"gradients": self.gradients, "masks": self.masks, "attention": self.attention}
        return {way: scores for way, scores in found.items() if scores is not None}


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest scores, first the highest; ties in their order."""
    return np.argsort(-scores, kind="stable")[:count]
