"""A graph like MUTAG's RDF: molecules of atoms and bonds, 23 relations and their inverses, one node type, no features.

The real one (Schlichtkrull et al., ESWC 2018, Table 1) has 23,644 entities, 74,227 edges and 340 labelled molecules.
Here a molecule's class depends on the groups of atoms and the tests that it has.
"""

import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph

NUM_NODES, NUM_MOLECULES = 23_644, 340
NUM_ATOMS, NUM_BONDS = 9_189, 9_317
ELEMENTS, CHARGES, GROUPS, KINDS = 60, 500, 40, 3
TESTS = 17
"""Relations that hold for some molecules each: tests, and numbers of rings."""


def molecules(seed: int = 0, signal: float = 1.0) -> HeteroGraph:
    """The graph, bit for bit by its seed; the relations' inverses included.

    Args:
        signal: how often groups and tests tell a molecule's class; with 0 they are drawn whatever it is.
    """
    rng = np.random.default_rng(seed)
    sizes = {
        "molecule": NUM_MOLECULES,
        "atom": NUM_ATOMS,
        "bond": NUM_BONDS,
        "element": ELEMENTS,
        "charge": CHARGES,
        "group": GROUPS,
        "kind": KINDS,
        "result": 2 * TESTS,
    }
    first = dict(zip(sizes, np.cumsum([0, *sizes.values()])[:-1], strict=True))
    labels = (rng.random(NUM_MOLECULES) < 0.4).astype(np.int64)
    of_atom = np.sort(rng.integers(0, NUM_MOLECULES, NUM_ATOMS))
    begin = rng.integers(0, NUM_ATOMS, NUM_BONDS)
    end = np.clip(begin + rng.integers(-3, 4, NUM_BONDS), 0, NUM_ATOMS - 1)
    skewed = 1.0 / np.arange(1, ELEMENTS + 1)
    pairs = {
        "hasAtom": (first["molecule"] + of_atom, first["atom"] + np.arange(NUM_ATOMS)),
        "hasBond": (first["molecule"] + of_atom[begin], first["bond"] + np.arange(NUM_BONDS)),
        "inBond": (
            np.tile(first["bond"] + np.arange(NUM_BONDS), 2),
            first["atom"] + np.concatenate([begin, end]),
        ),
        "element": (
            first["atom"] + np.arange(NUM_ATOMS),
            first["element"] + rng.choice(ELEMENTS, NUM_ATOMS, p=skewed / skewed.sum()),
        ),
        "charge": (first["atom"] + np.arange(NUM_ATOMS), first["charge"] + rng.integers(0, CHARGES, NUM_ATOMS)),
    }
    members = np.repeat(np.arange(NUM_MOLECULES), 5)
    liked = rng.integers(0, GROUPS // 2, len(members)) + np.where(
        rng.random(len(members)) < 0.65 * signal, labels[members], 0
    ) * (GROUPS // 2)
    pairs["hasStructure"] = first["molecule"] + members, first["group"] + liked
    for test in range(TESTS):
        tested = np.flatnonzero(rng.random(NUM_MOLECULES) < 0.8)
        positive = np.where(rng.random(len(tested)) < 0.55 * signal, labels[tested], rng.integers(0, 2, len(tested)))
        pairs[f"test{test}"] = first["molecule"] + tested, first["result"] + 2 * test + positive
    every = {("entity", name, "entity"): both for name, both in pairs.items()}
    every |= {("entity", f"rev_{name}", "entity"): both[::-1] for name, both in pairs.items()}
    known = np.zeros(NUM_NODES, np.int64)
    known[:NUM_MOLECULES] = labels
    order = rng.permutation(NUM_MOLECULES)
    return HeteroGraph.from_arrays(
        name="molecules like MUTAG's",
        num_nodes={"entity": NUM_NODES},
        edges=every,
        features={},
        target="entity",
        labels=known,
        num_classes=2,
        splits={"train": order[:218], "val": order[218:272], "test": order[272:]},
    )
