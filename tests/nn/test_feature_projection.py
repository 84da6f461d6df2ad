"""FP: stacks of matrices, and products by them of dense and of sparse rows."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import sparse

from jhgnn.graph.sparse_features import VIEWS, SparseFeatures
from jhgnn.nn.feature_projection import FeatureProjection, project_together
from jhgnn.ops.sparse_matmul import OP
from tests.ops import tolerances
from tests.ops.cases import mean_size
from tests.ops.tolerances import assert_close

NAMES = ("a", "b", "c", "d")
FACTORS: list[dict[str, int]] = [{}, {"bases": 2}, {"blocks": 2}]


def projection(**options: int) -> FeatureProjection:
    return FeatureProjection(NAMES, 6, 4, rngs=nnx.Rngs(params=3), **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", FACTORS, ids=str)
def test_any_choice_of_outputs_is_of_the_whole_stack(options: dict[str, int]) -> None:
    """Runs of the stack are sliced and other choices gathered; both in the order that is asked for."""
    own = projection(**options)
    whole = np.asarray(own.stack())
    assert whole.shape == (4, 6, 4)
    assert len({matrix.tobytes() for matrix in whole}) == 4
    for count in range(5):
        for names in itertools.permutations(NAMES, count):
            places = [NAMES.index(name) for name in names]
            np.testing.assert_allclose(own.stack(names), whole[places].reshape(count, 6, 4), rtol=1e-6)


def test_a_run_of_the_stack_has_no_scattered_gradient() -> None:
    own = projection()

    def primitives(names: list[str]) -> str:
        graph, state = nnx.split(own)
        return str(jax.make_jaxpr(jax.grad(lambda state: nnx.merge(graph, state).stack(names).sum()))(state))

    assert "scatter" not in primitives(["b", "c"])
    assert "scatter" in primitives(["a", "c"])


@pytest.mark.parametrize(
    "kind",
    [
        "dense",
        *(
            pytest.param(n, marks=[pytest.mark.slow] if n == "bucketed" else [])
            for n in OP.names(SparseFeatures, "cpu")
        ),
    ],
)
@pytest.mark.parametrize("names", [(), ("b",), ("a", "b", "c", "d")])
@pytest.mark.parametrize("groups", [{}, {("logits",): 2, ("more", "others"): 3}])
def test_products_and_gradients_agree_with_float64(
    kind: str, names: tuple[str, ...], groups: dict[tuple[str, ...], int]
) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(9, 6)) * (rng.random((9, 6)) < 0.5)).astype(np.float32)
    rows = jnp.asarray(x) if kind == "dense" else SparseFeatures.from_scipy(sparse.csr_array(x)).place(VIEWS)
    own = projection()
    stack = own.stack(names) if names else None
    narrow = {name: width for group, width in groups.items() for name in group}
    columns = {name: jnp.asarray(rng.normal(size=(6, width)), jnp.float32) for name, width in narrow.items()}
    widths = dict.fromkeys(names, 4) | narrow
    cotangents = {name: jnp.asarray(rng.normal(size=(9, width)), jnp.float32) for name, width in widths.items()}

    def products(stack: jax.Array | None, columns: dict[str, jax.Array]) -> dict[str, jax.Array]:
        implementation = "segment" if kind == "dense" else kind
        joined = [(group, jnp.concatenate([columns[name] for name in group], axis=1)) for group in groups]
        return project_together(
            rows, names, stack, joined, sparse_implementation=implementation, dtype=jnp.dtype("float32")
        )

    found, vjp = jax.vjp(products, stack, columns)
    d_stack, d_columns = vjp(cotangents)
    assert list(found) == list(widths)
    matrices = dict(zip(names, own.stack(names), strict=True)) | columns
    for name, matrix in matrices.items():
        expected = x.astype(np.float64) @ np.asarray(matrix, np.float64)
        assert_close(found[name], expected, tolerances.FLOAT32, mean_size(expected), name)
        d_matrix = d_columns[name] if name in columns else d_stack[names.index(name)]
        expected = x.T.astype(np.float64) @ np.asarray(cotangents[name], np.float64)
        assert_close(d_matrix, expected, tolerances.FLOAT32, mean_size(expected), f"d_{name}")
