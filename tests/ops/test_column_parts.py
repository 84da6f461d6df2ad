"""column_parts, the native kernel and XLA's, against slices by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn import native
from jhgnn.ops import column_parts as module
from jhgnn.ops.column_parts import MANY, column_parts
from jhgnn.runtime.platform import compiling_for

needs_native = pytest.mark.skipif(not native.available(), reason="the native kernels are not built")
DTYPES = (np.float32, jnp.bfloat16, np.uint32, np.uint8)


def check(rows: int, widths: list[int], dtype: jax.typing.DTypeLike = np.float32) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 200, (rows, sum(widths))).astype(dtype)
    parts = jax.jit(lambda x: column_parts(x, widths))(x)
    borders = np.cumsum(widths)[:-1]
    for part, right in zip(parts, np.split(x, borders, axis=1) if widths else [], strict=True):
        assert part.dtype == right.dtype
        np.testing.assert_array_equal(np.asarray(part), right)


@needs_native
@settings(max_examples=15, deadline=None)
@given(rows=st.integers(0, 300), widths=st.lists(st.integers(0, 9), min_size=MANY, max_size=12))
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_widths(dtype: jax.typing.DTypeLike, rows: int, widths: list[int]) -> None:
    check(rows, widths, dtype)


def test_few_parts_and_none() -> None:
    check(5, [3, 4])
    check(5, [])


def test_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.native, "available", lambda: False)
    check(5, [1] * MANY)


@pytest.mark.parametrize("count", [3, MANY])
def test_its_gradient_lays_those_of_the_parts_side_by_side(count: int) -> None:
    widths = [number % 3 + 1 for number in range(count)]
    x = jnp.asarray(np.random.default_rng(0).normal(size=(70, sum(widths))), jnp.float32)

    def total(x: jax.Array) -> jax.Array:
        # One part takes no part, whose gradient is zero.
        return sum((number * part**2).sum() for number, part in enumerate(column_parts(x, widths)))

    factors = np.repeat(np.arange(count), widths)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(x), 2 * factors * np.asarray(x), rtol=1e-6)


@needs_native
def test_many_parts_are_one_kernel_on_a_cpu_alone() -> None:
    def parts(x: jax.Array) -> list[jax.Array]:
        return [part + 1 for part in column_parts(x, [2] * 3 * MANY)]

    traced = jax.jit(parts).trace(jnp.ones((4, 6 * MANY)))
    assert traced.lower().as_text().count("custom_call @jhgnn_column_parts") == 1
    with compiling_for("cuda"):
        text = jax.jit(parts).trace(jnp.ones((4, 6 * MANY))).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call" not in text


def test_wrong_widths() -> None:
    with pytest.raises(ValueError, match="column_parts of 5 columns got widths that add up to 6"):
        column_parts(jnp.zeros((2, 5)), [2, 4])


@needs_native
@pytest.mark.parametrize(
    ("shape", "parts", "message"),
    [
        ((2, 5), [(2, 2), (2, 2)], "parts of 4 columns, of x"),
        ((2, 5), [(3, 5)], r"a part must be \[2, width\]"),
        ((2, 5), [(2, 5, 1)], r"a part must be \[2, width\]"),
        ((10,), [(2, 5)], r"x must be \[rows, columns\]"),
    ],
)
def test_the_kernel_checks_its_buffers(shape: tuple[int, ...], parts: list[tuple[int, ...]], message: str) -> None:
    native.library()
    call = jax.ffi.ffi_call("jhgnn_column_parts", [jax.ShapeDtypeStruct(each, jnp.float32) for each in parts])
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(call(jnp.zeros(shape)))
