"""How long tables of many edges take to read, and how much memory: `python -m bench.tables`.

Customers and products with integer or string keys, and their purchases in random order, as CSV and as Parquet, are
written to a temporary folder and read with `jhgnn.data.tables` in a process of their own. Beside its peak resident
memory stand what it has before it reads, and the size of the graph's own arrays. 100 M edges need 3 GB of disk.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
CUSTOMERS, PRODUCTS = 5_000_000, 1_000_000
BATCH = 1 << 20
KINDS = ("integer", "string")
FORMATS = ("csv", "parquet")


def keys_of(kind: str, numbers: np.ndarray, letter: str) -> object:
    """Keys as an Arrow array: the numbers, or text such as `c-1234567`."""
    import pyarrow
    import pyarrow.compute

    values = pyarrow.array(numbers)
    if kind == "integer":
        return values
    text = values.cast(pyarrow.string())
    return pyarrow.compute.binary_join_element_wise(pyarrow.scalar(letter), text, pyarrow.scalar("-"))


def batches(kind: str, num_edges: int) -> Iterator[object]:
    """The purchases, a batch of Arrow rows at a time."""
    import pyarrow

    rng = np.random.default_rng(0)
    for start in range(0, num_edges, BATCH):
        count = min(BATCH, num_edges - start)
        columns = {
            "customer": keys_of(kind, rng.integers(0, CUSTOMERS, count), "c"),
            "product": keys_of(kind, rng.integers(0, PRODUCTS, count), "p"),
        }
        yield pyarrow.record_batch(columns)


def write(folder: Path, kind: str, file_format: str, num_edges: int) -> None:
    """The tables and their schema."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    def file(name: str, rows: Iterator[object]) -> str:
        first = next(rows)
        path = folder / f"{name}.{file_format}"
        opened = pyarrow.csv.CSVWriter if file_format == "csv" else pyarrow.parquet.ParquetWriter
        with opened(path, first.schema) as writer:  # type: ignore[attr-defined]
            writer.write_batch(first)
            for batch in rows:
                writer.write_batch(batch)
        return path.name

    def nodes(count: int, letter: str) -> Iterator[object]:
        yield pyarrow.record_batch({"id": keys_of(kind, np.random.default_rng(1).permutation(count), letter)})

    schema = f"""
[nodes.customer]
files = "{file("customers", nodes(CUSTOMERS, "c"))}"
key = "id"

[nodes.product]
files = "{file("products", nodes(PRODUCTS, "p"))}"
key = "id"

[edges."customer:buys:product"]
files = "{file("purchases", batches(kind, num_edges))}"
source = "customer"
target = "product"
"""
    (folder / "tables.toml").write_text(schema)


def measure(path: str) -> None:
    """In a process of its own: reads and prints seconds and bytes as JSON."""
    from jhgnn.data import load

    imported = peak_bytes()
    start = time.perf_counter()
    graph = load("tables", path, progress=False) if path else None
    seconds = time.perf_counter() - start
    arrays = [] if graph is None else [part for own in graph.edges.values() for part in (own.indptr, own.senders)]
    if graph is not None:
        arrays += list(graph.keys.values())
    print(json.dumps({
        "seconds": seconds,
        "peak_bytes": peak_bytes(),
        "imported_bytes": imported,
        "graph_bytes": sum(array.nbytes for array in arrays),
    }))  # fmt: skip


def peak_bytes() -> int:
    """Peak resident memory of this process, and not of the one that it was forked from, which getrusage gives."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def in_a_process(path: Path | str) -> dict[str, float]:
    """`measure` in a fresh Python."""
    command = [sys.executable, "-m", "bench.tables", "--measure", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--measure", metavar="PATH", help="read this once, and print the figures")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "tables.json")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    rows = []
    for num_edges in arguments.edges:
        for kind in arguments.kinds:
            for file_format in arguments.formats:
                with tempfile.TemporaryDirectory() as temporary:
                    folder = Path(temporary)
                    write(folder, kind, file_format, num_edges)
                    size = sum(path.stat().st_size for path in folder.iterdir())
                    figures = in_a_process(folder)
                row = {"edges": num_edges, "keys": kind, "format": file_format, "file_bytes": size, **figures}
                rows.append(row)
                print(
                    f"{num_edges:>11,} edges, {kind:7} keys, {file_format:7} {size / 1e9:5.2f} GB:"
                    f" {figures['seconds']:6.1f} s, {num_edges / figures['seconds'] / 1e6:5.2f} M edges/s,"
                    f" peak {figures['peak_bytes'] / 1e9:5.2f} GB, imports {figures['imported_bytes'] / 1e9:.2f} GB,"
                    f" the graph {figures['graph_bytes'] / 1e9:.2f} GB",
                    flush=True,
                )
    result = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 2),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "numpy": np.__version__,
        "rows": rows,
    }
    temporary_file = arguments.out.with_name(arguments.out.name + ".tmp")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    temporary_file.write_text(json.dumps(result, indent=2) + "\n")
    os.replace(temporary_file, arguments.out)


if __name__ == "__main__":
    main()
