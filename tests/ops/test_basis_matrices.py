import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.ops.basis_matrices import basis_matrices


@pytest.mark.parametrize(
    ("relations", "bases", "in_width", "out_width"), [(5, 3, 7, 4), (1, 1, 1, 1), (2, 6, 3, 2), (4, 2, 0, 3)]
)
def test_matrices_and_gradients_are_those_of_the_sum_over_bases(
    relations: int, bases: int, in_width: int, out_width: int
) -> None:
    rng = np.random.default_rng(relations)
    c_rb, v_bio = rng.normal(size=(relations, bases)), rng.normal(size=(bases, in_width, out_width))
    cotangent = rng.normal(size=(relations, in_width, out_width))
    with jax.enable_x64(True):
        made, back = jax.vjp(basis_matrices, jnp.asarray(c_rb), jnp.asarray(v_bio))
        of_c, of_v = back(jnp.asarray(cotangent))
    np.testing.assert_allclose(made, np.einsum("rb,bio->rio", c_rb, v_bio), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(of_c, np.einsum("rio,bio->rb", cotangent, v_bio), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(of_v, np.einsum("rb,rio->bio", c_rb, cotangent), rtol=1e-12, atol=1e-12)


def test_bfloat16_stays() -> None:
    made, back = jax.vjp(basis_matrices, jnp.ones((2, 3), jnp.bfloat16), jnp.ones((3, 4, 5), jnp.bfloat16))
    assert {leaf.dtype for leaf in (made, *back(made))} == {jnp.bfloat16.dtype}
