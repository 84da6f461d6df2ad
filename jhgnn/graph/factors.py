"""The relations of one heterograph as matrices, each held once, with transposes of one another recognised."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.metapath_product import pattern, transpose
from jhgnn.graph.schema import Metapath, Relation

Chain: TypeAlias = tuple[tuple[int, bool], ...]
"""Factors of a product, receivers first: (matrix number, transposed)."""


class Factors:
    """Matrices of relations, receivers as rows.

    Args:
        counts: keep parallel edges as multiplicities (int64) instead of merging them (bool).
    """

    def __init__(self, graph: HeteroGraph, *, counts: bool = False) -> None:
        self._graph = graph
        self._counts = counts
        self._keys: dict[Relation, tuple[int, bool]] = {}
        self._matrices: list[sparse.csr_array] = []
        self._transposes: dict[int, sparse.csr_array] = {}
        self._symmetric: set[int] = set()

    def chain(self, relations: Sequence[Relation]) -> Chain:
        """The product of these relations, senders' end first as in a metapath, by matrix numbers.

        Raises:
            InputError: the graph lacks one of the relations.
        """
        return tuple(self._key(relation) for relation in reversed(relations))

    def matrix(self, key: tuple[int, bool]) -> sparse.csr_array:
        number, transposed = key
        return self._transposed(number) if transposed else self._matrices[number]

    def _key(self, relation: Relation) -> tuple[int, bool]:
        if relation not in self._keys:
            self._keys[relation] = self._add(relation)
        return self._keys[relation]

    def _add(self, relation: Relation) -> tuple[int, bool]:
        if relation not in self._graph.edges:
            listed = ", ".join(str(one) for one in self._graph.edges)
            raise InputError(f"graph {self._graph.name!r} has no relation {str(relation)!r}; known: {listed}")
        num_sources = self._graph.num_nodes[relation.source]
        if self._graph.edges[relation].num_edges >= 2**31:
            raise InputError(f"relation {str(relation)!r} has 2**31 edges or more; kernels index with int32")
        matrix = merged_matrix(self._graph.edges[relation], num_sources, counts=self._counts)
        # Contents decide, not names: a reader may call the reverse of `author:writes:paper` whatever it likes.
        for known, (number, transposed) in self._keys.items():
            back = (known.source, known.target) == (relation.target, relation.source)
            same_size = back and not transposed and self._matrices[number].nnz == matrix.nnz
            if same_size and _is_transpose(matrix, self._matrices[number]):
                self._transposes[number] = matrix
                return number, True
        self._matrices.append(matrix)
        number = len(self._matrices) - 1
        if relation.source == relation.target and _is_transpose(matrix, matrix):
            self._symmetric.add(number)
        return number, False

    def mirrored(self, chain: Chain) -> Chain:
        """The chain of the transposed product."""
        return tuple((number, not flipped and number not in self._symmetric) for number, flipped in reversed(chain))

    def _transposed(self, number: int) -> sparse.csr_array:
        if number not in self._transposes:
            self._transposes[number] = transpose(self._matrices[number])
        return self._transposes[number]


def relation_counts(graph: HeteroGraph, metapath: Metapath) -> tuple[int, int]:
    """(number of senders, number of receivers) of a metapath's graph.

    Raises:
        InputError: the graph lacks one of its node types.
    """
    for node_type in (metapath.source, metapath.target):
        if node_type not in graph.num_nodes:
            raise InputError(f"metapath {metapath.name!r} ends at the unknown node type {node_type!r}")
    return graph.num_nodes[metapath.source], graph.num_nodes[metapath.target]


def _is_transpose(matrix: sparse.csr_array, other: sparse.csr_array) -> bool:
    """Whether two matrices with sorted rows are each other's transposes."""
    if matrix.shape != other.shape[::-1]:
        return False
    columns = other.tocsc()
    return (
        np.array_equal(matrix.indptr, columns.indptr)
        and np.array_equal(matrix.indices, columns.indices)
        and (matrix.dtype == bool or np.array_equal(matrix.data, columns.data))
    )


def merged_matrix(edges: EdgeSet, num_sources: int, *, counts: bool) -> sparse.csr_array:
    """Receivers as rows, sorted; parallel edges merged (bool) or counted (int64)."""
    matrix = pattern(edges.indptr, edges.senders, num_sources)
    again = edges.senders[1:] == edges.senders[:-1]
    if again.any():  # equal neighbours in the list: parallel edges unless a row begins between them
        begins = np.zeros(len(edges.senders) + 1, bool)
        begins[edges.indptr] = True
        again &= ~begins[1:-1]
    if counts:
        matrix = matrix.astype(np.int64)
    if again.any():
        matrix = matrix.copy()  # sum_duplicates works in place, and the indices belong to the graph
        matrix.sum_duplicates()
    matrix.has_sorted_indices = True
    return matrix
