"""A tiny shop in tables: customers and products with every kind of column, and what joins them; and its schema."""

import copy
import csv
import datetime
from pathlib import Path
from typing import Any

Columns = dict[str, list[Any]]

CUSTOMERS: Columns = {
    "id": ["c1", "c2", "c3", "c4", "ü 5"],
    "age": [30, None, 41, 22, 55],
    "vip": [True, False, False, None, True],
    "country": ["FR", "DE", None, "FR", "DE"],
    "about": ['likes "red" shoes, hats', "Blue SHOES\nred", None, "hats", "gloves"],
    "x_1": [0.5, 1.5, 2.5, 3.5, None],
    "x_2": [1.0, 0.0, -1.0, 0.0, 2.0],
    "joined": [datetime.date(2020, 1, 2), datetime.date(2020, 2, 3), datetime.date(2021, 5, 1),
               datetime.date(2021, 6, 1), datetime.date(2022, 6, 1)],
    "segment": ["b", "a", "b", None, "a"],
    "part": ["train", "dev", "TEST", None, None],
}  # fmt: skip
PRODUCTS: Columns = {
    "sku": [12, 10, 11],
    "embedding": [[0.5, 0.25], None, [1.0, -2.0]],
    "labels": [["x", "y"], [], ["y"]],
}
ORDERS: Columns = {
    "customer": ["c1", "c2", "ü 5", "c1", "c1"],
    "product": [10, 11, 10, 12, 10],
    "amount": [2.5, 1.0, 1.0, 3.0, 4.0],
    "date": [datetime.datetime(2020, 5, 1), datetime.datetime(2020, 5, 2, 10), datetime.datetime(2021, 5, 2),
             datetime.datetime(2021, 5, 3), datetime.datetime(2019, 1, 1, 0, 0, 0, 5)],
}  # fmt: skip
TAGGED: Columns = {"product": [10, 12, 12], "tag": ["new", "old", "big"]}
TABLES: dict[str, Columns] = {
    "customer": CUSTOMERS,
    "product": PRODUCTS,
    "customer:buys:product": ORDERS,
    "product:has:tag": TAGGED,
}
FILES = {"customer": "customers", "product": "products", "customer:buys:product": "orders", "product:has:tag": "tagged"}
SCHEMA: dict[str, Any] = {
    "name": "shop",
    "nodes": {
        "customer": {
            "key": "id",
            "time": "joined",
            "features": {
                "age": {"kind": "number", "missing": "flag"},
                "vip": {"kind": "number", "scale": "none"},
                "country": "category",
                "about": {"kind": "text", "width": 8},
                "x": {"kind": "vector", "columns": ["x_*"]},
            },
        },
        "product": {
            "key": "sku",
            "features": {"embedding": {"kind": "vector", "missing": "flag"}, "labels": "categories"},
        },
        "tag": {},
    },
    "edges": {
        "customer:buys:product": {"source": "customer", "target": "product", "weight": "amount", "time": "date"},
        "product:has:tag": {"source": "product", "target": "tag"},
    },
    "labels": {"type": "customer", "column": "segment"},
    "splits": {"column": "part"},
}


def schema(**changes: Any) -> dict[str, Any]:
    """The schema, with values in place of its own: `nodes__customer__key="name"`; None takes a key out."""
    changed = copy.deepcopy(SCHEMA)
    for path, value in changes.items():
        *above, key = path.replace("buys", "customer:buys:product").replace("tagged", "product:has:tag").split("__")
        part = changed
        for name in above:
            part = part[name]
        if value is None:
            del part[key]
        else:
            part[key] = value
    return changed


def with_files(schema: dict[str, Any], ending: str) -> dict[str, Any]:
    changed = copy.deepcopy(schema)
    for part, name in FILES.items():
        changed["edges" if ":" in part else "nodes"][part]["files"] = name + ending
    return changed


def as_csv(columns: Columns, path: Path, **dialect: Any) -> None:
    def cell(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, list):
            return "|".join(map(str, value)) if all(isinstance(item, str) for item in value) else str(value)
        return value.isoformat() if isinstance(value, datetime.date) else str(value)

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n", **dialect)
        writer.writerow(columns)
        writer.writerows([cell(value) for value in row] for row in zip(*columns.values(), strict=True))


def toml(schema: dict[str, Any]) -> str:
    """A schema as the text of its file."""

    def value(of: Any) -> str:
        if isinstance(of, bool):
            return str(of).lower()
        if isinstance(of, str):
            return '"' + of.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"'
        if isinstance(of, list):
            return "[" + ", ".join(map(value, of)) + "]"
        if isinstance(of, dict):
            return "{ " + ", ".join(f'"{key}" = {value(each)}' for key, each in of.items()) + " }"
        return str(of)

    lines = [f"{key} = {value(part)}" for key, part in schema.items() if not isinstance(part, dict)]
    for key, part in schema.items():
        if isinstance(part, dict):
            for name, own in part.items() if key in ("nodes", "edges") else [(None, part)]:
                lines.append(f'[{key}."{name}"]' if name else f"[{key}]")
                lines += [f'"{each}" = {value(of)}' for each, of in own.items()]
    return "\n".join(lines) + "\n"


def write(folder: Path, ending: str, schema: dict[str, Any] = SCHEMA, tables: dict[str, Columns] = TABLES) -> Path:
    """The shop in a folder of CSV or Parquet."""
    folder.mkdir(exist_ok=True)
    for part, name in FILES.items():
        path = folder / (name + ending)
        if ending == ".parquet":
            import pyarrow
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table(tables[part]), path)
        else:
            as_csv(tables[part], path, delimiter="\t" if ending == ".tsv" else ",")
    (folder / "tables.toml").write_text(toml(with_files(schema, ending)), encoding="utf-8")
    return folder
