"""The search for the first value that is not finite."""

import jax
import jax.numpy as jnp

from jhgnn.nn.stage import stage
from jhgnn.training.diagnosis import first_non_finite, non_finite_leaves


def test_names_stage_and_tensor_of_the_first_nan():
    @jax.jit
    def inner(x):
        with stage("SF", 1, "paper"):
            return jnp.log(x)

    def function(x):
        with stage("FP", 0):
            y = x - 2.0
        return inner(y).sum()

    found = first_non_finite(function, jnp.ones((2, 3)))
    assert found is not None
    assert "layer1/SF/paper" in found.stage
    assert found.tensor == "log [2x3]"


def test_enters_custom_derivatives_and_checkpoints():
    @jax.custom_vjp
    def root(x):
        with stage("NA", 0, "PAP"):
            return jnp.sqrt(x)

    root.defvjp(lambda x: (root(x), x), lambda x, g: (g,))
    found = first_non_finite(lambda x: jax.checkpoint(root)(x).sum(), jnp.asarray([4.0, -1.0]))
    assert found is not None
    assert "layer0/NA/PAP" in found.stage


def test_finite_work_is_none_and_masked_infinities_are_fine():
    assert first_non_finite(lambda x: jnp.exp(jnp.where(x > 0, x, -jnp.inf)).sum(), jnp.arange(3.0)) is None


def test_overflow_counts():
    found = first_non_finite(lambda x: jnp.exp(x), jnp.asarray([1000.0]))
    assert found is not None
    assert found.tensor == "exp [1]"


def test_names_the_leaves_of_a_tree():
    tree = {"a": {"b": jnp.asarray([1.0, jnp.nan])}, "c": [jnp.ones(2), jnp.arange(3)]}
    assert list(non_finite_leaves(tree)) == ["a.b"]
