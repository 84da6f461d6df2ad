"""How links are evaluated: filtered ranks of true heads and tails among all nodes, and ROC-AUC against negatives.

Filtered (Bordes et al., NIPS 2013): nodes that would make another known fact, of any split, do not compete. Ties count
half, so that a model that scores everything alike gains nothing.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.models.link_predictor import LinkRows
from jhgnn.sampling.negatives import SIDES, Side, negative_nodes
from jhgnn.training.link_objective import triple_scores

CHUNK = 512
ATTEMPTS = 32
HITS = (1, 3, 10)


@dataclasses.dataclass(frozen=True, eq=False)
class KnownFacts:
    """All facts of the predicted relations, of every split, to look up the other answers to a query.

    Attributes:
        keys: for each side, ascending int64 `relation << 32 | given node`, one a fact.
        answers: for each side, int32: the node that answers, in the order of the keys.
    """

    keys: Mapping[Side, np.ndarray]
    answers: Mapping[Side, np.ndarray]

    @classmethod
    def of(cls, graph: HeteroGraph, links: LinkTriples) -> "KnownFacts":
        """From the graph with all its edges, the held-out ones included."""
        parts = []
        for number, relation in enumerate(links.relations):
            edges = graph.edges[relation]
            parts.append(np.stack([edges.senders, np.full(edges.num_edges, number), edges.receivers], axis=1))
        facts = np.unique(np.concatenate(parts), axis=0).astype(np.int64)
        keys, answers = {}, {}
        for side in SIDES:
            given, wanted = (facts[:, 0], facts[:, 2]) if side == "tail" else (facts[:, 2], facts[:, 0])
            key = facts[:, 1] << 32 | given
            order = np.lexsort((wanted, key))
            keys[side], answers[side] = key[order], wanted[order].astype(np.int32)
        return cls(keys, answers)

    def answering(self, side: Side, triples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of int32 triples `[n, 3]`: (row, node) of every known answer to each one's query, the true one included."""
        given = triples[:, 0] if side == "tail" else triples[:, 2]
        wanted = triples[:, 1].astype(np.int64) << 32 | given
        first, last = (np.searchsorted(self.keys[side], wanted, side=edge) for edge in ("left", "right"))
        counts = last - first
        rows = np.repeat(np.arange(len(triples)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, self.answers[side][np.repeat(first, counts) + within]

    def contains(self, triples: np.ndarray) -> np.ndarray:
        """Which triples are known facts, bool `[n]`."""
        rows, nodes = self.answering("tail", triples)
        found = np.zeros(len(triples), bool)
        found[rows[nodes == triples[rows, 2]]] = True
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class RankingChunk:
    """Queries of one side: triples padded with zeros, and the known answers to leave out; `CHUNK` is no row."""

    side: Side
    count: int
    triples: np.ndarray  # int32 [CHUNK, 3]
    known_rows: np.ndarray  # int32 [known]
    known_nodes: np.ndarray  # int32 [known]


def ranking_chunks(facts: KnownFacts, triples: np.ndarray) -> list[RankingChunk]:
    """Chunks of both sides, all of one shape; the true answer is not among those to leave out."""
    found: list[tuple[Side, np.ndarray, np.ndarray, np.ndarray]] = []
    for side in SIDES:
        for start in range(0, len(triples), CHUNK):
            own = triples[start : start + CHUNK]
            rows, nodes = facts.answering(side, own)
            true = own[rows, 2 if side == "tail" else 0]
            found.append((side, own, rows[nodes != true], nodes[nodes != true]))
    capacity = max((len(rows) for _, _, rows, _ in found), default=0)
    chunks = []
    for side, own, rows, nodes in found:
        padded = np.zeros((CHUNK, 3), np.int32)
        padded[: len(own)] = own
        known_rows, known_nodes = np.full(capacity, CHUNK, np.int32), np.zeros(capacity, np.int32)
        known_rows[: len(rows)], known_nodes[: len(rows)] = rows, nodes
        chunks.append(RankingChunk(side, len(own), padded, known_rows, known_nodes))
    return chunks


def filtered_ranks(
    rows: LinkRows, triples: jax.Array, known_rows: jax.Array, known_nodes: jax.Array, *, side: Side
) -> jax.Array:
    """Ranks from 1 of the true nodes of one side, float32 `[CHUNK]`: 1 + better ones + half of the equal ones."""
    head, relation, tail = triples[:, 0], rows.relation[triples[:, 1]], triples[:, 2]
    given, candidates, true = (
        (rows.head[head], rows.tail, tail) if side == "tail" else (rows.tail[tail], rows.head, head)
    )
    scores = (given * relation) @ candidates.T
    own = jnp.take_along_axis(scores, true[:, None], axis=1)
    scores = scores.at[known_rows, known_nodes].set(-jnp.inf, mode="drop")
    better, equal = (scores > own).sum(axis=1), (scores == own).sum(axis=1) - 1
    # A NaN beats nothing and equals nothing, itself included: last, not first.
    ranks = 1.0 + better + 0.5 * equal
    return jnp.where(jnp.isfinite(own[:, 0]), ranks, float(candidates.shape[0]))


def ranking_scores(ranks: Sequence[np.ndarray]) -> dict[str, float]:
    """`mrr` and `hits@1`, `hits@3`, `hits@10` over the ranks of both sides."""
    joined = np.concatenate(ranks).astype(np.float64)
    return {"mrr": float((1.0 / joined).mean())} | {f"hits@{k}": float((joined <= k).mean()) for k in HITS}


def negative_triples(
    facts: KnownFacts, triples: np.ndarray, num_tails: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """One negative for each triple: another tail that makes no known fact.

    Returns:
        int32 `[n, 3]`, and which of them were found, bool `[n]`: after `ATTEMPTS` draws a query is given up, since it
        may have every node for an answer.
    """
    negatives, wrong = triples.copy(), np.ones(len(triples), bool)
    for attempt in range(ATTEMPTS):
        drawn = negative_nodes(seed, 0, "tail", len(triples), num_tails, attempt)
        negatives[wrong, 2] = np.asarray(drawn)[wrong]
        wrong[wrong] = facts.contains(negatives[wrong])
        if not wrong.any():
            break
    return negatives, ~wrong


def roc_auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """The chance that a positive's score is above a negative's, ties half; NaN where either is empty."""
    if not len(positive) or not len(negative):
        return float("nan")
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, side="left")
    equal = np.searchsorted(ordered, positive, side="right") - below
    return float((below + 0.5 * equal).mean() / len(negative))


def pair_scores(rows: LinkRows, triples: jax.Array) -> jax.Array:
    """Scores of int32 triples `[n, 3]`."""
    return triple_scores(rows, triples[:, 0], triples[:, 1], triples[:, 2])
