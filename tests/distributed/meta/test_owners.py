"""Who owns learnable rows."""

import numpy as np

from jhgnn.distributed.meta.owners import owners_by_reads, place_rows


def test_the_shard_that_reads_most_rows_of_a_type_owns_it():
    reads = [{"author": 5, "field": 2}, {"author": 7, "field": 2}, {"venue": 1}]
    found = owners_by_reads(reads, ("author", "field", "venue", "award"))
    assert found == {"author": 1, "field": 0, "venue": 2, "award": -1}  # the first of those that read as many; nobody


def test_rows_are_dealt_out_over_the_places_of_their_owner_and_those_that_nobody_reads_over_all():
    placement = place_rows({"author": 5, "award": 4}, {"author": 1, "award": -1}, places=2, shards=2)
    np.testing.assert_array_equal(placement.places("author", np.arange(5)), [1, 3, 1, 3, 1])
    np.testing.assert_array_equal(placement.places("award", np.arange(4)), [0, 1, 2, 3])
    assert placement.rows == {"author": 4, "award": 4}  # three authors and an award, in one array
    assert len(set(placement.homes["author"]) | set(placement.homes["award"])) == 9
