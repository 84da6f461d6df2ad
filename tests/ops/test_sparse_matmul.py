"""Every implementation of sparse_matmul against a dense float64 product."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from jhgnn.graph.sparse_features import VIEWS, SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.ops.sparse_matmul import OP, sparse_matmul, sparse_matmul_stack
from tests.ops import tolerances
from tests.ops.cases import mean_size
from tests.ops.tolerances import assert_close

implementations = pytest.mark.parametrize("implementation", OP.names(SparseFeatures, "cpu"))
WAYS = [(each.name, each.takes) for each in OP.implementations if each.runs_on("cpu")]


def random_matrix(rows: int, columns: int, density: float, seed: int = 0) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < density)
    return sparse.csr_array(dense.astype(np.float32))


MATRICES = {
    "random": random_matrix(50, 70, 0.1),
    "full": random_matrix(20, 9, 1.0),
    "full_column": sparse.csr_array(np.ones((20_000, 1), np.float32)),
    "full_row": sparse.csr_array(np.ones((1, 20_000), np.float32)),
    "odd": random_matrix(89, 71, 0.95),  # 5,985 values or so, padded to a multiple of 64
    "empty_rows": random_matrix(200, 30, 0.005),
    "no_values": sparse.csr_array((6, 5), dtype=np.float32),
    "no_rows": sparse.csr_array((0, 5), dtype=np.float32),
    "no_columns": sparse.csr_array((5, 0), dtype=np.float32),
}

QUICK = ("random", "full", "empty_rows", "no_values", "no_rows")
"""Those on which the default suite runs what XLA has to compile for each shape."""


def placed(matrix: sparse.csr_array, takes: type = SparseFeatures) -> Any:
    """On the device, with all views, so that any implementation takes it."""
    if takes is SparseFeatures:
        return SparseFeatures.from_scipy(matrix).place(VIEWS)
    return jax.device_put(SparseRows.from_scipy(matrix))


def check(
    matrix: sparse.csr_array,
    width: int,
    implementation: str,
    dtype: jnp.dtype,
    tolerance: float,
    takes: type = SparseFeatures,
) -> None:
    rng = np.random.default_rng(1)
    weight = jnp.asarray(rng.normal(size=(matrix.shape[1], width)), dtype)
    cotangent = jnp.asarray(rng.normal(size=(matrix.shape[0], width)), dtype)

    @jax.jit
    def run(
        features: SparseFeatures | SparseRows, weight: jax.Array, cotangent: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        out, vjp = jax.vjp(lambda w: sparse_matmul(features, w, implementation=implementation), weight)
        return out, vjp(cotangent)[0]

    out, gradient = run(placed(matrix, takes), weight, cotangent)
    dense = matrix.toarray().astype(np.float64)
    assert out.dtype == gradient.dtype == dtype
    expected = dense @ np.asarray(weight, np.float64), dense.T @ np.asarray(cotangent, np.float64)
    assert_close(out, expected[0], tolerance, mean_size(expected[0]), "out")
    assert_close(gradient, expected[1], tolerance, mean_size(expected[1]), "d_weight")


@pytest.mark.parametrize(
    ("implementation", "takes", "name"),
    [
        pytest.param(*way, name, marks=[] if way[0] == "native" or name in QUICK else [pytest.mark.slow])
        for way in WAYS
        for name in sorted(MATRICES)
        if way[1] is SparseFeatures or name != "no_columns"  # whose padded rows would have nothing to point at
    ],
)
def test_agrees_with_float64(name: str, implementation: str, takes: type) -> None:
    tolerance = tolerances.FLOAT32_HUB if name.startswith("full_") else tolerances.FLOAT32
    check(MATRICES[name], 21, implementation, jnp.float32, tolerance, takes)


@pytest.mark.parametrize("width", [1, 5, 8, 16, 24, 64, 136, 200, 513])
def test_native_covers_any_width(width: int) -> None:
    check(MATRICES["random"], width, "native", jnp.float32, tolerances.FLOAT32)
    check(MATRICES["random"], width, "native", jnp.bfloat16, tolerances.BFLOAT16)


@pytest.mark.parametrize(
    "width", [127, 128, *(pytest.param(n, marks=pytest.mark.slow) for n in (129, 130, 192, 224, 513))]
)
@pytest.mark.parametrize("shape", [(90, 70), (3, 20_000), (20_000, 2)])
def test_native_in_strips_of_columns(shape: tuple[int, int], width: int) -> None:
    """Rows that are read 32 times and more, so that wide ones are summed strip by strip; hubs in pieces as well."""
    matrix = random_matrix(*shape, 0.9)
    check(matrix, width, "native", jnp.float32, tolerances.FLOAT32_HUB)
    check(matrix, width, "native", jnp.bfloat16, tolerances.BFLOAT16)


@implementations
def test_bfloat16_in_float32_sums(implementation: str) -> None:
    check(MATRICES["full_row"], 4, implementation, jnp.bfloat16, tolerances.BFLOAT16)


@implementations
def test_no_width(implementation: str) -> None:
    features = placed(MATRICES["random"])
    assert sparse_matmul(features, jnp.zeros((70, 0)), implementation=implementation).shape == (50, 0)


def check_stack(matrix: sparse.csr_array, stack: np.ndarray, implementation: str, dtype: jnp.dtype) -> None:
    """Products and the stack's gradient, one matrix's cotangent left out, so that it is zeros."""
    rng = np.random.default_rng(2)
    count, _, width = stack.shape
    cotangents = rng.normal(size=(count, matrix.shape[0], width)).astype(dtype)

    @jax.jit
    def run(features: SparseFeatures, stack: jax.Array, cotangents: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        def weighted(stack: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
            parts = sparse_matmul_stack(features, stack, implementation=implementation)
            terms = [(part * cotangents[i]).astype(jnp.float32).sum() for i, part in enumerate(parts) if i]
            return sum(terms, jnp.zeros(())), list(parts)

        gradient, parts = jax.grad(weighted, has_aux=True)(stack)
        return parts, gradient

    parts, gradient = run(placed(matrix), jnp.asarray(stack, dtype), cotangents)
    tolerance = tolerances.FLOAT32 if dtype == jnp.float32 else tolerances.BFLOAT16
    dense = matrix.toarray().astype(np.float64)
    assert len(parts) == count
    assert (gradient.shape, gradient.dtype) == (stack.shape, dtype)
    for i, part in enumerate(parts):
        expected = dense @ np.asarray(jnp.asarray(stack[i], dtype), np.float64)
        assert_close(part, expected, tolerance, mean_size(expected), f"out {i}")
        d_weight = dense.T @ cotangents[i].astype(np.float64) * (i > 0)
        assert_close(gradient[i], d_weight, tolerance, mean_size(d_weight), f"d_weight {i}")


@implementations
@pytest.mark.parametrize("name", sorted(set(MATRICES) - {"full_column", "full_row"}))
def test_stack_agrees_with_float64(name: str, implementation: str) -> None:
    matrix = MATRICES[name]
    check_stack(matrix, np.random.default_rng(0).normal(size=(3, matrix.shape[1], 20)), implementation, jnp.float32)


@pytest.mark.slow
@implementations
@pytest.mark.parametrize(("count", "width"), [(1, 5), (2, 64), (4, 70)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_stack_of_any_size(count: int, width: int, dtype: jnp.dtype, implementation: str) -> None:
    stack = np.random.default_rng(count).normal(size=(count, 70, width))
    check_stack(MATRICES["random"], stack, implementation, dtype)


@implementations
@pytest.mark.parametrize("shape", [(0, 70, 4), (3, 70, 0)])
def test_empty_stack(shape: tuple[int, int, int], implementation: str) -> None:
    check_stack(MATRICES["random"], np.zeros(shape), implementation, jnp.float32)


def test_stack_is_neither_joined_nor_split() -> None:
    """What the op is for: the products and the gradient are written where they belong."""
    features = placed(MATRICES["random"])

    def total(stack: jax.Array) -> jax.Array:
        parts = sparse_matmul_stack(features, stack, implementation="native")
        return sum(((part**2).sum() for part in parts), jnp.zeros(()))

    text = jax.jit(jax.grad(total)).lower(jnp.ones((3, 70, 16))).compile().as_text()
    assert text.count('"jhgnn_row_sums"') == 2
    assert not {"concatenate", "slice"} & {line.split("(")[0].split()[-1] for line in text.splitlines() if "(" in line}


@pytest.mark.slow
def test_float64() -> None:
    with jax.enable_x64(True):
        check(MATRICES["random"], 3, "segment", jnp.float64, tolerances.FLOAT64)
        for implementation in ("rows", "bucketed"):
            check(MATRICES["random"], 3, implementation, jnp.float64, tolerances.FLOAT64, SparseRows)
        with pytest.raises(ValueError, match="float64; cast"):
            sparse_matmul(SparseFeatures.from_scipy(MATRICES["random"]), jnp.zeros((70, 2)), implementation="native")


def test_wrong_arguments() -> None:
    features = SparseFeatures.from_scipy(MATRICES["random"])
    with pytest.raises(ValueError, match="has no implementation 'fast'"):
        sparse_matmul(features, jnp.zeros((70, 2)), implementation="fast")
    with pytest.raises(ValueError, match=r"70 columns got a weight of shape \(71, 2\)"):
        sparse_matmul(features, jnp.zeros((71, 2)), implementation="native")
    with pytest.raises(ValueError, match=r"70 columns got a weight of shape \(70, 2\)"):
        sparse_matmul_stack(features, jnp.zeros((70, 2)), implementation="native")
    with pytest.raises(ValueError, match="has no implementation 'fast'"):
        sparse_matmul_stack(features, jnp.zeros((1, 70, 2)), implementation="fast")


def test_choose() -> None:
    features = SparseFeatures.from_scipy(MATRICES["random"])
    assert OP.choose(features)[0] == "native"
    assert OP.choose(features, platform="tpu") == ("segment", "XLA on tpu, 10.7% dense")


def with_zeros(matrix: sparse.csr_array, share: float, seed: int = 3) -> SparseFeatures:
    """The features with values set to zero, as dropout leaves them: the same entries, both ways."""
    features = SparseFeatures.from_scipy(matrix)
    shape = (features.num_rows, features.num_columns)
    kept = np.random.default_rng(seed).random(shape) >= share
    rows, columns = np.asarray(features.rows), np.asarray(features.columns)
    by_row, by_column = (np.asarray(csr.indices) for csr in (features.by_row, features.by_column))
    return dataclasses.replace(
        features,
        values=np.where(kept[rows, by_row], features.values, 0.0).astype(np.float32),
        values_by_column=np.where(kept[by_column, columns], features.values_by_column, 0.0).astype(np.float32),
    )


def products_and_gradients(features: SparseFeatures, stack: jax.Array, cotangents: jax.Array) -> list[jax.Array]:
    def products(stack: jax.Array) -> list[jax.Array]:
        return [
            *sparse_matmul_stack(features, stack, implementation="native"),
            sparse_matmul(features, stack[0], implementation="native"),
        ]

    out, vjp = jax.vjp(products, stack)
    return [*out, *vjp(list(cotangents))]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.7, 1.0])
@pytest.mark.parametrize(("shape", "width"), [((300, 200), 5), ((2_000, 300), 64), ((3, 40_000), 64), ((40_000, 3), 5)])
def test_native_leaves_out_zeros(shape: tuple[int, int], width: int, share: float) -> None:
    """Few and many of them, in small matrices and in those that two threads copy, in hubs too."""
    features = with_zeros(random_matrix(*shape, 0.5), share).place()
    rng = np.random.default_rng(4)
    stack = jnp.asarray(rng.normal(size=(2, shape[1], width)), jnp.float32)
    cotangents = jnp.asarray(rng.normal(size=(3, shape[0], width)), jnp.float32)
    dense = np.zeros(shape)
    np.add.at(dense, (np.asarray(features.rows), np.asarray(features.by_row.indices)), np.asarray(features.values))
    found = jax.jit(products_and_gradients)(features, stack, cotangents)
    stack_64, cotangents_64 = np.asarray(stack, np.float64), np.asarray(cotangents, np.float64)
    expected = [dense @ stack_64[0], dense @ stack_64[1], dense @ stack_64[0]]
    gradient = [dense.T @ (cotangents_64[0] + cotangents_64[2]), dense.T @ cotangents_64[1]]
    for result, right in zip(found, [*expected, np.stack(gradient)], strict=True):
        assert_close(result, right, tolerances.FLOAT32_HUB, mean_size(right), "with zeros")


def test_zeros_change_no_bit() -> None:
    """Left out or multiplied: the sums of the others are the same, in the same order."""
    features = with_zeros(random_matrix(400, 90, 0.6), 0.7)
    kept = features.values != 0
    without = SparseFeatures.from_scipy(
        sparse.csr_array((features.values[kept], (features.rows[kept], features.by_row.indices[kept])), shape=(400, 90))
    )
    rng = np.random.default_rng(5)
    stack = jnp.asarray(rng.normal(size=(2, 90, 64)), jnp.float32)
    cotangents = jnp.asarray(rng.normal(size=(3, 400, 64)), jnp.float32)
    run = jax.jit(products_and_gradients)
    for result, right in zip(
        run(features.place(), stack, cotangents), run(without.place(), stack, cotangents), strict=True
    ):
        np.testing.assert_array_equal(result, right)
