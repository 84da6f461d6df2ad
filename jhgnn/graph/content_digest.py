"""What a heterograph holds, as short texts that two processes can compare."""

import hashlib

import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph

BLOCK_BYTES = 1 << 20
MOST_BYTES = 1 << 30
"""Read of an array at most: features may lie in files that are larger than the memory."""


def content(graph: HeteroGraph) -> dict[str, str]:
    """Counts, and a digest of each array, by what it is: `edges of 'writes'`, `features of 'paper'`.

    Of an array over 1 GiB, blocks of 1 MiB are read, a GiB of them in all, evenly apart. Features that are not in
    memory as a matrix, such as those of a folder of parts, count by their shape alone. Names, keys of nodes and what
    columns mean are left out: nothing is computed from them.
    """
    found = {f"number of {name!r} nodes": f"{count:,}" for name, count in graph.num_nodes.items()}
    for relation, edges in graph.edges.items():
        arrays = [edges.indptr, edges.senders, edges.weights, edges.times]
        found[f"edges of {str(relation)!r}"] = _told(*arrays, *([] if edges.features is None else [edges.features]))
    for name, matrix in graph.features.items():
        of_matrix = (matrix,) if isinstance(matrix, np.ndarray) else _parts(matrix)
        found[f"features of {name!r}"] = f"{list(matrix.shape)} {_told(*of_matrix)}".strip()
    found["the target type"] = repr(graph.target)
    found["labels"] = _told(graph.labels)
    found |= {f"the {split} split": f"{len(ids):,} nodes {_told(ids)}" for split, ids in graph.splits.items()}
    if graph.links is not None:
        found["relations of links"] = ", ".join(map(str, graph.links.relations))
        found |= {f"{split} links": f"{len(own):,} {_told(own)}" for split, own in graph.links.triples.items()}
    return found


def _parts(matrix: object) -> tuple[np.ndarray, ...]:
    """Of a sparse matrix its three arrays; of another kind of features none."""
    names = ("indptr", "indices", "data")
    return tuple(getattr(matrix, name) for name in names) if hasattr(matrix, "indptr") else ()


def _told(*arrays: np.ndarray | None) -> str:
    """`digest 0123456789abcdef` of arrays, and which of them there are; empty where there is none to look at."""
    if not arrays:
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        if array is None:
            digest.update(b"none;")
            continue
        digest.update(f"{array.dtype}{array.shape};".encode())
        flat = np.ascontiguousarray(array).reshape(-1)
        step = BLOCK_BYTES // flat.itemsize
        blocks = -(-len(flat) // step)
        read = min(blocks, MOST_BYTES // BLOCK_BYTES)
        for index in range(read):
            start = (index * blocks // read) * step
            digest.update(flat[start : start + step].data)
    return f"digest {digest.hexdigest()}"
