"""DGL's own partition book, in the peers' environment, reads the id ranges of our manifests."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.part import load_part
from jhgnn.distributed.writing import write_partition
from tests.distributed.graphs import communities

REPO = Path(__file__).parents[2]
PEERS = Path(os.environ.get("JHGNN_PEERS_PYTHON", REPO / ".venv-peers" / "bin" / "python"))
ASK = """
import json, sys
import torch
from dgl.distributed.partition import load_partition_book
book, name, node_types, edge_types = load_partition_book(sys.argv[1], 1)
owners = {kind: book.nid2partid(torch.arange(book._num_nodes(kind)), kind).tolist() for kind in node_types}
print(json.dumps([name, owners, {":".join(kind): book._num_edges(kind) for kind in edge_types}]))
"""


def test_who_owns_what_is_the_same(tmp_path):
    if (
        not PEERS.exists()
        or subprocess.run([PEERS, "-W", "ignore", "-c", "import dgl"], capture_output=True).returncode
    ):
        pytest.skip(f"no Python with DGL at {PEERS}; set JHGNN_PEERS_PYTHON")
    graph = communities()
    folder = write_partition(graph, random_assignment(graph, 3), tmp_path / "parts")
    environment = {**os.environ, "DGLBACKEND": "pytorch"}
    command = [PEERS, "-W", "ignore", "-c", ASK, folder / "partition.json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    name, owners, num_edges = json.loads(done.stdout.splitlines()[-1])
    part = load_part(folder, 1)
    assert name == "communities"
    for node_type, count in graph.num_nodes.items():
        assert owners[node_type] == part.owners(node_type, np.arange(count)).tolist()
    assert num_edges == {str(relation): edges.num_edges for relation, edges in graph.edges.items()}
