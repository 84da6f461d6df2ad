"""Which shard of `rel` owns the learnable rows of each node type, and which of its devices each row."""

from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.distributed.placement import Placement

METHOD = "most reads"


def owners_by_reads(reads: Sequence[Mapping[str, int]], node_types: Sequence[str]) -> dict[str, int]:
    """The shard that reads most rows of each type; the first of those that read as many, -1 for a type nobody reads.

    Every other reader fetches what it reads and sends the gradients back, so no other owner makes all shards send less.

    Args:
        reads: of each shard, rows of each type that it read in some batches.
        node_types: with learnable rows.
    """
    found = {}
    for node_type in node_types:
        counts = [own.get(node_type, 0) for own in reads]
        found[node_type] = int(np.argmax(counts)) if max(counts) else -1
    return found


def place_rows(num_nodes: Mapping[str, int], owners: Mapping[str, int], places: int, shards: int) -> Placement:
    """A device for each row: those of a type are dealt out by id over the owner's places on the axis `data`, those of a
    type that nobody reads over all devices.

    Args:
        num_nodes: of each type with learnable rows.
        owners: as of `owners_by_reads`.
        places, shards: of the mesh, whose devices are numbered `place * shards + shard`.

    Raises:
        InputError: more rows than an int32 numbers.
    """
    found = {}
    for node_type, count in num_nodes.items():
        ids, owner = np.arange(count, dtype=np.int32), owners[node_type]
        found[node_type] = ids % (places * shards) if owner < 0 else ids % places * shards + owner
    return Placement.joint(found, places * shards, METHOD)
