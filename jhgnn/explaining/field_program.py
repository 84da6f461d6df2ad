"""FieldProgram: what a model says of a neighbourhood as a function of its inputs, its edges and its relations.

Every edge has a weight that multiplies its message in all layers, and every relation one for each layer, its *gate*;
all of them are 1. The mean and the softmax over neighbours are those of the whole neighbourhood, whatever the weights
are.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jhgnn.explaining.neighbourhood import Neighbourhood, NeighbourhoodInputs
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.inference.on_fields import OnFields
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.nn.observed import Shown, observing
from jhgnn.nn.reduction import Partial
from jhgnn.runtime.platform import WITHOUT_KERNELS, compiling_for


class Placed(NamedTuple):
    """A neighbourhood's arrays.

    Attributes:
        graphs: hop -> relation -> its padded edges.
        numbers: hop -> relation -> each edge's number among the weights.
        features: type -> the input rows, `[rows, width]` each, or sparse ones.
        ids: type -> int32 `[rows]`.
    """

    graphs: tuple[dict[str, SemanticGraph], ...]
    numbers: tuple[dict[str, np.ndarray], ...]
    features: dict[str, Any]
    ids: dict[str, Any]


class Gradients(NamedTuple):
    """Derivatives of the log-odds of a class, in nats, times what they are taken by.

    Attributes:
        inputs: type -> as its features are stored, `[rows, width]` of a dense matrix.
        edges: `[num_weights]`.
        gates: `[layers, relations]`.
    """

    inputs: dict[str, jax.Array]
    edges: jax.Array
    gates: jax.Array


class MaskSettings(NamedTuple):
    """How edge masks are learnt.

    Attributes:
        steps: of Adam.
        learning_rate: of Adam.
        size: weight of the mean of the mask in the loss.
        entropy: weight of its mean entropy.
    """

    steps: int
    learning_rate: float
    size: float
    entropy: float


class FieldProgram:
    """Compiled functions of neighbourhoods; kept from one node to the next."""

    def __init__(self, on_fields: OnFields, target: str, *, multi_label: bool) -> None:
        """
        Args:
            on_fields: the model.
            target: the type that is classified.
            multi_label: whether a node may have several classes.
        """
        self._on, self._target, self._multi_label = on_fields, target, multi_label
        model: Any = nnx.merge(on_fields.structure, on_fields.params)
        self.plans: tuple[LayerPlan, ...] = tuple(layer.plan for layer in model.layers)
        self.names = tuple(dict.fromkeys(name for plan in self.plans for name in plan.relations))
        self._input_types = tuple(model.embeddings.widths)
        self._logits_of = jax.jit(self._forward, static_argnums=(2,))
        self._gradients_of = jax.jit(self._all_gradients, static_argnums=(2,))
        self._walk = {order: jax.jit(functools.partial(self._mixed, order), static_argnums=(2,)) for order in (1, 2, 3)}
        self._masks_of = jax.jit(self._learn, static_argnums=(2, 5))

    def place(self, field: Neighbourhood) -> Placed:
        """The arrays of a neighbourhood.

        Raises:
            InputError: a node that is read has no row.
        """
        features: dict[str, Any] = {}
        ids: dict[str, np.ndarray] = {}
        for hop in field.rows:
            for name, own in hop.items():
                if len(own) > len(ids.get(name, ())):
                    ids[name] = own
        for name, own in field.rows[-1].items():
            if name in self._input_types:
                features[name] = self._on.inputs.gather(name, own)
        return Placed(field.graphs(), field.numbers(), features, ids)

    def logits(self, field: Neighbourhood, placed: Placed) -> tuple[np.ndarray, list[Shown]]:
        """Logits of the node, float32 `[num_classes]`, and what the layers show of their attention, by hop edges."""
        logits, values = self._run(self._logits_of, field, placed)
        shown = [Shown(*about, value) for about, value in zip(self._about, values, strict=True)]
        return np.asarray(logits), shown

    def probabilities(self, field: Neighbourhood, placed: Placed, keep: np.ndarray | None = None) -> np.ndarray:
        """Of each class, float32 `[num_classes]`; with `keep`, bool `[num_edges]`, where other edges are not there."""
        if keep is not None:
            placed = placed._replace(graphs=field.graphs(keep), numbers=_all_ones(field))
        logits = self._run(self._logits_of, field, placed)[0]
        return np.asarray((jax.nn.sigmoid if self._multi_label else jax.nn.softmax)(logits))

    def gradients(self, field: Neighbourhood, placed: Placed, of: int) -> Gradients:
        """Gradients times inputs of class number `of`."""
        return self._run(self._gradients_of, field, placed, np.int32(of))

    def mixed(
        self, field: Neighbourhood, placed: Placed, of: int, directions: tuple[tuple[int, int], ...]
    ) -> np.ndarray:
        """The derivative by the gates at `directions`, (layer, relation) each, and one more: `[layers, relations]`.

        At most two directions.
        """
        picked = []
        for layer, relation in directions:
            one = np.zeros((len(self.plans), len(self.names)), np.float32)
            one[layer, relation] = 1.0
            picked.append(one)
        walk = self._walk[len(directions) + 1]
        return np.asarray(self._run(walk, field, placed, np.int32(of), tuple(picked)))

    def masks(self, field: Neighbourhood, placed: Placed, of: int, settings: MaskSettings) -> np.ndarray:
        """A learnt mask in (0, 1) of each edge, float32 `[num_edges]` (GNNExplainer, Ying et al., 2019, eq. 6)."""
        valid = np.arange(field.num_weights) < len(field.edges)
        found = self._run(self._masks_of, field, placed, np.int32(of), valid, settings)
        return np.asarray(found)[: len(field.edges)]

    def _run(self, function: Any, field: Neighbourhood, placed: Placed, *more: Any) -> Any:
        with compiling_for(WITHOUT_KERNELS):
            return function(self._on.params, placed, (field.counts(), field.num_weights), *more)

    # Traced

    def _score_rows(
        self, params: Any, placed: Placed, shapes: Any, values: Mapping[str, Any], weights: Any, gates: Any
    ) -> jax.Array:
        """The node's logits, `[num_classes]`."""
        counts, _ = shapes
        model: Any = nnx.merge(self._on.structure, params)
        last = len(self.plans) - 1
        graphs = tuple(
            {
                name: dataclasses.replace(
                    graph,
                    message_weights=weights[placed.numbers[hop][name]] * gates[last - hop, self.names.index(name)],
                )
                for name, graph in found.items()
            }
            for hop, found in enumerate(placed.graphs)
        )
        features = {name: _with_values(own, values[name]) for name, own in placed.features.items()}
        inputs = NeighbourhoodInputs(features, graphs, placed.ids, {}, counts)

        def reduce(partial: Partial) -> Any:
            return self._on.sums[partial.layer] if partial.over == "targets" and self._on.sums else partial.values

        rows = model.encode(inputs, None, reduce)
        logits: jax.Array = model.classifier(rows[self._target])[0]
        return logits.astype(jnp.float32)

    def _plain(self, placed: Placed, shapes: Any) -> tuple[dict[str, Any], jax.Array, jax.Array]:
        values = {name: jnp.asarray(_values_of(own), jnp.float32) for name, own in placed.features.items()}
        return values, jnp.ones(shapes[1]), jnp.ones((len(self.plans), len(self.names)))

    def _forward(self, params: Any, placed: Placed, shapes: Any) -> tuple[jax.Array, list[jax.Array]]:
        with observing() as found:
            logits = self._score_rows(params, placed, shapes, *self._plain(placed, shapes))
        self._about = [(each.kind, each.layer, each.name) for each in found]  # the same for every neighbourhood
        return logits, [each.value for each in found]

    def _log_odds(self, logits: jax.Array, of: jax.Array) -> jax.Array:
        """A linear function of the logits with the gradient that the class's log-odds have here."""
        if self._multi_label or logits.shape[0] == 1:
            return logits[of]
        others = jnp.where(jnp.arange(logits.shape[0]) == of, -jnp.inf, logits)
        return logits[of] - jax.lax.stop_gradient(jax.nn.softmax(others)) @ logits

    def _all_gradients(self, params: Any, placed: Placed, shapes: Any, of: jax.Array) -> Gradients:
        values, weights, gates = self._plain(placed, shapes)

        def score(values: Any, weights: jax.Array, gates: jax.Array) -> jax.Array:
            return self._log_odds(self._score_rows(params, placed, shapes, values, weights, gates), of)

        found = jax.grad(score, argnums=(0, 1, 2))(values, weights, gates)
        return Gradients(jax.tree.map(jnp.multiply, found[0], values), found[1], found[2])

    def _mixed(
        self, order: int, params: Any, placed: Placed, shapes: Any, of: jax.Array, directions: tuple[jax.Array, ...]
    ) -> jax.Array:
        values, weights, gates = self._plain(placed, shapes)

        def derived(count: int, gates: jax.Array) -> jax.Array:
            """The derivative by `count` of the directions, a scalar."""
            if not count:
                return self._log_odds(self._score_rows(params, placed, shapes, values, weights, gates), of)
            return jnp.vdot(directions[count - 1], jax.grad(functools.partial(derived, count - 1))(gates))

        return jax.grad(functools.partial(derived, order - 1))(gates)

    def _learn(
        self, params: Any, placed: Placed, shapes: Any, of: jax.Array, valid: jax.Array, settings: MaskSettings
    ) -> jax.Array:
        values, _, gates = self._plain(placed, shapes)
        count = jnp.maximum(valid.sum(), 1)

        def loss(logits_of_mask: jax.Array) -> jax.Array:
            mask = jnp.where(valid, jax.nn.sigmoid(logits_of_mask), 1.0)
            logits = self._score_rows(params, placed, shapes, values, mask, gates)
            log_p = jax.nn.log_sigmoid(logits[of]) if self._multi_label else jax.nn.log_softmax(logits)[of]
            inside = jnp.clip(mask, 1e-6, 1 - 1e-6)
            entropy = -inside * jnp.log(inside) - (1 - inside) * jnp.log1p(-inside)
            size, disorder = (jnp.where(valid, each, 0.0).sum() / count for each in (mask, entropy))
            return -log_p + settings.size * size + settings.entropy * disorder

        adam = optax.adam(settings.learning_rate)

        def step(carry: Any, _: None) -> tuple[Any, None]:
            mask, state = carry
            updates, state = adam.update(jax.grad(loss)(mask), state)
            return (optax.apply_updates(mask, updates), state), None

        start = jnp.zeros(valid.shape)
        (mask, _), _ = jax.lax.scan(step, (start, adam.init(start)), None, length=settings.steps)
        return jax.nn.sigmoid(mask)


def _values_of(features: Any) -> Any:
    return features.values if isinstance(features, SparseRows) else features


def _with_values(features: Any, values: jax.Array) -> Any:
    return dataclasses.replace(features, values=values) if isinstance(features, SparseRows) else values


def _all_ones(field: Neighbourhood) -> tuple[dict[str, np.ndarray], ...]:
    """Numbers of edges where all weights are 1, and the edges are fewer than the neighbourhood's."""
    return tuple({name: np.zeros_like(own) for name, own in hop.items()} for hop in field.numbers())
