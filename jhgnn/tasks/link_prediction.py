"""Link prediction: which edges there are, of one or several relations, between one or several pairs of node types."""

import csv
import functools
import io
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jhgnn.config import ModelConfig, TaskConfig
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_split import link_split, message_graph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.visible import end_of_training, until
from jhgnn.nn.inputs import GraphSpec, ModelInputs
from jhgnn.nn.model import Model
from jhgnn.nn.stage import stage
from jhgnn.ops.indexed_rows import indexed_rows
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.negatives import SIDES, Side, negative_nodes
from jhgnn.tasks.link_loss import LinkSide, side_losses
from jhgnn.tasks.link_ranking import (
    KnownFacts,
    RankingChunk,
    by_ends,
    filtered_ranks,
    negative_triples,
    pair_scores,
    ranking_chunks,
    ranking_scores,
    roc_auc,
)
from jhgnn.tasks.link_scorer import LinkRows, LinkScorer
from jhgnn.tasks.task import Array, Request, Scores, Sum, Task

EVALUATION_SALT = 0x5EED11
"""Added to `data.seed` for the draws of evaluation, which are the same in every epoch and for every `run.seed`."""


class ScoredModel(Model):
    """For type checkers: a model with this task's head."""

    scorer: LinkScorer


class EvaluationSet(NamedTuple):
    """Links of one split for evaluation: queries to rank, and for each link a triple that is no fact."""

    chunks: list[RankingChunk]
    positive: np.ndarray  # int32 [n, 3]
    negative: np.ndarray  # int32 [n, 3]
    paired: np.ndarray  # bool [n]: a negative was found


