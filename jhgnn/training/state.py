"""What a training step reads and writes."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jhgnn import random_keys
from jhgnn.config import ModelConfig
from jhgnn.models import MODELS
from jhgnn.models.inputs import GraphSpec

Params = Any
"""Nested dicts of arrays."""
Builder = Callable[[nnx.Rngs], nnx.Module]


class TrainState(NamedTuple):
    """One pytree: donated to the step, saved in checkpoints."""

    step: Any  # int32 scalar: updates done
    seed: Any  # uint32 scalar: of dropout
    params: Params
    opt_state: optax.OptState


def model_structure(config: ModelConfig, spec: GraphSpec) -> nnx.GraphDef:
    """The model without its parameters; nothing is computed."""
    return structure_of(_builder(config, spec))


def init_params(config: ModelConfig, spec: GraphSpec, seed: int) -> Params:
    """Random parameters as nested dicts; compiled as one program, since dozens of small ones compile for seconds."""
    return random_params(_builder(config, spec), seed)


def abstract_params(config: ModelConfig, spec: GraphSpec) -> Params:
    """Shapes and dtypes of the parameters."""
    return shapes_of(_builder(config, spec))


def structure_of(build: Builder) -> nnx.GraphDef:
    """`model_structure` of any module that `build` makes from `nnx.Rngs`."""
    return nnx.split(nnx.eval_shape(lambda: build(_rngs(random_keys.key(0)))))[0]


def random_params(build: Builder, seed: int) -> Params:
    """`init_params` of any module."""
    return jax.jit(functools.partial(_params, build))(random_keys.key(seed))


def shapes_of(build: Builder) -> Params:
    """`abstract_params` of any module."""
    return jax.eval_shape(functools.partial(_params, build), random_keys.key(0))


def init_state(params: Params, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    """The state before the first step."""
    opt_state = jax.jit(optimizer.init)(params)
    return TrainState(jnp.zeros((), jnp.int32), jnp.asarray(seed, jnp.uint32), params, opt_state)


def num_params(params: Params) -> int:
    """Numbers that are learnt."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def param_names(params: Params) -> dict[str, jax.Array]:
    """Parameters by dotted path, `layers.0.projection.w_rio`."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _builder(config: ModelConfig, spec: GraphSpec) -> Builder:
    return lambda rngs: MODELS[config.name](config, spec, rngs=rngs)


def _params(build: Builder, key: jax.Array) -> Params:
    return nnx.to_pure_dict(nnx.state(build(_rngs(key)), nnx.Param))


def _rngs(key: jax.Array) -> nnx.Rngs:
    return nnx.Rngs(params=key)
