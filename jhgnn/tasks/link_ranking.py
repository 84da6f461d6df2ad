"""How links are evaluated: filtered ranks of true heads and tails among all nodes, and ROC-AUC against negatives.

Ranks are "filtered" (Bordes et al., NIPS 2013): a node that would make another known fact, of any split, does not
compete. Ties count half, so that a model that scores everything alike gains nothing. A true tail competes with all
nodes of the type that its relation leads to, a true head with all nodes of the type that it comes from.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation
from jhgnn.sampling.negatives import SIDES, Side, negative_nodes
from jhgnn.tasks.link_scorer import LinkRows

CHUNK = 512
BLOCK = 2**15
"""Candidates that a chunk of queries is scored against at a time: 64 MiB of scores."""
ATTEMPTS = 32
HITS = (1, 3, 10)


@dataclasses.dataclass(frozen=True, eq=False)
class KnownFacts:
    """All edges of the predicted relations, of every split, to look up the other answers to a query.

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
        """Every known answer to the queries of int32 triples `[n, 3]`, the true one included, as (row, node)."""
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
    """Queries of one side and one pair of types: triples padded with zeros, and the known answers to leave out.

    Attributes:
        side: the end that is asked for.
        ends: node types of heads and tails.
        rows: numbers of the links, among those given, that the first `count` triples are.
        known_rows, known_nodes: query and node of each known answer but the true one; `CHUNK` is no row.
    """

    side: Side
    ends: tuple[str, str]
    rows: np.ndarray  # int64 [count]
    count: int
    triples: np.ndarray  # int32 [CHUNK, 3]
    known_rows: np.ndarray  # int32 [known]
    known_nodes: np.ndarray  # int32 [known]


def ranking_chunks(facts: KnownFacts, relations: Sequence[Relation], triples: np.ndarray) -> list[RankingChunk]:
    """Chunks of the queries of both sides, all of one shape. The true answer is not among the answers to leave out.

    Args:
        relations: those that the triples' middle column numbers.
        triples: int32 `[n, 3]`.
    """
    found: list[tuple[Side, tuple[str, str], np.ndarray, np.ndarray, np.ndarray]] = []
    for side in SIDES:
        for ends, members in by_ends(relations).items():
            rows = np.flatnonzero(np.isin(triples[:, 1], members))
            for start in range(0, len(rows), CHUNK):
                own = triples[rows[start : start + CHUNK]]
                known, nodes = facts.answering(side, own)
                true = own[known, 2 if side == "tail" else 0]
                found.append((side, ends, rows[start : start + CHUNK], known[nodes != true], nodes[nodes != true]))
    capacity = max((len(known) for _, _, _, known, _ in found), default=0)
    chunks = []
    for side, ends, rows, known, nodes in found:
        padded = np.zeros((CHUNK, 3), np.int32)
        padded[: len(rows)] = triples[rows]
        known_rows, known_nodes = np.full(capacity, CHUNK, np.int32), np.zeros(capacity, np.int32)
        known_rows[: len(known)], known_nodes[: len(known)] = known, nodes
        chunks.append(RankingChunk(side, ends, rows, len(rows), padded, known_rows, known_nodes))
    return chunks