class LinkPrediction(Task):
    """Learns to score the true head and tail of each link above negatives, by DistMult or by dot products of rows.

    Examples are positions in the training split. Each is two queries: which tail, and which head.
    """

    name: ClassVar[str] = "link_prediction"
    by_example: ClassVar[bool] = False
    figures: ClassVar[tuple[str, ...]] = ("mrr", "auc")
    summarized: ClassVar[Mapping[str, tuple[str, ...]]] = dict.fromkeys(
        ("test", "val"), ("mrr", "hits@1", "hits@3", "hits@10", "auc", "loss")
    )
    monitors: ClassVar[tuple[str, ...]] = ("mrr", "auc", "loss")
    evaluated_each_epoch: ClassVar[tuple[str, ...]] = ("val",)

    def __init__(self, graph: HeteroGraph, config: TaskConfig, *, seed: int, reverse_relations: bool) -> None:
        """Splits a graph's edges, and takes the held-out ones out of what messages pass over.

        Args:
            graph: the graph with all its edges.
            config: what to predict, and how.
            seed: of the split, where it is drawn, and of evaluation's negatives.
            reverse_relations: whether to add reverse relations to what messages pass over.

        Raises:
            InputError: the split cannot be made, or is not one by time where `until_training` needs one.
        """
        self.config, self.whole = config, graph
        self._evaluation_seed = (seed + EVALUATION_SALT) % 2**32
        self.links: LinkTriples = link_split(
            graph, config.relations, val_share=config.val_share, test_share=config.test_share, seed=seed
        )
        self.facts = KnownFacts.of(graph, self.links)
        messages = message_graph(graph, self.links)
        if config.until_training:
            messages = until(messages, end_of_training(graph, self.links)).without_empty()
        self.graph = messages.with_reverse_relations() if reverse_relations else messages
        self.ends = by_ends(self.links.relations)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node_type for ends in self.ends for node_type in ends))

    @property
    def splits(self) -> Mapping[str, np.ndarray]:
        return self.links.triples

    def describe(self) -> str:
        splits = ", ".join(f"{len(triples):,} {split}" for split, triples in self.splits.items())
        pairs = ", ".join(f"{source} -> {target}" for source, target in self.ends)
        count = len(self.links.relations)
        return f"links {pairs}: {count} relation{'s' if count > 1 else ''}, {splits}"

    def add_head(self, model: Model, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        cast(ScoredModel, model).scorer = LinkScorer(
            config,
            spec,
            len(self.links.relations),
            scorer=self.config.scorer,
            skip=self.config.skip,
            encodes=self.config.encoder == "graph",
            rngs=rngs,
        )

    def training_examples(self) -> np.ndarray:
        return np.arange(len(self.links.triples["train"]), dtype=np.int32)

    def resident(self) -> np.ndarray:
        """The training links, int32 `[num_links, 3]`."""
        return np.asarray(self.links.triples["train"])

    def requests(self, resident: Any, ids: Array, seed: Array, step: Array) -> tuple[Request, ...]:
        """For each pair of node types: heads, tails, negatives for the tails, negatives for the heads."""
        xp = np if isinstance(ids, np.ndarray) else jnp
        known = xp.maximum(ids, 0)
        found = []
        for ends, members in self.ends.items():
            mask = self._of(members, resident[known, 1], ids)
            for node_type, column in zip(ends, (0, 2), strict=True):
                found.append(Request(node_type, xp.where(mask, resident[known, column], -1)))
            for side, node_type in zip(("tail", "head"), reversed(ends), strict=True):
                found.append(Request(node_type, self._negatives(cast(Side, side), node_type, known, seed, step)))
        return tuple(found)

    def _of(self, members: Sequence[int], relation: Array, ids: Array) -> Array:
        """Which examples are links of the relations numbered `members`, bool `[n]`."""
        if len(self.ends) == 1:
            return ids >= 0
        xp = np if isinstance(ids, np.ndarray) else jnp
        is_member = np.zeros(len(self.links.relations), bool)
        is_member[list(members)] = True
        return xp.asarray(is_member)[relation] & (ids >= 0)

    def _negatives(self, side: Side, node_type: str, known: Array, seed: Array, step: Array) -> Array | None:
        """Nodes to put in the place of true ones: int32 `[negatives]`, `[n, negatives]`, or None for all."""
        count, num_nodes = self.config.negatives, self.graph.num_nodes[node_type]
        if not count:
            return None
        xp = np if isinstance(known, np.ndarray) else jnp
        own = xp.arange(count, dtype=np.uint32)
        if self.config.negatives_of == "batch":
            return negative_nodes(seed, step, side, own, num_nodes)
        positions = xp.broadcast_to(known[:, None], (len(known), count))
        return negative_nodes(seed, step, side, positions, num_nodes, own[None, :])

    def represent(self, model: Model, inputs: ModelInputs, rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        scorer = cast(ScoredModel, model).scorer
        own = model.embeddings(inputs) if scorer.reads_inputs else {}
        return {
            node_type: scorer.represent(node_type, rows.get(node_type), own.get(node_type))
            for node_type in self.targets
            if node_type in rows or node_type in own
        }

    def loss(
        self, model: Model, rows: Sequence[jax.Array], resident: Any, ids: jax.Array, seed: jax.Array, step: jax.Array
    ) -> Sum:
        """See `Task`. A link's loss is the mean of its two sides', plus the mean squares of its rows if asked for."""
        known, requests = jnp.maximum(ids, 0), self.requests(resident, ids, seed, step)
        relation = indexed_rows(cast(ScoredModel, model).scorer.relations(), resident[known, 1])
        total = jnp.zeros(())
        with stage("LC", part="loss"):
            for number, members in enumerate(self.ends.values()):
                own = slice(4 * number, 4 * number + 4)
                heads, tails, for_tail, for_head = rows[own]
                mask = self._of(members, resident[known, 1], ids)
                sides = (("tail", heads, tails, for_tail, 2), ("head", tails, heads, for_head, 0))
                for (side, given, true, candidates, column), request in zip(sides, requests[own][2:], strict=True):
                    drawn = request.ids
                    if drawn is None:
                        drawn = jnp.arange(self.graph.num_nodes[request.node_type], dtype=jnp.int32)
                    wanted = resident[known, column][:, None]
                    is_own = (drawn[None, :] if drawn.ndim == 1 else drawn) == wanted
                    each = side_losses(
                        LinkSide(cast(Side, side), given, true, candidates, is_own),
                        relation,
                        kind=self.config.loss,
                        dropout=self.config.scorer_dropout,
                        seed=seed + step,
                        ids=ids,
                    )
                    total += jnp.where(mask, each, 0.0).sum()
                if self.config.regularization:
                    squares = sum(jnp.mean(part**2, axis=1) for part in (heads, relation, tails))
                    total += 2.0 * self.config.regularization * jnp.where(mask, squares, 0.0).sum()
            return Sum(total / 2, (ids >= 0).sum(dtype=jnp.float32))

    def evaluate(self, model: Model, rows: Mapping[str, jax.Array], resident: Any) -> LinkRows:
        return self.infer(model, rows)

    def infer(self, model: Model, rows: Mapping[str, jax.Array]) -> LinkRows:
        """What any triple is scored from."""
        return LinkRows(dict(rows), cast(ScoredModel, model).scorer.relations())

    def scores(self, evaluated: LinkRows, splits: Sequence[str]) -> Scores:
        """`mrr` and `hits@k` (filtered, both sides), `auc`, and `loss`: the mean logistic loss with negatives."""
        known = [split for split in splits if split in self._evaluated]
        return {split: self._scores(evaluated, self.evaluation_set(split)) for split in known}

    @property
    def _evaluated(self) -> list[str]:
        return [split for split in ("val", "test") if len(self.splits.get(split, ()))]

    def _scores(self, rows: LinkRows, links: EvaluationSet) -> dict[str, float]:
        ranks, positive = self.ranks(rows, links)
        negative = np.asarray(self._pair_scores(rows, links.negative), np.float64)[links.paired]
        losses = np.concatenate([np.logaddexp(0.0, -positive), np.logaddexp(0.0, negative)])
        return ranking_scores(list(ranks.values())) | {"auc": roc_auc(positive, negative), "loss": float(losses.mean())}

    @functools.cache  # noqa: B019 - one task lives as long as its run
    def evaluation_set(self, split: str, *, every: bool = False) -> EvaluationSet:
        """A split's links for evaluation: `every` one, or a fixed random choice where the recipe bounds them."""
        triples = np.asarray(self.links.triples[split])
        most = self.config.evaluation_links if split == "val" else self.config.test_links
        if not every and 0 < most < len(triples):
            order = EpochBatches(np.arange(len(triples), dtype=np.int32), most, self._evaluation_seed).order(0)
            triples = triples[np.sort(order[:most])]
        tails = np.array([self.graph.num_nodes[relation.target] for relation in self.links.relations])
        negative, found = negative_triples(self.facts, triples, tails[triples[:, 1]], self._evaluation_seed)
        return EvaluationSet(ranking_chunks(self.facts, self.links.relations, triples), triples, negative, found)

    def ranks(self, rows: LinkRows, links: EvaluationSet) -> tuple[dict[Side, np.ndarray], np.ndarray]:
        """Filtered ranks of each link's head and tail, `[n]` by side, and the links' scores `[n]`."""
        ranks = {side: np.zeros(len(links.positive)) for side in SIDES}
        for chunk in links.chunks:
            found = _ranks(rows, chunk.triples, chunk.known_rows, chunk.known_nodes, side=chunk.side, ends=chunk.ends)
            ranks[chunk.side][chunk.rows] = np.asarray(found)[: chunk.count]
        return ranks, self._pair_scores(rows, links.positive)

    def _pair_scores(self, rows: LinkRows, triples: np.ndarray) -> np.ndarray:
        found = np.zeros(len(triples))
        for ends, members in self.ends.items():
            own = np.isin(triples[:, 1], members)
            found[own] = np.asarray(_pairs(rows, triples[own], ends=ends), np.float64)
        return found

    def scores_of_rows(
        self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, np.ndarray], splits: Mapping[str, np.ndarray]
    ) -> Scores:
        """See `Task`; the recipe bounds how many links of a split are scored."""
        return self.scores(self._link_rows(structure, params, rows), list(splits))

    def _link_rows(self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array]) -> LinkRows:
        relation = jax.jit(lambda params: nnx.merge(structure, params).scorer.relations())(params)
        return LinkRows({node_type: jnp.asarray(array) for node_type, array in rows.items()}, relation)

    def describe_predictions(self) -> str:
        return f"{sum(len(self.splits[split]) for split in self._evaluated):,} held-out links"

    def predict(self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array]) -> np.ndarray:
        """All held-out links: `head`, `relation`, `tail`, `split`, `score`, `head_rank`, `tail_rank`."""
        link_rows = self._link_rows(structure, params, rows)
        names = np.array([str(relation) for relation in self.links.relations])
        kinds = [("head", np.int32), ("relation", names.dtype), ("tail", np.int32), ("split", "<U4")]
        parts = []
        for split in self._evaluated:
            links = self.evaluation_set(split, every=True)
            ranks, scores = self.ranks(link_rows, links)
            part = np.zeros(len(links.positive), [*kinds, *((name, np.float64) for name in _FIGURES)])
            part["head"], part["tail"], part["split"] = links.positive[:, 0], links.positive[:, 2], split
            part["relation"] = names[links.positive[:, 1]]
            part["score"], part["head_rank"], part["tail_rank"] = scores, ranks["head"], ranks["tail"]
            parts.append(part)
        return np.concatenate(parts)

    def predictions(
        self, structure: nnx.GraphDef, params: Any, rows: Mapping[str, Array]
    ) -> dict[str, np.ndarray | str]:
        """`links.csv`, `embeddings_TYPE.npy` of each type of node, and `relations.npy`.

        The table has one row a validation or test link: the keys of head and tail, or their numbers where the data has
        no keys; relation, split, score, and the filtered ranks of head and tail.
        """
        link_rows = self._link_rows(structure, params, rows)
        table = self.predict(structure, params, rows)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.dtype.names or ())
        heads, tails = self._keys(table)
        for head, row, tail in zip(heads, table, tails, strict=True):
            shown = [f"{row['score']:.6f}", f"{row['head_rank']:g}", f"{row['tail_rank']:g}"]
            writer.writerow([head, row["relation"], tail, row["split"], *shown])
        arrays = {f"embeddings_{node_type}.npy": np.asarray(array) for node_type, array in link_rows.nodes.items()}
        return {**arrays, "relations.npy": np.asarray(link_rows.relation), "links.csv": text.getvalue()}

    def _keys(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the data calls the heads and tails of predicted links, `[n]` each."""
        heads, tails = np.zeros(len(table), object), np.zeros(len(table), object)
        for relation in self.links.relations:
            own = table["relation"] == str(relation)
            heads[own] = self.graph.node_keys(relation.source, table["head"][own])
            tails[own] = self.graph.node_keys(relation.target, table["tail"][own])
        return heads, tails


_FIGURES = ("score", "head_rank", "tail_rank")
_ranks: Any = jax.jit(filtered_ranks, static_argnames=("side", "ends"))
_pairs: Any = jax.jit(pair_scores, static_argnames="ends")
