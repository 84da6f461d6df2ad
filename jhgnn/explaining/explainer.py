"""Explainer: explanations of a predictor's nodes, one after the other, by all ways at once."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jhgnn.config.options import ExplainConfig
from jhgnn.errors import InputError
from jhgnn.explaining.attention import AttentionFlow, attention_flow
from jhgnn.explaining.explanation import (
    EdgeScores,
    ExplainedEdge,
    Explanation,
    FeatureShare,
    Fidelity,
    Metapath,
    RelationShare,
    highest,
)
from jhgnn.explaining.field_program import FieldProgram, Gradients, MaskSettings, Placed
from jhgnn.explaining.neighbourhood import Neighbourhood, neighbourhood_of
from jhgnn.explaining.page import explanations_page
from jhgnn.explaining.picture import picture
from jhgnn.explaining.walks import walks
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.inference.predictor import Predictor
from jhgnn.runtime.files import finite

RANDOM_DRAWS = 5


class _Scored(NamedTuple):
    """The number of the class that is explained, its gradients, the flow of attention, and the scores of edges."""

    of: int
    gradients: Gradients
    flow: AttentionFlow | None
    scores: EdgeScores


class Explainer:
    """Explains target nodes on their receptive fields; programs are kept from one node to the next."""

    def __init__(self, predictor: Predictor, settings: ExplainConfig | None = None) -> None:
        """
        Args:
            predictor: of node classification.
            settings: None: the defaults.

        Raises:
            InputError: the model erases types.
        """
        self._predictor, self._graph = predictor, predictor.graph
        self.settings = ExplainConfig() if settings is None else settings
        self._on = predictor.on_fields()
        self._program = FieldProgram(self._on, predictor.target, multi_label=self._graph.multi_label)

    def field(self, node: int) -> tuple[Neighbourhood, Placed]:
        """The receptive field of a target node.

        Raises:
            InputError: it has too many edges, or a node without a row.
        """
        plans, target, most = self._program.plans, self._predictor.target, self.settings.most_edges
        try:
            field = neighbourhood_of(plans, self._on.edges, target, node, most)
        except InputError as error:
            raise InputError(f"{self._key(target, node)!r}: {error}") from None
        for name, ids in field.rows[-1].items():
            self._on.learnt.check(self._graph, name, ids[ids >= 0])
        return field, self._program.place(field)

    def scores(self, node: int) -> tuple[Neighbourhood, EdgeScores]:
        """A node's receptive field and what each way says of its edges."""
        field, placed = self.field(node)
        return field, self._scored(field, placed).scores

    def _scored(self, field: Neighbourhood, placed: Placed) -> _Scored:
        """The class that is explained, and what each way says of it."""
        logits, shown = self._program.logits(field, placed)
        of = int(logits.argmax())
        gradients, flow = self._program.gradients(field, placed, of), attention_flow(field, shown)
        edges = np.asarray(gradients.edges, np.float64)[: len(field.edges)]
        masks = self._masks(field, placed, of)
        return _Scored(of, gradients, flow, EdgeScores(edges, masks, None if flow is None else flow.edges))

    def explain(self, node: int) -> Explanation:
        """One node by its number.

        Raises:
            InputError: as `field`.
        """
        field, placed = self.field(node)
        program, top = self._program, self.settings.top
        of, found, flow, scores = self._scored(field, placed)
        probability = float(program.probabilities(field, placed)[of])
        gates = np.asarray(found.gates)
        chains = walks(program, field, placed, of, gates)
        graph = self._graph
        name = graph.class_names[of] if graph.class_names else str(of)
        target = self._predictor.target
        key = self._key(target, node)
        chosen = list(dict.fromkeys(int(edge) for own in scores.by_way().values() for edge in highest(own, top)))
        return Explanation(
            node_type=target,
            node=key,
            predicted=name,
            probability=probability,
            num_nodes=field.num_nodes,
            num_edges=len(field.edges),
            relations=self._relations(field, placed, of, gates, scores, flow),
            metapaths=[Metapath(each.name, each.contribution) for each in chains[:top]],
            edges=[self._edge(field, scores, edge) for edge in chosen],
            features=self._features(field, placed, found.inputs, top),
            fidelity=self._fidelity(field, placed, of, probability, scores),
            semantic_attention={} if flow is None else flow.semantic,
            settings=dataclasses.asdict(self.settings),
            picture=picture(field, scores, self._key, f"{target} {key}"),
        )

    def _key(self, node_type: str, node: int) -> str:
        return str(self._graph.node_keys(node_type, np.array([node]))[0])

    def _masks(self, field: Neighbourhood, placed: Placed, of: int) -> np.ndarray | None:
        own = self.settings
        if not own.steps:
            return None
        settings = MaskSettings(own.steps, own.learning_rate, own.size, own.entropy)
        return np.asarray(self._program.masks(field, placed, of, settings), np.float64)

    def _relations(
        self,
        field: Neighbourhood,
        placed: Placed,
        of: int,
        gates: np.ndarray,
        scores: EdgeScores,
        flow: AttentionFlow | None,
    ) -> list[RelationShare]:
        found = []
        for number, name in enumerate(field.edges.names):
            own = field.edges.of(name)
            mask = None if scores.masks is None or not own.any() else float(scores.masks[own].mean())
            found.append(
                RelationShare(
                    name,
                    int(own.sum()),
                    float(gates[:, number].sum()),
                    float(self._program.probabilities(field, placed, ~own)[of]),
                    mask,
                    None if flow is None else float(flow.relations[number]),
                )
            )
        return sorted(found, key=lambda each: (-abs(each.gradient), -each.num_edges))

    def _edge(self, field: Neighbourhood, scores: EdgeScores, edge: int) -> ExplainedEdge:
        name = field.edges.names[field.edges.relations[edge]]
        relation = next(plan.relations[name] for plan in field.plans if name in plan.relations)
        mask, attention = scores.masks, scores.attention
        return ExplainedEdge(
            name,
            self._key(relation.source, int(field.edges.senders[edge])),
            self._key(relation.target, int(field.edges.receivers[edge])),
            float(scores.gradients[edge]),
            None if mask is None else float(mask[edge]),
            None if attention is None else float(attention[edge]),
        )

    def _fidelity(
        self, field: Neighbourhood, placed: Placed, of: int, probability: float, scores: EdgeScores
    ) -> dict[str, Fidelity]:
        size, top = len(field.edges), min(self.settings.top, len(field.edges))

        def fell(chosen: np.ndarray) -> tuple[float, float]:
            keep = np.zeros(size, bool)
            keep[chosen] = True
            without, alone = (self._program.probabilities(field, placed, each)[of] for each in (~keep, keep))
            return probability - float(without), probability - float(alone)

        found = {way: Fidelity(*fell(highest(own, top)), top) for way, own in scores.by_way().items()}
        draw = np.random.default_rng(field.node)
        drawn = [fell(draw.choice(size, top, replace=False)) for _ in range(RANDOM_DRAWS)]
        plus, minus = np.mean(drawn, axis=0)
        return found | {"random": Fidelity(float(plus), float(minus), top)}

    def _features(self, field: Neighbourhood, placed: Placed, products: dict[str, Any], top: int) -> list[FeatureShare]:
        found = []
        for name, product in products.items():
            own_row = 0 if name == field.target else -1
            values, stored = np.asarray(product, np.float64), placed.features[name]
            if name not in self._graph.features:  # a learnt row has no columns that mean anything
                own = float(values[0].sum()) if own_row == 0 else 0.0
                found.append(FeatureShare(name, "learnt row", float(values.sum()), own))
                continue
            width = self._graph.features[name].shape[1]
            if isinstance(stored, SparseRows):
                columns = np.asarray(stored.columns)
                total = np.bincount(columns.reshape(-1), values.reshape(-1), minlength=width)
                own_values = np.bincount(columns[0], values[0], minlength=width)
            else:
                total, own_values = values.sum(axis=0), values[0]
            labels = [label for part in self._graph.columns.get(name, ()) for label in part.labels]
            for column in highest(np.abs(total), top):
                if total[column] or (own_row == 0 and own_values[column]):
                    label = labels[column] if labels else f"{name}[{column}]"
                    own = float(own_values[column]) if own_row == 0 else 0.0
                    found.append(FeatureShare(name, label, float(total[column]), own))
        return sorted(found, key=lambda each: -abs(each.contribution))[:top]


def explain(predictor: Predictor, nodes: Sequence[int], settings: ExplainConfig | None = None) -> list[Explanation]:
    """Explanations of target nodes, by their numbers, in their order.

    Raises:
        InputError: as `Explainer` and `Explainer.explain`.
    """
    explainer = Explainer(predictor, settings)
    return [explainer.explain(int(node)) for node in nodes]


def files_of(explanations: Sequence[Explanation], title: str) -> dict[str, str]:
    """`explanations.json` and `explanations.html`, by name."""
    content = finite([each.to_json() for each in explanations])
    return {
        "explanations.json": json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n",
        "explanations.html": explanations_page(explanations, title),
    }
