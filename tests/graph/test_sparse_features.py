"""Sparse features on the host: both directions hold the matrix, with zeros stored where values come in whole parts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from jhgnn.graph.semantic_graph import Csr
from jhgnn.graph.sparse_features import MIN_VALUES, WHOLE_PARTS, SparseFeatures


def matrix(rows: int, columns: int, count: int, seed: int = 0) -> sparse.csr_array:
    """`count` values at different places."""
    rng = np.random.default_rng(seed)
    places = rng.choice(rows * columns, count, replace=False)
    values = rng.normal(size=count).astype(np.float32)
    return sparse.csr_array((values, np.divmod(places, columns)), shape=(rows, columns))


def dense(direction: Csr, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return sparse.csr_array((values, direction.indices, direction.indptr), shape=shape).toarray()


@settings(max_examples=30, deadline=None)
@given(extra=st.integers(-MIN_VALUES, 200), seed=st.integers(0, 99))
def test_both_directions_hold_the_matrix(extra: int, seed: int) -> None:
    given_matrix = matrix(83, 61, MIN_VALUES + extra, seed)
    features = SparseFeatures.from_scipy(given_matrix)
    expected = given_matrix.toarray()
    np.testing.assert_array_equal(dense(features.by_row, features.values, (83, 61)), expected)
    np.testing.assert_array_equal(dense(features.by_column, features.values_by_column, (61, 83)), expected.T)
    np.testing.assert_array_equal(features.rows, np.repeat(np.arange(83), np.diff(features.by_row.indptr)))
    np.testing.assert_array_equal(features.columns, np.repeat(np.arange(61), np.diff(features.by_column.indptr)))
    stored = -(-given_matrix.nnz // WHOLE_PARTS) * WHOLE_PARTS if extra >= 0 else given_matrix.nnz
    assert features.num_values == stored


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (6, 5)])
def test_nothing_stored(shape: tuple[int, int]) -> None:
    assert SparseFeatures.from_scipy(sparse.csr_array(shape, dtype=np.float32)).num_values == 0