def by_ends(relations: Sequence[Relation]) -> dict[tuple[str, str], list[int]]:
    """Node types of heads and tails -> the relations between them, by their number."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, relation in enumerate(relations):
        groups.setdefault((relation.source, relation.target), []).append(number)
    return groups


def filtered_ranks(
    rows: LinkRows,
    triples: jax.Array,
    known_rows: jax.Array,
    known_nodes: jax.Array,
    *,
    side: Side,
    ends: tuple[str, str],
) -> jax.Array:
    """Ranks from 1 of the true nodes of one side, float32 `[CHUNK]`: 1 + better ones + half of the equal ones.

    More than `BLOCK` candidates are scored block by block, so that memory does not grow with the number of nodes.
    """
    heads, tails = (rows.nodes[node_type] for node_type in ends)
    head, relation, tail = triples[:, 0], rows.relation[triples[:, 1]], triples[:, 2]
    given, candidates, true = (heads[head], tails, tail) if side == "tail" else (tails[tail], heads, head)
    query, count = given * relation, candidates.shape[0]
    if count <= BLOCK:
        scores = query @ candidates.T
        own = jnp.take_along_axis(scores, true[:, None], axis=1)
        better, equal = _compared(scores.at[known_rows, known_nodes].set(-jnp.inf, mode="drop"), own)
    else:
        starts = jnp.arange(-(-count // BLOCK), dtype=jnp.int32) * BLOCK

        def block(start: jax.Array) -> tuple[jax.Array, jax.Array]:
            """Ids and scores of the candidates from `start` on; the last block also has some of the one before."""
            first = jnp.minimum(start, count - BLOCK)
            part = jax.lax.dynamic_slice_in_dim(candidates, first, BLOCK)
            return first + jnp.arange(BLOCK, dtype=jnp.int32), query @ part.T

        def own_score(found: jax.Array, start: jax.Array) -> tuple[jax.Array, None]:
            ids, scores = block(start)
            inside = (true >= ids[0]) & (true <= ids[-1])
            at = jnp.clip(true - ids[0], 0, BLOCK - 1)
            return jnp.where(inside[:, None], jnp.take_along_axis(scores, at[:, None], axis=1), found), None

        def compare(total: tuple[jax.Array, jax.Array], start: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
            ids, scores = block(start)
            inside = (known_nodes >= ids[0]) & (known_nodes <= ids[-1])
            scores = scores.at[known_rows, jnp.where(inside, known_nodes - ids[0], BLOCK)].set(-jnp.inf, mode="drop")
            # The true node competes with nobody: another block's product may round its score in another way.
            competes = (ids >= start)[None, :] & (ids[None, :] != true[:, None])
            found = _compared(jnp.where(competes, scores, -jnp.inf), own)
            return (total[0] + found[0], total[1] + found[1]), None

        own = jax.lax.scan(own_score, jnp.full((len(triples), 1), jnp.nan), starts)[0]
        nothing = jnp.zeros(len(triples), jnp.int32)
        (better, equal), _ = jax.lax.scan(compare, (nothing, nothing + 1), starts)
    # A NaN beats nothing and equals nothing, itself included: last, not first.
    ranks = 1.0 + better + 0.5 * (equal - 1)
    return jnp.where(jnp.isfinite(own[:, 0]), ranks, float(count))


def _compared(scores: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Candidates with a better and with an equal score, int32 `[queries]`."""
    return (scores > own).sum(axis=1, dtype=jnp.int32), (scores == own).sum(axis=1, dtype=jnp.int32)


def ranking_scores(ranks: Sequence[np.ndarray]) -> dict[str, float]:
    """`mrr` and `hits@1`, `hits@3`, `hits@10` over the ranks of both sides."""
    joined = np.concatenate(ranks).astype(np.float64)
    return {"mrr": float((1.0 / joined).mean())} | {f"hits@{k}": float((joined <= k).mean()) for k in HITS}


def negative_triples(
    facts: KnownFacts, triples: np.ndarray, num_tails: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """One negative for each triple: another tail that makes no known fact.

    Args:
        num_tails: nodes of the type that each triple's relation leads to, `[n]`.

    Returns:
        int32 `[n, 3]`, and which of them were found, bool `[n]`: after `ATTEMPTS` draws a query is given up, since it
        may have every node for an answer.
    """
    negatives, wrong = triples.copy(), np.ones(len(triples), bool)
    for attempt in range(ATTEMPTS):
        drawn = negative_nodes(seed, 0, "tail", np.arange(len(triples)), num_tails, attempt)
        negatives[wrong, 2] = drawn[wrong]
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


def pair_scores(rows: LinkRows, triples: jax.Array, *, ends: tuple[str, str]) -> jax.Array:
    """Scores of int32 triples `[n, 3]` between two types, float32 `[n]`."""
    heads, tails = (rows.nodes[node_type] for node_type in ends)
    return jnp.sum(heads[triples[:, 0]] * rows.relation[triples[:, 1]] * tails[triples[:, 2]], axis=1)
