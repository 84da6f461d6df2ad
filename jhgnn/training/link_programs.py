"""The programs of link prediction: one update, the rows of all nodes, and what evaluation computes from them."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jhgnn.config import Config
from jhgnn.models.inputs import GraphInputs
from jhgnn.models.link_predictor import LinkRows
from jhgnn.nn.recompute import recomputing
from jhgnn.nn.stage import stage
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.negatives import SIDES, Side
from jhgnn.training.link_objective import LinkBatch, link_loss
from jhgnn.training.link_problem import LinkData, LinkProblem, edge_weights
from jhgnn.training.link_ranking import (
    RankingChunk,
    filtered_ranks,
    negative_triples,
    pair_scores,
    ranking_chunks,
    ranking_scores,
    roc_auc,
)
from jhgnn.training.optimizer import apply_gradients, make_optimizer
from jhgnn.training.state import Params, TrainState, shapes_of, structure_of
from jhgnn.training.step import Compiled, StepReport, compile_ahead, dropout_seed

EVALUATION_SALT = 0x5EED11
"""Added to `data.seed` for the draws of evaluation, which are the same for every seed of a run and every epoch."""


@dataclasses.dataclass(frozen=True, eq=False)
class EvaluationSet:
    """Links of one split as evaluation reads them: ranking queries, and pairs of a link and a negative."""

    chunks: list[RankingChunk]
    positive: np.ndarray  # int32 [n, 3]
    negative: np.ndarray  # int32 [n, 3]
    paired: np.ndarray  # bool [n]: a negative was found


@dataclasses.dataclass(frozen=True, eq=False)
class LinkPrograms:
    """Compiled for one problem, shared by all seeds."""

    structure: nnx.GraphDef
    step: Compiled
    encode: Compiled
    sets: dict[str, EvaluationSet]

    @property
    def compile_s(self) -> float:
        return self.step.compile_s + self.encode.compile_s


def train_links_batches(problem: LinkProblem, config: Config) -> EpochBatches:
    """Positions in the training split by epoch and step; a pure function of the recipe's seed."""
    count = problem.split_size("train")
    size = min(config.task.batch_size or count, count)
    return EpochBatches(np.arange(count, dtype=np.int32), size, config.run.seed)


def compile_links(problem: LinkProblem, config: Config) -> LinkPrograms:
    """Compiles ahead of time and prepares evaluation; parameters are not needed yet."""
    build = problem.builder(config)
    structure, params = structure_of(build), shapes_of(build)
    batches = train_links_batches(problem, config)
    opt_state = jax.eval_shape(make_optimizer(config.training, batches.steps_per_epoch).init, params)
    scalar = functools.partial(jax.ShapeDtypeStruct, ())
    state = TrainState(scalar(jnp.int32), scalar(jnp.uint32), params, opt_state)
    ids = jax.ShapeDtypeStruct((batches.batch_size,), jnp.int32)
    step = functools.partial(link_step, structure, config, batches.steps_per_epoch)
    sets = {
        split: evaluation_set(problem, split, config.data.seed + EVALUATION_SALT, most)
        for split, most in (("val", config.task.evaluation_links), ("test", 0))
        if problem.split_size(split)
    }
    return LinkPrograms(
        structure,
        compile_ahead(step, (state, problem.data, ids), donate=(0,)),
        compile_ahead(functools.partial(encode, structure), (params, problem.data.inputs)),
        sets,
    )


def encode(structure: nnx.GraphDef, params: Params, inputs: GraphInputs) -> LinkRows:
    """Rows of all nodes over the whole message graph, without dropout."""
    return nnx.merge(structure, params)(inputs)


def link_objective(
    structure: nnx.GraphDef, config: Config, state: TrainState, data: LinkData, ids: jax.Array, params: Params
) -> jax.Array:
    """The loss of the training links `ids`, int32 `[batch]` with -1 for none, as a function of the parameters."""
    known = jnp.maximum(ids, 0)
    head, relation, tail = (data.triples[known, column] for column in range(3))
    inputs = dataclasses.replace(data.inputs, weights=edge_weights(data.excluded, ids, data.triples.shape[0]))
    with recomputing(config.training.remat):
        rows = nnx.merge(structure, params)(inputs, dropout_seed(state))
    batch = LinkBatch(ids, head, relation, tail, ids >= 0)
    return link_loss(rows, batch, config.task, state.seed, state.step.astype(jnp.uint32))


def link_step(
    structure: nnx.GraphDef, config: Config, steps_per_epoch: int, state: TrainState, data: LinkData, ids: jax.Array
) -> tuple[TrainState, StepReport]:
    """One update on the links `ids`; where loss or gradients are not finite, parameters and optimizer stay."""
    objective = functools.partial(link_objective, structure, config, state, data, ids)
    loss, gradients = jax.value_and_grad(objective)(state.params)
    with stage("PU"):
        norm = optax.tree.norm(gradients)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        optimizer = make_optimizer(config.training, steps_per_epoch)
        params, opt_state = apply_gradients(optimizer, gradients, state.opt_state, state.params, finite)
    return TrainState(state.step + 1, state.seed, params, opt_state), StepReport(loss, finite, norm)


def evaluation_set(problem: LinkProblem, split: str, seed: int, most: int = 0) -> EvaluationSet:
    """What evaluates a split, or a fixed random choice of `most` of its links (0: all)."""
    triples = np.asarray(problem.links.triples[split])
    if 0 < most < len(triples):
        order = EpochBatches(np.arange(len(triples), dtype=np.int32), most, seed % 2**32).order(0)
        triples = triples[np.sort(order[:most])]
    num_tails = problem.graph.num_nodes[problem.ends[1]]
    negative, found = negative_triples(problem.facts, triples, num_tails, seed % 2**32)
    return EvaluationSet(ranking_chunks(problem.facts, triples), triples, negative, found)


def link_ranks(rows: LinkRows, links: EvaluationSet) -> tuple[dict[Side, np.ndarray], np.ndarray]:
    """Filtered ranks of each link's head and tail, `[n]` by side, and the links' scores `[n]`."""
    ranks: dict[Side, list[np.ndarray]] = {side: [] for side in SIDES}
    for chunk in links.chunks:
        found = _ranks(rows, chunk.triples, chunk.known_rows, chunk.known_nodes, side=chunk.side)
        ranks[chunk.side].append(np.asarray(found)[: chunk.count])
    scores = np.asarray(_pairs(rows, links.positive), np.float64)
    return {side: np.concatenate(parts) for side, parts in ranks.items()}, scores


def link_scores(rows: LinkRows, links: EvaluationSet) -> dict[str, float]:
    """`mrr`, `hits@k` (filtered, both sides), `auc`, and `loss`, the mean logistic loss of links and negatives."""
    ranks, positive = link_ranks(rows, links)
    negative = np.asarray(_pairs(rows, links.negative), np.float64)[links.paired]
    losses = np.concatenate([np.logaddexp(0.0, -positive), np.logaddexp(0.0, negative)])
    return ranking_scores(list(ranks.values())) | {"auc": roc_auc(positive, negative), "loss": float(losses.mean())}


_ranks: Any = jax.jit(filtered_ranks, static_argnames="side")
_pairs: Any = jax.jit(pair_scores)
