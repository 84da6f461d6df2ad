"""The hash: NumPy, jnp and C++ give the same bits, which look uniform and independent between heads and seeds."""

import ctypes

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn import native
from jhgnn.random.counter_hash import edge_bits, keep_threshold, mix

words = st.integers(0, 2**32 - 1)


def native_edge_bits(seed: int, *columns: np.ndarray) -> np.ndarray:
    columns = tuple(np.ascontiguousarray(column, np.uint32) for column in columns)
    bits = np.empty(len(columns[0]), np.uint32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*columns, bits)]
    native.library().jhgnn_edge_bits(ctypes.c_uint32(seed), *pointers[:3], ctypes.c_int64(len(bits)), pointers[3])
    return bits


@hypothesis.given(seed=words, edges=st.lists(st.tuples(words, words, words), min_size=1, max_size=20))
def test_numpy_jax_and_cpp_agree(seed: int, edges: list[tuple[int, int, int]]) -> None:
    columns = np.array(edges, np.uint32).T
    expected = edge_bits(np.array([seed], np.uint32), *columns)
    assert expected.dtype == np.uint32
    np.testing.assert_array_equal(expected, native_edge_bits(seed, *columns))
    np.testing.assert_array_equal(expected, jax.jit(edge_bits)(jnp.uint32(seed), *map(jnp.asarray, columns)))


def test_mix_is_the_published_one() -> None:
    # A bijection: no two of these inputs collide; and the value that the algorithm's definition gives for 1.
    x = np.arange(1 << 16, dtype=np.uint32)
    assert len(np.unique(mix(x))) == len(x)
    by_hand = 1
    by_hand = (by_hand * 0x7FEB352D) % 2**32
    by_hand ^= by_hand >> 15
    by_hand = (by_hand * 0x846CA68B) % 2**32
    assert int(mix(np.array([1], np.uint32))[0]) == by_hand ^ (by_hand >> 16)


def test_bits_are_uniform_and_heads_independent() -> None:
    senders, receivers = (ids.ravel().astype(np.uint32) for ids in np.meshgrid(np.arange(300), np.arange(300)))
    heads = np.arange(8, dtype=np.uint32)
    bits = edge_bits(np.array([[5]], np.uint32), senders[:, None], receivers[:, None], heads[None, :])
    dropped = bits < keep_threshold(0.5)
    assert abs(dropped.mean() - 0.5) < 0.005  # 9 standard deviations
    assert np.abs(np.corrcoef(dropped.T) - np.eye(8)).max() < 0.02
    other = edge_bits(np.array([6], np.uint32), senders, receivers, heads[:1]) < keep_threshold(0.5)
    assert abs(np.corrcoef(dropped[:, 0], other)[0, 1]) < 0.02


@pytest.mark.parametrize(("rate", "threshold"), [(0.0, 0), (0.5, 2**31), (1 - 2**-40, 2**32 - 1)])
def test_keep_threshold(rate: float, threshold: int) -> None:
    assert keep_threshold(rate) == threshold
