"""logit_columns, the native kernel and XLA's, against products by hand in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn import native
from jhgnn.ops import logit_columns as module
from jhgnn.ops.logit_columns import logit_columns
from tests.ops import tolerances
from tests.ops.cases import mean_size
from tests.ops.tolerances import assert_close

needs_native = pytest.mark.skipif(not native.available(), reason="the native kernels are not built")


def check(
    matrices: int, rows: int, heads: int, width: int, places: list[int], dtype: jax.typing.DTypeLike = jnp.float32
) -> None:
    rng = np.random.default_rng(0)
    stack = jnp.asarray(rng.normal(size=(matrices, rows, heads * width)), dtype)
    vectors = jnp.asarray(rng.normal(size=(len(places), heads, width)), dtype)
    cotangent = jnp.asarray(rng.normal(size=(rows, len(places) * heads)), dtype)

    @jax.jit
    def run(stack: jax.Array, vectors: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        out, vjp = jax.vjp(lambda stack, vectors: logit_columns(stack, places, vectors), stack, vectors)
        return out, *vjp(cotangent)

    found = run(stack, vectors, cotangent)
    by_head = np.asarray(stack, np.float64).reshape(matrices, rows, heads, width)
    vectors_64 = np.asarray(vectors, np.float64)
    d_columns = np.asarray(cotangent, np.float64).reshape(rows, len(places), heads)
    out = np.einsum("vihd,vhd->ivh", by_head[places], vectors_64).reshape(rows, len(places) * heads)
    d_stack = np.zeros(by_head.shape)
    for number, place in enumerate(places):
        d_stack[place] += d_columns[:, number, :, None] * vectors_64[number]
    d_vectors = np.einsum("vihd,ivh->vhd", by_head[places], d_columns)
    tolerance = tolerances.FLOAT32 if dtype == jnp.float32 else tolerances.BFLOAT16
    expected = (out, d_stack.reshape(stack.shape), d_vectors)
    for name, result, right in zip(("out", "d_stack", "d_vectors"), found, expected, strict=True):
        assert (result.shape, result.dtype) == (right.shape, dtype), name
        assert_close(result, right, tolerance, mean_size(right), name)


@pytest.mark.parametrize("places", [[0], [2, 0, 1], [1, 1, 2, 1], []])
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (8, 8), (1, 64), (3, 5), (16, 4), (17, 3), (4, 16), (40, 2)])
def test_agrees_with_float64(heads: int, width: int, places: list[int]) -> None:
    check(3, 70, heads, width, places)


@pytest.mark.parametrize("places", [[2, 0, 1], [1, 1, 2, 1], []])
def test_agrees_with_float64_without_the_kernel(places: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.native, "available", lambda: False)
    check(3, 70, 3, 5, places)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data(), rows=st.integers(0, 600), heads=st.integers(1, 20), width=st.integers(1, 20))
def test_any_shape(data: st.DataObject, rows: int, heads: int, width: int) -> None:
    matrices = data.draw(st.integers(1, 4))
    check(matrices, rows, heads, width, data.draw(st.lists(st.integers(0, matrices - 1), max_size=5)))


def test_many_rows() -> None:
    """Several tasks, whose gradients of the vectors are added, the last one of a few rows."""
    check(2, 5 * 256 + 3, 8, 8, [1, 0, 1])


def test_bfloat16_is_not_for_the_kernel() -> None:
    check(2, 70, 8, 8, [1, 0], jnp.bfloat16)


@needs_native
def test_matrices_are_neither_transposed_nor_copied() -> None:
    """What the kernel is for."""

    def total(stack: jax.Array, vectors: jax.Array) -> jax.Array:
        return (logit_columns(stack, [0, 1, 0], vectors) ** 2).sum()

    text = jax.jit(jax.grad(total, (0, 1))).lower(jnp.ones((2, 300, 64)), jnp.ones((3, 8, 8))).compile().as_text()
    assert text.count('"jhgnn_logit_columns"') == text.count('"jhgnn_logit_columns_backward"') == 1
    operations = [line.split(", metadata=")[0] for line in text.splitlines()]
    large = [line for line in operations if "[2,300,64]" in line or "[300,64]" in line]
    assert not {name for line, name in itertools.product(large, ("transpose(", "copy(", "slice(")) if name in line}


@pytest.mark.parametrize(
    ("stack", "places", "vectors", "message"),
    [
        ((2, 5, 12), [0], (1, 3, 5), r"stack \(2, 5, 12\) got 1 places and vectors \(1, 3, 5\)"),
        ((2, 5, 12), [0, 1], (1, 3, 4), "got 2 places"),
        ((2, 5, 12), [2], (1, 3, 4), r"stack of 2 matrices got places \[2\]"),
        ((2, 5, 12), [-1], (1, 3, 4), r"got places \[-1\]"),
    ],
)
def test_wrong_arguments(stack: tuple[int, ...], places: list[int], vectors: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        logit_columns(jnp.zeros(stack), places, jnp.zeros(vectors))


@needs_native
@pytest.mark.parametrize(
    ("stack", "places", "vectors", "out", "message"),
    [
        ((2, 5, 12), [2], (1, 3, 4), (5, 3), "place 2 is outside"),
        ((2, 5, 12), [0, 0], (1, 3, 4), (5, 3), "needs the place of its matrix"),
        ((2, 5, 11), [0], (1, 3, 4), (5, 3), "does not fit vectors"),
        ((2, 5, 12), [0], (1, 3, 4), (5, 4), "need"),
        ((5, 12), [0], (1, 3, 4), (5, 3), "stack must be"),
    ],
)
def test_the_kernel_checks_its_buffers(
    stack: tuple[int, ...], places: list[int], vectors: tuple[int, ...], out: tuple[int, ...], message: str
) -> None:
    call = jax.ffi.ffi_call("jhgnn_logit_columns", jax.ShapeDtypeStruct(out, jnp.float32))
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(call(jnp.zeros(stack), jnp.zeros(vectors), places=np.array(places, np.int64)))
