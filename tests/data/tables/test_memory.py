"""Reading edges takes memory by the edge alone: what the text of the files takes is given back."""

import pytest

from bench import tables

EDGES = 3_000_000, 11_000_000  # several blocks each
BYTES_AN_EDGE = 20
"""Eight packed and four sorted, and what the array grows ahead by; measured: 10 to 12."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "file_format",
    [pytest.param(name, marks=[] if name == "csv" else [pytest.mark.long]) for name in tables.FORMATS],
)
def test_peak_memory_grows_by_few_bytes_an_edge(tmp_path, monkeypatch, file_format):
    """Of 23 bytes an edge in CSV; Python's own lists of its keys would take over 100."""
    monkeypatch.setattr(tables, "CUSTOMERS", 100_000)
    monkeypatch.setattr(tables, "PRODUCTS", 20_000)
    peaks = []
    for num_edges in EDGES:
        folder = tmp_path / str(num_edges)
        folder.mkdir()
        tables.write(folder, "string", file_format, num_edges)
        peaks.append(tables.in_a_process(folder)["peak_bytes"])
    assert peaks[1] - peaks[0] < BYTES_AN_EDGE * (EDGES[1] - EDGES[0])
