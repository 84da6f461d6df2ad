"""A model of one's own: layers from `jhgnn.nn`, trained by `jhgnn.fit` and in a loop of one's own.

R-GCN adds up what the relations say, and each relation counts the same for every node. Here each node decides: it
computes a gate between 0 and 1 for each of its relations from its own features,

    out(v) = relu( sum_r sigmoid(q_r . x_v + 2) * mean_{u in N_r(v)} W_r x_u  +  W_self x_v + b )

so that a paper with little text may rely on its authors, and another one on its subject.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jhgnn
from jhgnn.nn import (
    FeatureProjection,
    ModelConfig,
    RelationParts,
    SumOverRelations,
    mean_aggregation,
    project_together,
    whole_graph,
)
from jhgnn.nn.stage import stage

# %% A layer
# A layer writes `aggregate`: from the rows of the node types to what each relation hands to its receivers.
# `SumOverRelations` has the rest: the sum over relations, the node's own part, bias and activation. It keeps the sum
# apart from what follows it, so that several devices can each add up their share.


class ChoosingLayer(SumOverRelations):
    """Means over each relation's neighbours, gated by the receiver."""

    def __init__(self, layer, plan, in_widths, config, spec, *, rngs):
        # `plan` says which relations this layer aggregates over, and which node types it reads and makes;
        # `spec` says how large the graph is and which implementation each relation's aggregation uses.
        self.implementations = nnx.static({name: spec.implementations[name] for name in plan.relations})
        self.sparse_implementation, self.dtype = spec.sparse_implementation, jnp.dtype(config.dtype)
        self.projections, self.gates = nnx.Dict(), nnx.Dict()
        for node_type in plan.reads:
            own = ["self"] if node_type in plan.makes else []
            names, width = plan.out_of(node_type) + own, in_widths[node_type]
            if names:  # the matrices W_r of the relations that the type sends along, and its W_self
                self.projections[node_type] = FeatureProjection(names, width, config.hidden, rngs=rngs)
            if plan.into(node_type) and node_type in plan.makes:  # the vectors q_r of those that it receives along
                self.gates[node_type] = FeatureProjection(plan.into(node_type), width, 1, rngs=rngs)
        self.add_fusions(layer, plan, config, rngs=rngs)

    def aggregate(self, rows, block, step_seed):
        def project(projections, node_type):
            """One matrix product for all of a type's matrices; features may be dense or sparse."""
            if node_type not in projections or node_type not in rows:
                return {}
            own = projections[node_type]
            how = {"sparse_implementation": self.sparse_implementation, "dtype": self.dtype}
            with stage("FP", self.layer, node_type):  # so that the profiler calls it feature projection
                return project_together(rows[node_type], own.names, own.stack(), **how)

        z = {node_type: project(self.projections, node_type) for node_type in self.plan.reads}
        made = RelationParts({}, {})
        for node_type in self.made(block):
            # The rows to make are the first of those read, in a mini-batch as in the whole graph.
            num_rows, gates = block.num_rows[node_type], project(self.gates, node_type)
            parts = made.parts[node_type] = []
            for name in self.plan.into(node_type):
                if name in block.graphs:  # else the mini-batch has no edges of this relation
                    sent = z[self.plan.relations[name].source][name]
                    how = {"layer": self.layer, "implementation": self.implementations[name]}
                    gate = jax.nn.sigmoid(gates[name][:num_rows].astype(jnp.float32) + 2.0)
                    parts.append(gate * mean_aggregation(block.graphs[name], sent, **how))
            made.own[node_type] = z[node_type]["self"][:num_rows]
        return made


# %% A model
# `RelationalModel` plans the layers backwards from the target type, and gives types without features an embedding.


class Choosing(jhgnn.RelationalModel):
    """Layers in which each node decides how much each relation counts."""

    make_layer = ChoosingLayer
    default_layers = 2

    @classmethod
    def reads_receivers(cls, config):
        return True  # for the gates and for W_self


# %% Full-batch and in mini-batches
# One model serves every way of training. The functions below run when the file is started, not when it is imported,
# so that a recipe can name the model: `model.name = "own_model:Choosing"`.


def by_fit(graph):
    full = jhgnn.fit(graph, model=Choosing, hidden=32, epochs=20, learning_rate=0.01, progress=False)
    print(f"full-batch: test micro-F1 {full.scores['test_micro_f1']:.3f}")
    sampling = {"batch_size": 64, "fan_out": "8,8"}
    batches = jhgnn.fit(graph, model=Choosing, hidden=32, epochs=8, sampling=sampling, progress=False)
    print(f"mini-batches: test micro-F1 {batches.scores['test_micro_f1']:.3f}")


# %% In a loop of one's own
# A model is a Flax NNX module, and needs nothing of `fit`. `whole_graph` places features and relations on the device;
# what it gives is an argument of the compiled function like any other.


def by_own_loop(graph):
    spec, inputs = whole_graph(graph)
    config = ModelConfig(hidden=32, dropout=0.5)
    model = Choosing(config, spec, rngs=nnx.Rngs(0))
    model.head = nnx.Linear(config.hidden, graph.num_classes, rngs=nnx.Rngs(1))
    structure, params = nnx.split(model)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01, weight_decay=0.1))
    train, test = (jnp.asarray(graph.splits[split]) for split in ("train", "test"))
    labels = jnp.asarray(graph.labels)

    def logits(params, inputs, step_seed=None):
        model = nnx.merge(structure, params)
        return model.head(model.encode(inputs, step_seed)[graph.target])

    @jax.jit
    def step(params, state, inputs, step_seed):
        def loss(params):
            rows = logits(params, inputs, step_seed)[train]  # with a seed there is dropout, without one there is none
            return optax.softmax_cross_entropy_with_integer_labels(rows, labels[train]).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state = optimizer.init(params)
    for epoch in range(10):
        params, state, value = step(params, state, inputs, np.uint32(epoch))
    right = jax.jit(logits)(params, inputs)[test].argmax(axis=1) == labels[test]
    print(f"own loop: loss {value:.3f}, test accuracy {right.mean():.3f}")


# %% Run it
if __name__ == "__main__":
    graph = jhgnn.load("synthetic", "acm", scale=0.2)
    by_fit(graph)
    by_own_loop(graph)
