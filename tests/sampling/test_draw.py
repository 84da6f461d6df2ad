"""The draw: the same bits in NumPy, jnp and C++, and a uniform choice without replacement."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jhgnn.graph.schema import Metapath, Relation
from jhgnn.random.counter_hash import mix
from jhgnn.sampling.draw import neighbor_offsets, relation_key, stream_keys, uniform_below, vertex_keys
from jhgnn.sampling.native import native_offsets

WORDS = st.integers(0, 2**32 - 1)
SIGNIFICANT = 1e-3  # the draws are fixed by their seeds: these tests pass always or never


def offsets_of(seeds: np.ndarray, degree: int, fan_out: int) -> np.ndarray:
    """One vertex's draw under many seeds, `[seeds, fan_out]`."""
    keys = [stream_keys(int(seed), 3, 1, 77) for seed in seeds]
    first, second = (np.concatenate([own[word] for own in keys]) for word in (0, 1))
    own = vertex_keys((first, second), np.full(len(seeds), 12345, np.int32))
    return neighbor_offsets(own, np.full(len(seeds), degree), fan_out)[0]


@pytest.mark.parametrize("fan_out", [1, 2, 5, 25, 64, 1024])
def test_bits_agree_between_numpy_jnp_and_cpp(fan_out: int) -> None:
    around = [fan_out - 1, fan_out, fan_out + 1, fan_out + 2, 2 * fan_out]
    degrees = np.array([0, 1, *around, 100, 2**16, 2**16 + 1, 10**6, 3 * 2**29 + 5, 2**31 - 1], np.int32)
    degrees = degrees if fan_out == 1024 else np.tile(degrees, 40)
    vertices = np.random.default_rng(fan_out).integers(0, 2**31, len(degrees)).astype(np.int32)
    seed, step, hop, relation = 2**32 - 5, 4_000_000_001, 2, 0xDEADBEEF
    keys = stream_keys(seed, step, hop, relation)
    offsets, counts = neighbor_offsets(vertex_keys(keys, vertices), degrees, fan_out)

    def on_device(seed, step, vertices, degrees):
        own = vertex_keys(stream_keys(seed, step, hop, relation), vertices)
        return neighbor_offsets(own, degrees, fan_out)

    device = jax.jit(on_device)(np.uint32(seed), np.uint32(step), vertices, degrees)
    np.testing.assert_array_equal(device[0], offsets)
    np.testing.assert_array_equal(device[1], counts)
    native = native_offsets(seed, step, hop, relation, vertices, degrees, fan_out)
    np.testing.assert_array_equal(native, offsets)


@given(seed=WORDS, step=WORDS, vertex=st.integers(0, 2**31 - 1), degree=st.integers(0, 200), fan_out=st.integers(1, 40))
def test_offsets_are_distinct_and_in_range(seed: int, step: int, vertex: int, degree: int, fan_out: int) -> None:
    keys = vertex_keys(stream_keys(seed, step, 0, 1), np.array([vertex], np.int32))
    offsets, counts = neighbor_offsets(keys, np.array([degree]), fan_out)
    assert counts[0] == min(degree, fan_out)
    kept = offsets[0, : counts[0]]
    assert len(set(kept.tolist())) == counts[0]
    assert ((kept >= 0) & (kept < degree)).all()
    assert (offsets[0, counts[0] :] == 0).all()
    if degree <= fan_out:
        np.testing.assert_array_equal(kept, np.arange(degree))


@pytest.mark.slow
def test_each_neighbour_is_included_equally_often() -> None:
    num_seeds, degree, fan_out = 20_000, 37, 10
    included = np.bincount(offsets_of(np.arange(num_seeds), degree, fan_out).ravel(), minlength=degree)
    share = fan_out / degree
    # Counts of a draw without replacement: variance p (1 - p) each, tied by their sum.
    statistic = ((included - num_seeds * share) ** 2).sum() / (num_seeds * share * (1 - share)) * (degree - 1) / degree
    assert stats.chi2.sf(statistic, degree - 1) > SIGNIFICANT


@pytest.mark.slow
def test_every_subset_is_equally_likely() -> None:
    draws = np.sort(offsets_of(np.arange(20_000), 7, 4), axis=1)
    subsets = {subset: i for i, subset in enumerate(itertools.combinations(range(7), 4))}
    counts = np.bincount([subsets[tuple(row)] for row in draws.tolist()], minlength=len(subsets))
    assert stats.chisquare(counts).pvalue > SIGNIFICANT


def test_vertices_steps_hops_and_relations_draw_apart() -> None:
    vertices = np.arange(5000, dtype=np.int32)
    base = {"seed": 5, "step": 6, "hop": 1, "relation": 9}
    degrees = np.full(5000, 30)

    def drawn(**changed: int) -> np.ndarray:
        return neighbor_offsets(vertex_keys(stream_keys(**(base | changed)), vertices), degrees, 1)[0][:, 0]

    first = drawn()
    table = np.zeros((30, 30))
    np.add.at(table, (first[1:], first[:-1]), 1)  # neighbouring vertices
    assert stats.chi2_contingency(table).pvalue > SIGNIFICANT
    for changed in ({"seed": 6}, {"step": 7}, {"hop": 0}, {"hop": 2}, {"relation": 10}):
        table = np.zeros((30, 30))
        np.add.at(table, (first, drawn(**changed)), 1)
        assert stats.chi2_contingency(table).pvalue > SIGNIFICANT, changed


@given(words=st.tuples(WORDS, WORDS, WORDS), bound=st.integers(0, 2**31))
def test_uniform_below_is_the_high_word_of_a_64_bit_product(words: tuple[int, int, int], bound: int) -> None:
    first, second, counter = (np.array([word], np.uint32) for word in words)
    spread = counter * np.uint32(0x9E3779B9)
    bits = int(mix(first + spread)[0]) << 32 | int(mix(second + spread)[0])
    expected = bits * bound >> 64
    bounds = np.array([bound], np.uint32)
    assert uniform_below((first, second), counter, bounds)[0] == expected
    on_device = uniform_below((jnp.asarray(first), jnp.asarray(second)), jnp.asarray(counter), jnp.asarray(bounds))
    assert int(on_device[0]) == expected


def test_relation_keys_do_not_depend_on_the_schema() -> None:
    forward, back = Relation("author", "writes", "paper"), Relation("paper", "rev_writes", "author")
    assert relation_key(forward) == 687361740
    assert len({relation_key(forward), relation_key(back), relation_key(Metapath("PAP", (back, forward)))}) == 3
