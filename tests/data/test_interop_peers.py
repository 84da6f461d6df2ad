"""PyG and DGL run in their own environment, in a process of their own: jhgnn never shares one with torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jhgnn.data.interop import to_dgl, to_pyg
from jhgnn.errors import InputError
from tests.data.interop_graphs import random_graph

REPO = Path(__file__).parents[2]
PEERS = Path(os.environ.get("JHGNN_PEERS_PYTHON", REPO / ".venv-peers" / "bin" / "python"))


def round_trips(peer: str) -> dict:
    if not PEERS.exists():
        pytest.skip(f"no Python with the peers at {PEERS}; set JHGNN_PEERS_PYTHON")
    module = {"pyg": "torch_geometric", "dgl": "dgl"}[peer]
    if subprocess.run([PEERS, "-W", "ignore", "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"{PEERS} cannot import {module}")
    environment = {**os.environ, "PYTHONPATH": str(REPO), "DGLBACKEND": "pytorch"}
    command = [PEERS, "-W", "ignore", "-m", "tests.data.peers_round_trip", peer]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPO, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pyg_round_trips_exactly() -> None:
    seen = round_trips("pyg")
    assert seen["x"] == ["torch.sparse_coo", [302, 1902], "torch.float32"]
    assert seen["dense"] == "torch.strided"
    assert seen["y"] == "torch.int64"
    assert seen["masks"] == [60, 30, 212]
    assert seen["edge_index"] == [[2, 992], "torch.int64"]
    assert seen["unchanged"]
    assert seen["chosen"] == "paper"
    unclear, out_of_range, bare, unknown = seen["errors"]
    assert "paper, author all have 'y'" in unclear
    assert "id 1000000 at row 3 is out of range" in out_of_range
    assert "has no edge_index" in bare
    assert "target 'book' is not a node type" in unknown


def test_dgl_round_trips_exactly() -> None:
    seen = round_trips("dgl")
    assert ["author", "writes", "paper"] in seen["etypes"]
    assert ["paper", "rev_writes", "author"] in seen["etypes"]
    assert seen["feat"] == ["torch.float32", [302, 1902]]
    assert seen["label"] == "torch.int64"
    assert seen["masks"] == [60, 30, 212]
    assert seen["sparse"]
    unclear, not_finite, lonely = seen["errors"]
    assert "author, paper all have 'label'" in unclear
    assert "nan at row 5" in not_finite
    assert "has no relation; DGL cannot hold it" in lonely


@pytest.mark.parametrize(("call", "module"), [(to_pyg, "torch_geometric"), (to_dgl, "dgl")])
def test_missing_peer_says_how_to_install(monkeypatch, call, module) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"needs torch, which cannot be imported .*: (pip )?install"):
        call(random_graph(0, joined=True))


def test_reading_needs_no_import_of_a_peer() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('jax', 'jraph', 'torch', 'torch_geometric', 'dgl')));"
        "import jhgnn.data.interop; from jhgnn.data.synthetic import generate; generate('acm', scale=0.01)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert done.returncode == 0, done.stderr
