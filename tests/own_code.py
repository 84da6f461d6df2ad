"""A model, a task and a loss of one's own, as somebody outside the package would write them."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jhgnn import HeteroGraph, InputError, NodeClassification, RelationalModel, Task
from jhgnn.nn import FeatureProjection, RelationParts, SumOverRelations, mean_aggregation, project_together
from jhgnn.tasks.task import Request, Sum


class GatedLayer(SumOverRelations):
    """out(v) = activation( sum_r sigmoid(g_r) mean_{u in N_r(v)} W_r x_u + b ), with one gate g_r a relation."""

    def __init__(self, layer, plan, in_widths, config, spec, *, rngs):
        self.implementations = nnx.static({name: spec.implementations[name] for name in plan.relations})
        self.sparse_implementation, self.dtype = spec.sparse_implementation, jnp.dtype(config.dtype)
        self.projections = nnx.Dict(
            {
                node_type: FeatureProjection(plan.out_of(node_type), in_widths[node_type], config.hidden, rngs=rngs)
                for node_type in plan.reads
                if plan.out_of(node_type)
            }
        )
        self.gates = nnx.Dict({name: nnx.Param(jnp.zeros(())) for name in plan.relations})
        self.add_fusions(layer, plan, config, rngs=rngs)

    def aggregate(self, rows, block, step_seed):
        z = {}
        for node_type, projection in self.projections.items():
            if node_type in rows:
                z |= project_together(
                    rows[node_type],
                    projection.names,
                    projection.stack(),
                    sparse_implementation=self.sparse_implementation,
                    dtype=self.dtype,
                )
        made = RelationParts({}, {})
        for node_type in self.made(block):
            made.parts[node_type] = [
                jax.nn.sigmoid(self.gates[name][...])
                * mean_aggregation(
                    block.graphs[name], z[name], layer=self.layer, implementation=self.implementations[name]
                )
                for name in self.plan.into(node_type)
                if name in block.graphs
            ]
        return made


class Gated(RelationalModel):
    """Gated layers over all relations."""

    make_layer = GatedLayer

    @classmethod
    def reads_receivers(cls, config):
        return config.residual


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """What the package computes without label smoothing, from Optax."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


class NoGradient(NodeClassification):
    """Classes whose loss teaches nothing."""

    name: ClassVar[str] = "no_gradient"

    def loss(self, model, rows, resident, ids, seed, step):
        total = super().loss(model, rows, resident, ids, seed, step)
        return Sum(total.loss * 0.0, total.num_examples)


class NumAuthors(Task):
    """How many authors a paper has: a regression, whose examples are papers, on every task's own interface."""

    name: ClassVar[str] = "num_authors"
    by_example: ClassVar[bool] = False
    figures: ClassVar[tuple[str, ...]] = ("mae",)
    summarized: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(("train", "val", "test"), ("mae",))
    monitors: ClassVar[tuple[str, ...]] = ("loss",)
    evaluated_each_epoch: ClassVar[tuple[str, ...]] = ("train", "val", "test")

    def __init__(self, graph: HeteroGraph) -> None:
        if "paper" not in graph.num_nodes:
            raise InputError(f"graph {graph.name!r} has no papers")
        self.graph = graph
        wrote = [edges for relation, edges in graph.edges.items() if relation.name == "writes"]
        self.wanted = sum(np.diff(edges.indptr) for edges in wrote).astype(np.float32)

    @property
    def targets(self):
        return ("paper",)

    @property
    def splits(self):
        return self.graph.splits

    def describe(self):
        return f"authors of {len(self.wanted)} papers"

    def add_head(self, model, config, spec, *, rngs):
        model.head = nnx.Linear(config.hidden, 1, rngs=rngs)

    def training_examples(self):
        return self.graph.splits["train"]

    def resident(self):
        return self.wanted

    def requests(self, resident, ids, seed, step):
        return (Request("paper", ids),)

    def loss(self, model, rows, resident, ids, seed, step):
        error = model.head(rows[0])[:, 0] - resident[jnp.maximum(ids, 0)]
        return Sum(jnp.where(ids >= 0, error**2, 0.0).sum(), (ids >= 0).sum(dtype=jnp.float32))

    def evaluate(self, model, rows, resident):
        return self.infer(model, rows)

    def infer(self, model, rows):
        return model.head(rows["paper"])[:, 0]

    def scores(self, evaluated, splits):
        error = np.asarray(evaluated) - self.wanted
        own = {split: error[self.splits[split]] for split in splits}
        return {split: {"mae": float(abs(e).mean()), "loss": float((e**2).mean())} for split, e in own.items()}

    def scores_of_rows(self, structure, params, rows, splits):
        return self.scores(self.predict(structure, params, rows), list(splits))

    def predict(self, structure, params, rows) -> Any:
        return np.asarray(self.infer(nnx.merge(structure, params), {"paper": jnp.asarray(rows["paper"])}))

    def describe_predictions(self):
        return f"{len(self.wanted)} papers"

    def predictions(self, structure, params, rows):
        return {"authors.npy": self.predict(structure, params, rows)}
