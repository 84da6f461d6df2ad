"""dense_matmul against float64: the product, and both gradients, by the kernel and without it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn import native
from jhgnn.ops import dense_matmul as module
from jhgnn.ops.dense_matmul import MAX_WEIGHT_SIZE, MIN_ROWS, dense_matmul

SHAPES = [(512, 64, 64), (513, 1, 1), (700, 7, 3), (1024, 6, 16), (2047, 13, 100), (5257, 64, 128), (600, 512, 16)]
UNIT = {jnp.float32: 2.0**-23, jnp.bfloat16: 2.0**-7}

needs_native = pytest.mark.skipif(not native.available(), reason="the native kernels are not built")


def arrays(rows: int, in_width: int, out_width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((rows, in_width), (in_width, out_width), (rows, out_width))
    x, weight, cotangent = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return x, weight, cotangent


def products(x: jax.Array, weight: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    out, pull = jax.vjp(dense_matmul, x, weight)
    return out, *pull(cotangent)


def check(x: np.ndarray, weight: np.ndarray, cotangent: np.ndarray, dtype: jax.typing.DTypeLike) -> None:
    """Each element is off by some roundings of the largest sum of magnitudes that one could have."""
    given = [jnp.asarray(each, dtype) for each in (x, weight, cotangent)]
    wide = [np.asarray(each, np.float64) for each in given]
    results = jax.jit(products)(*given)
    pairs = [(wide[0], wide[1]), (wide[2], wide[1].T), (wide[0].T, wide[2])]
    for result, (left, right), what in zip(results, pairs, ("out", "d_x", "d_weight"), strict=True):
        assert result.dtype == dtype, what
        bound = 4 * UNIT[dtype] * (np.abs(left) @ np.abs(right)).max() + 1e-30
        np.testing.assert_allclose(np.asarray(result, np.float64), left @ right, rtol=0, atol=bound, err_msg=what)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_and_gradients(shape: tuple[int, int, int], dtype: jax.typing.DTypeLike) -> None:
    check(*arrays(*shape), dtype)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 1500), in_width=st.integers(0, 140), out_width=st.integers(0, 140))
def test_any_shape(rows: int, in_width: int, out_width: int) -> None:
    if rows and in_width and out_width:
        check(*arrays(rows, in_width, out_width), jnp.float32)
    else:
        out, d_x, d_weight = products(*map(jnp.asarray, arrays(rows, in_width, out_width)))
        assert (out.shape, d_x.shape, d_weight.shape) == ((rows, out_width), (rows, in_width), (in_width, out_width))
        assert not out.any()
        assert not d_x.any()
        assert not d_weight.any()


@needs_native
def test_which_shapes_have_the_kernel() -> None:
    def calls(rows: int, in_width: int, out_width: int) -> bool:
        return "jhgnn_outer_sum" in jax.jit(products).lower(*arrays(rows, in_width, out_width)).as_text()

    widest = MAX_WEIGHT_SIZE.get(native.instruction_set(), 0) // 64
    assert calls(MIN_ROWS, 64, widest) == (widest > 0)
    assert not calls(MIN_ROWS - 1, 64, widest)
    assert not calls(MIN_ROWS, 64, widest + 1)


def test_without_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.native, "available", lambda: False)
    assert "jhgnn_outer_sum" not in jax.jit(products).lower(*arrays(1024, 64, 64)).as_text()
    check(*arrays(1025, 64, 63), jnp.float32)


@needs_native
@pytest.mark.parametrize("shape", [((3000, 200), (3000, 70)), ((0, 5), (0, 3)), ((400, 3), (400, 0)), ((9, 0), (9, 4))])
def test_the_kernel_itself_takes_any_shape(shape: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Several stripes of columns and chunks of rows, and nothing at all."""
    rng = np.random.default_rng(1)
    x, d = (rng.standard_normal(each, np.float32) for each in shape)
    out = jax.ffi.ffi_call("jhgnn_outer_sum", jax.ShapeDtypeStruct((x.shape[1], d.shape[1]), jnp.float32))(x, d)
    np.testing.assert_allclose(out, x.astype(float).T @ d.astype(float), atol=1e-3)


@needs_native
@pytest.mark.parametrize(
    ("x", "d", "message"),
    [
        (jnp.ones((4, 3)), jnp.ones((5, 2)), r"d is \[5, 2\]; need \[rows, out_width\]"),
        (jnp.ones(4), jnp.ones((4, 2)), "must be matrices"),
        (jnp.ones((4, 3), jnp.float16), jnp.ones((4, 2)), "float32 and bfloat16"),
    ],
)
def test_buffers_that_do_not_fit(x: jax.Array, d: jax.Array, message: str) -> None:
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=message):
        jax.block_until_ready(jax.ffi.ffi_call("jhgnn_outer_sum", jax.ShapeDtypeStruct((3, 2), jnp.float32))(x, d))
