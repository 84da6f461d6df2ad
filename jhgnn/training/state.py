"""What a training step reads and writes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.models import MODELS
from jhgnn.models.inputs import GraphSpec

Params = Any
"""Nested dicts of arrays."""


class TrainState(NamedTuple):
    """One pytree: donated to the step, saved in checkpoints."""

    step: Any  # int32 scalar: updates done
    seed: Any  # uint32 scalar: of dropout
    params: Params
    opt_state: optax.OptState


def model_structure(config: ModelConfig, spec: GraphSpec) -> nnx.GraphDef:
    """The model without its parameters; nothing is computed."""
    abstract = nnx.eval_shape(lambda: MODELS[config.name](config, spec, rngs=_rngs(jax.random.key(0, impl="rbg"))))
    return nnx.split(abstract)[0]


def init_params(config: ModelConfig, spec: GraphSpec, seed: int) -> Params:
    """Random parameters as nested dicts; compiled as one program, since dozens of small ones compile for seconds."""

    def build(key: jax.Array) -> Params:
        return nnx.to_pure_dict(nnx.state(MODELS[config.name](config, spec, rngs=_rngs(key)), nnx.Param))

    return jax.jit(build)(jax.random.key(seed, impl="rbg"))


def abstract_params(config: ModelConfig, spec: GraphSpec) -> Params:
    """Shapes and dtypes of the parameters."""

    def build(key: jax.Array) -> Params:
        return nnx.to_pure_dict(nnx.state(MODELS[config.name](config, spec, rngs=_rngs(key)), nnx.Param))

    return jax.eval_shape(build, jax.random.key(0, impl="rbg"))


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


def _rngs(key: jax.Array) -> nnx.Rngs:
    return nnx.Rngs(params=key)
