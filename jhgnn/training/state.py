"""What a training step reads and writes."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jhgnn.random import keys
from jhgnn.random.counter_hash import GOLDEN, mix

Params = Any
"""Nested dicts of arrays."""
Builder = Callable[[nnx.Rngs], nnx.Module]
"""Makes a module; see `jhgnn.training.execution.Execution.builder`."""


class TrainState(NamedTuple):
    """What a step reads and makes anew: one pytree, donated to the step and saved in checkpoints."""

    step: Any  # int32 scalar: updates done
    seed: Any  # uint32 scalar: of dropout
    params: Params
    opt_state: optax.OptState
    hot: Any = ()  # outside of programs, where rows of hot vertices are reused: see `SuperBatches.saved`


def structure_of(build: Builder) -> nnx.GraphDef:
    """The module without its parameters; nothing is computed."""
    return abstract_model(build)[0]


def abstract_params(build: Builder) -> Params:
    """Shapes and dtypes of the parameters."""
    return abstract_model(build)[1]


def abstract_model(build: Builder) -> tuple[nnx.GraphDef, Params]:
    """The module without its parameters, and shapes and dtypes of these, from one trace."""
    structure, params = nnx.split(nnx.eval_shape(lambda: build(_rngs(keys.key(0)))))
    return structure, nnx.to_pure_dict(params)


def traced_params(build: Builder, seed: Any) -> Params:
    """Within a program, random parameters as nested dicts, from a uint32 scalar."""
    return nnx.to_pure_dict(nnx.state(build(_rngs(keys.key(seed))), nnx.Param))


def new_state(params: Params, optimizer: optax.GradientTransformation, seed: Any) -> TrainState:
    """Within a program, the state before the first step."""
    return TrainState(jnp.zeros((), jnp.int32), jnp.asarray(seed, jnp.uint32), params, optimizer.init(params))


def abstract_state(params: Params, optimizer: optax.GradientTransformation) -> TrainState:
    """Shapes and dtypes of a state, from those of the parameters."""
    scalar = functools.partial(jax.ShapeDtypeStruct, ())
    return TrainState(scalar(jnp.int32), scalar(jnp.uint32), params, jax.eval_shape(optimizer.init, params))


def dropout_seed(state: TrainState) -> jax.Array:
    """The seed of this step's dropout, a pure function of (seed, step): a resumed run draws the same masks."""
    return mix(state.seed ^ mix(state.step.astype(jnp.uint32) + jnp.uint32(GOLDEN)))


def num_params(params: Params) -> int:
    """Numbers that are learnt."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def param_names(params: Params) -> dict[str, jax.Array]:
    """Parameters by dotted path, `layers.0.projection.w_rio`."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _rngs(key: jax.Array) -> nnx.Rngs:
    return nnx.Rngs(params=key)
