"""How fast the readers are, and how much faster than parsing number by number as other HGB loaders do.

`python -m bench.readers`: median of interleaved rounds over the real data sets, and over a generated ogbn-mag edge list
and feature table in text. HGB DBLP is 132 MB of text in a 2.6 MB zip. The plain loader is the loop over lines and
`float` of each field that PyG and HGB's own code run; it reads HGB DBLP once a round as well.
"""

import argparse
import gzip
import io
import os
import platform
import statistics
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.record import DATA_ROOT, RESULTS, commit, store
from jhgnn import data
from jhgnn.data.number_table import read_table

SETS = {
    "hgb_dblp": "hgb",
    "hgb_acm": "hgb",
    "magnn_dblp": "magnn",
    "magnn_imdb": "magnn",
    "acm_han3025": "acm_mat",
    "acm_gtn": "arrays",
    "rdf_aifb": "rdf",
}
GENERATED_EDGES, GENERATED_ROWS, GENERATED_WIDTH = 2_000_000, 20_000, 128


def plain_hgb_nodes(path: Path) -> int:
    """Parses node.dat as PyG's `HGBDataset` does; returns the number of attributes read."""
    num_values = 0
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("node.dat") and not n.startswith("__MACOSX"))
        with archive.open(name) as file:
            for line in io.TextIOWrapper(file, encoding="utf-8"):
                fields = line.rstrip("\r\n").split("\t")
                if len(fields) == 4:
                    num_values += len([float(value) for value in fields[3].split(",")])
    return num_values


def generated_tables() -> dict[str, Callable[[], object]]:
    """ogbn-mag's two kinds of table, gzipped text: an edge list and 128-d features."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 1_134_649, (GENERATED_EDGES, 2))
    features = rng.standard_normal((GENERATED_ROWS, GENERATED_WIDTH)).round(6)

    def packed(table: np.ndarray) -> bytes:
        return gzip.compress("\n".join(",".join(map(str, row)) for row in table.tolist()).encode(), 1)

    edge_text, feature_text = packed(edges), packed(features)

    def read(data: bytes, dtype: type) -> np.ndarray:
        with gzip.open(io.BytesIO(data)) as stream:
            return read_table(stream, "generated", separator=b",", dtype=dtype)  # type: ignore[arg-type]

    assert np.array_equal(read(edge_text, np.int64), edges)
    return {
        f"mag edges, {GENERATED_EDGES:,} rows": lambda: read(edge_text, np.int64),
        f"mag features, {GENERATED_ROWS:,} x {GENERATED_WIDTH}": lambda: read(feature_text, np.float32),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    parser.add_argument("--out", type=Path, default=RESULTS / "readers.json")
    arguments = parser.parse_args()

    def reader(name: str) -> Callable[[], object]:
        return lambda: data.load(SETS[name], arguments.data_root / name, progress=False)

    cases: dict[str, Callable[[], object]] = {name: reader(name) for name in SETS}
    dblp = next((arguments.data_root / "hgb_dblp").glob("*.zip"))
    cases["hgb_dblp, plain node.dat"] = lambda: plain_hgb_nodes(dblp)
    cases |= generated_tables()
    load = round(os.getloadavg()[0], 2)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(arguments.rounds):
        for name, run in cases.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    rows = [
        {"case": name, "median_s": round(statistics.median(s), 4), "min_s": round(min(s), 4), "max_s": round(max(s), 4)}
        for name, s in seconds.items()
    ]
    ratio = statistics.median(
        plain / ours for plain, ours in zip(seconds["hgb_dblp, plain node.dat"], seconds["hgb_dblp"], strict=True)
    )
    for row in rows:
        print(f"{row['case']:36} {row['median_s']:8.3f} s  ({row['min_s']:.3f} to {row['max_s']:.3f})")
    print(f"plain node.dat parse over the whole of ours, HGB DBLP: {ratio:.1f}x")
    result = {
        "rounds": arguments.rounds,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average_at_start": load,
        "commit": commit(),
        "numpy": np.__version__,
        "plain_over_ours_hgb_dblp": round(ratio, 2),
        "rows": rows,
    }
    store(arguments.out, result)


if __name__ == "__main__":
    main()
