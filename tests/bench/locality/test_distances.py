"""Reuse distances against their definition, and hit rates against a cache that is played through."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.locality.distances import COLD, stack_distances
from bench.locality.sampling import chosen, exact, sampled
from bench.locality.simulator import hits

TRACES = st.lists(st.integers(0, 12), max_size=60)


def by_definition(items: list[int], *, repeated: bool) -> list[int]:
    trace = items * 2 if repeated else items
    found = []
    for place in range(len(trace) - len(items), len(trace)):
        before = [earlier for earlier in range(place) if trace[earlier] == trace[place]]
        found.append(len(set(trace[before[-1] + 1 : place])) if before else COLD)
    return found


@given(TRACES, st.booleans())
def test_distances_are_the_distinct_items_between(items: list[int], repeated: bool) -> None:
    assert stack_distances(np.array(items, int), repeated=repeated).tolist() == by_definition(items, repeated=repeated)


@given(TRACES, st.integers(1, 15), st.booleans())
def test_hit_rates_are_those_of_a_cache_that_drops_the_oldest(items: list[int], lines: int, repeated: bool) -> None:
    found = hits(items, lines, rounds=2 if repeated else 1)
    reuses = exact(np.array(items, int), repeated=repeated)
    assert (((reuses.distances >= 0) & (reuses.distances < lines)).tolist()) == found
    assert reuses.hit_rate(lines) == (np.mean(found) if items else 0.0) or np.isclose(
        reuses.hit_rate(lines), np.mean(found), rtol=0, atol=1e-12
    )


@given(TRACES, st.lists(st.integers(1, 4), min_size=13, max_size=13), st.integers(1, 40), st.booleans())
def test_items_of_several_lines_are_exact_line_by_line(
    items: list[int], lines_of: list[int], lines: int, repeated: bool
) -> None:
    first = np.concatenate(([0], np.cumsum(lines_of)))
    expanded = [int(line) for item in items for line in range(first[item], first[item + 1])]
    found = hits(expanded, lines, rounds=2 if repeated else 1)
    sizes = np.array([lines_of[item] for item in items], int)
    reuses = exact(np.array(items, int), sizes, repeated=repeated)
    held = (reuses.distances >= 0) & (reuses.distances + sizes <= lines)
    assert np.repeat(held, sizes).tolist() == found


@given(TRACES, st.integers(1, 4), st.integers(1, 4))
def test_one_set_is_the_fully_associative_cache(items: list[int], ways: int, sets: int) -> None:
    assert hits(items, ways, ways=ways) == hits(items, ways)
    of_each_set = [hits([item for item in items if item % sets == own], ways) for own in range(sets)]
    found = hits(items, ways * sets, ways=ways)
    assert sum(found) == sum(map(sum, of_each_set))


def test_a_cache_without_lines_never_hits() -> None:
    assert hits([1, 1, 1], 0) == [False, False, False]


def test_a_sample_of_everything_is_exact_and_a_tenth_comes_close() -> None:
    rng = np.random.default_rng(0)
    items = np.minimum(rng.zipf(1.3, 60_000), 20_000)
    whole = exact(items)
    assert np.array_equal(sampled(items, 1.0).distances, whole.distances)
    caches = np.geomspace(100, 10_000, 12)
    part = sampled(items, 0.1)
    assert len(part.distances) < 0.9 * len(items)
    errors = [abs(part.hit_rate(cache) - whole.hit_rate(cache)) for cache in caches]
    assert np.mean(errors) < 0.05


def test_a_sample_takes_all_accesses_of_an_item_or_none() -> None:
    items = np.arange(10_000).repeat(3)
    kept = chosen(items, 0.25, seed=3).reshape(-1, 3)
    assert (kept.all(axis=1) | ~kept.any(axis=1)).all()
    assert 0.2 < kept.mean() < 0.3
    assert not np.array_equal(kept[:, 0], chosen(np.arange(10_000), 0.25, seed=4))
