from pathlib import Path

import numpy as np

from bench.comparison.molecules import NUM_MOLECULES, molecules
from bench.rdf_settings import write_rdf
from jhgnn.data.rdf import read_rdf


def test_written_molecules_are_read_as_the_same_graph(tmp_path: Path) -> None:
    made = molecules(0, 0.3)
    write_rdf(made, tmp_path)
    read = read_rdf(tmp_path, progress=False)
    edges = {  # a set of triples has each of them once
        relation.name: len(np.unique(np.stack([edges.senders, edges.receivers]), axis=1).T)
        for relation, edges in made.edges.items()
    }
    assert {relation.name: edges.num_edges for relation, edges in read.edges.items()} == edges
    assert read.labels is not None
    assert made.labels is not None
    labelled = np.concatenate(list(read.splits.values()))
    assert len(labelled) == len(set(labelled.tolist())) == NUM_MOLECULES
    assert len(read.splits["test"]) == len(made.splits["test"])
    assert read.labels[labelled].sum() == made.labels[:NUM_MOLECULES].sum()


def test_less_signal_leaves_the_rest_of_the_graph_as_it_is() -> None:
    whole, none = molecules(0), molecules(0, 0.0)
    assert whole.labels is not None
    np.testing.assert_array_equal(whole.labels, none.labels)
    differ = [
        relation.name
        for relation, edges in whole.edges.items()
        if not np.array_equal(edges.senders, none.edges[relation].senders)
        or not np.array_equal(edges.receivers, none.edges[relation].receivers)
    ]
    assert sorted({name.removeprefix("rev_") for name in differ}) == sorted(
        ["hasStructure", *(f"test{number}" for number in range(17))]
    )
