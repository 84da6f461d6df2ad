"""Broken tables and schemas, each with the one line that the command must answer; the table is the specification."""

import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from jhgnn.data import load_graph, save_graph
from jhgnn.data.__main__ import main
from jhgnn.data.tables import from_tables
from jhgnn.errors import InputError
from tests.data.tables import shop

Break = Callable[[Path], object]


def text(name: str, old: str, new: str) -> Break:
    """Changes the first `old` in a file."""

    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        assert old.encode() in data, f"{old!r} is not in {name}"
        (folder / name).write_bytes(data.replace(old.encode(), new.encode(), 1))

    return change


def given(name: str, data: bytes) -> Break:
    return lambda folder: (folder / name).write_bytes(data)


def gone(name: str) -> Break:
    return lambda folder: (folder / name).unlink()


def said(**changes: Any) -> Break:
    """Another schema; see `shop.schema`."""
    changed = shop.with_files(shop.SCHEMA, ".csv")
    merged = shop.schema(**changes)

    def merge(into: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        files = {"files": into["files"]} if "files" in into and "files" not in own else {}
        parts = {
            key: merge(into[key], value) if isinstance(value, dict) and isinstance(into.get(key), dict) else value
            for key, value in own.items()
        }
        return files | parts

    return lambda folder: (folder / "tables.toml").write_text(shop.toml(merge(changed, merged)))


NO_FILES = {"nodes__tag": {"key": "id"}}
BESIDE = {"type": "customer", "files": "labels.csv"}
SPLIT = {"shares": {"train": 0.7, "test": 0.2}}

CASES: list[tuple[str, Break, str]] = [
    ("no schema", gone("tables.toml"), r"holds no known layout|holds no tables\.toml"),
    ("schema is no TOML", given("tables.toml", b"[nodes"), r"tables\.toml is not TOML: Expected ']'"),
    ("schema is not UTF-8", given("tables.toml", b"name = '\xff'"), r"tables\.toml is not UTF-8 text at byte 8"),
    ("no node types", given("tables.toml", b"name = 'x'"), r"no node types; need a table \[nodes\.TYPE\]"),
    ("nodes are no table", given("tables.toml", b"nodes = 3"), r"tables\.toml \[nodes\] is 3; need a table"),
    ("unknown key", said(nodes__customer__keys="id"), r"\[nodes\.customer\]: unknown key 'keys'; did you mean key\?"),
    ("unknown part", said(label={}), r"tables\.toml: unknown key 'label'; did you mean labels\?"),
    ("type that is a number", said(nodes__customer__key=3), r"key = 3 must be a non-empty string"),
    ("relation without a target", said(edges={"buys": {}}), r"the name 'buys' must be 'SOURCE:RELATION:TARGET'"),
    ("relation to nowhere", said(edges={"customer:buys:thing": {}}), r"'thing' is no node type; known: customer, prod"),
    ("relation with a blank", said(edges={"tag:is not:tag": {"source": "a", "target": "b"}}), r"name 'is not' must be"),
    ("no source column", said(edges__buys__source=None), r"source is missing; need the column with keys of 'customer'"),
    ("edges without files", said(edges__buys__files="", edges__buys__time="date"), r"files|does not exist|is a folder"),
    ("nodes without files", said(**NO_FILES), r"\[nodes\.tag\]: key without files; name the files of the nodes"),
    ("unknown kind", said(nodes__customer__features__age="float"), r"feature 'age': kind = 'float' is not one of"),
    ("option of another kind", said(nodes__customer__features__age={"kind": "number", "width": 3}),
     r"feature 'age': unknown key 'width'"),
    ("no way to split", said(splits={}), r"need one of column, shares or time"),
    ("two ways to split", said(splits=SPLIT | {"column": "part"}), r"need one of column, .*; found column and shares"),
    ("shares above one", said(splits={"shares": {"train": 0.7, "test": 0.4}}), r"shares add up to 1\.1; need 1 at mos"),
    ("share of nobody", said(splits={"shares": {"train": 0.7, "dev": 0.2}}), r"shares of 'dev'; need train, val, test"),
    ("splits without labels", said(labels=None), r"\[splits\] without \[labels\]"),
    ("labels of nobody", said(labels__type="client"), r"type = 'client' is no node type; known: customer, product"),
    ("label without column", said(labels__column=None), r"\[labels\]: need either column, .* or columns"),
    ("missing file", gone("orders.csv"), r"orders\.csv does not exist; need a CSV or Parquet file"),
    ("pattern without files", said(edges__buys__files="order-*.csv"), r"no file in .* is like 'order-\*\.csv'"),
    ("unknown ending", said(edges__buys__files="tables.toml"), r"has the ending '\.toml'; need one of \.csv"),
    ("empty file", given("orders.csv", b""), r"orders\.csv is empty; need a first line with the names"),
    ("no such column", said(nodes__customer__features__agee="number"),
     r"customers\.csv has no column 'agee'; it has id, age, .*; did you mean age\?"),
    ("column twice", text("customers.csv", "vip", "age"), r"customers\.csv has 2 columns 'age'"),
    ("row too short", text("orders.csv", "c2,11,", "c2,"), r"orders\.csv line 3 has 3 fields; need 4, as many as"),
    ("open quote", text("orders.csv", "c2,", '"c2,'), r"orders\.csv line 3: a quote is opened that is never closed"),
    ("stray quote", text("orders.csv", "c2,", 'c"2",'), r"orders\.csv line 3: the quotes of 'c\"2\"' are wrong"),
    ("not UTF-8", given("orders.csv", b"customer,product,amount,date\nc1,10,1,2020\nc\xe9,1,1,1\n"),
     r"orders\.csv line 3 is not UTF-8 text"),
    ("unknown source", text("orders.csv", "c2,", "c9,"),
     r"orders\.csv line 3: customer is 'c9', which is no key of node type 'customer' \(.*customers\.csv\); add that"),
    ("unknown target", text("orders.csv", ",11,", ",+11,"), r"orders\.csv line 3: product is '\+11', which is no key"),
    ("no key in an edge", text("orders.csv", "c2,", ","), r"orders\.csv line 3: no key in column 'customer'"),
    ("no key of a node", text("customers.csv", "c3,", ","), r"customers\.csv line 5: no key in column 'id'"),
    ("key twice", text("customers.csv", "c4,", "c1,"),
     r"customers\.csv line 6: id is 'c1', the key of .*customers\.csv line 2 as well; a key stands once"),
    ("word for a number", text("customers.csv", ",41,", ",old,"), r"customers\.csv line 5: age is 'old', which is not"),
    ("NaN for a number", text("customers.csv", ",41,", ",nan,"), r"customers\.csv line 5: age is nan; need a finite"),
    ("infinite number", text("customers.csv", ",41,", ",inf,"), r"customers\.csv line 5: age is inf; need a finite nu"),
    ("number beyond float32", text("customers.csv", ",3.5,", ",1e300,"), r"line 6: x holds 1e\+300, beyond float32"),
    ("no number where there must be one", said(nodes__customer__features__age={"kind": "number", "missing": "error"}),
     r"customers\.csv line 3: no value for 'age'"),
    ("category that is none", said(nodes__customer__features__country={"kind": "category", "categories": ["DE"]}),
     r"customers\.csv line 2: country is 'FR', which is none of the categories DE; add it"),
    ("vector of another width", text("products.csv", "[1.0, -2.0]", "1 2 3"),
     r"products\.csv line 4: embedding has 3 numbers; need 2"),
    ("word in a vector", text("products.csv", "[1.0, -2.0]", "1 two"), r"line 4: embedding holds 'two', which is not"),
    ("no columns like that", said(nodes__customer__features__x={"kind": "vector", "columns": ["y_*"]}),
     r"customers\.csv has no column like 'y_\*', of which feature 'x' is made"),
    ("word for a weight", text("orders.csv", ",1.0,", ",much,"), r"orders\.csv line 3: amount is 'much'"),
    ("no weight", text("orders.csv", ",1.0,", ",,"), r"orders\.csv line 3: no weight in column 'amount'"),
    ("no date", text("orders.csv", ",2020-05-02T10:00:00", ",soon"), r"orders\.csv line 3: date is 'soon'; need a who"),
    ("empty time", text("orders.csv", ",2020-05-02T10:00:00", ","), r"orders\.csv line 3: no time in column 'date'"),
    ("years beside dates", given("orders.csv", b"customer,product,amount,date\nc1,10,1,2020\n"),
     r"orders\.csv line 2: date is a whole number, but .*customers\.csv line 2, joined is a date"),
    ("a year among dates", text("orders.csv", "2020-05-02T10:00:00", "2020"),
     r"orders\.csv line 3: date is the whole number 2020, but '2020-05-01T00:00:00' in .* line 2; times are all"),
    ("blank number", text("customers.csv", ",41,", ", ,"), r"customers\.csv line 5: age is ' ', which is not a number"),
    ("two numbers", text("customers.csv", ",41,", ",4 1,"), r"customers\.csv line 5: age is '4 1', which is not a num"),
    ("moment of another unit", said(splits={"time": {"test": 2021}}), r"\[splits\] time test is 2021; need a date"),
    ("moment too early", said(splits={"time": {"test": "2001-01-01"}}), r"none is left for 'train'; times go from 202"),
    ("time split without times", said(splits={"time": {"test": 1}}, nodes__customer__time=None),
     r"\[splits\] go by time, but \[nodes\.customer\] names no column time"),
    ("unknown class", said(labels__classes=["a"]), r"csv line 2: segment is 'b', which is none of the class"),
    ("labels without labels", said(labels__column="none"), r"customers\.csv has no column 'none'"),
    ("nobody is labelled", said(labels__column="blank"), r"no row has a class in column 'blank'"),
    ("unknown split", text("customers.csv", "dev", "later"), r"customers\.csv line 3: part is 'later'; need train, va"),
    ("split without a class", text("customers.csv", ",,\n", ",,test\n"), r"\[splits\]: 'c4' is in 'test' but has no c"),
    ("labels of an unknown node", said(labels=BESIDE | {"column": "of", "key": "who"}),
     r"labels\.csv line 3: who is 'c9', which is no key of node type 'customer'"),
    ("two classes of a node", said(labels=BESIDE | {"column": "twice", "key": "who2"}),
     r"\[labels\] gives one customer the classes '.' and '.'; keep one"),
    ("links of nobody", said(labels=None, splits=None, links={"relations": ["a:b:c"], "column": "part"}),
     r"\[links\]: relations: 'a:b:c' is unknown; known: customer:buys:product"),
    ("links that are drawn", said(labels=None, splits=None, links={"relations": ["customer:buys:product"], **SPLIT}),
     r"shares of links are drawn by task\.val_share"),
    ("damaged gzip", said(edges__buys__files="orders.csv.gz"), r"orders\.csv\.gz is damaged or truncated"),
    ("no Parquet", said(edges__buys__files="orders.parquet"), r"orders\.parquet is no Parquet file, or damaged"),
    ("lists of lists", said(nodes__product__files="nested.parquet"), r"nested\.parquet column 'embedding' holds lists"),
    ("durations", said(edges__buys__files="durations.parquet"), r"column 'date' is of the type duration\[s\]; need"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shop in CSV, and some files that only broken schemas name."""
    folder = shop.write(tmp_path / "shop", ".csv")
    blank = {**shop.CUSTOMERS, "blank": [None] * 5}
    part = blank.pop("part")
    shop.as_csv({**blank, "part": part}, folder / "customers.csv")
    (folder / "labels.csv").write_text("who,of,who2,twice\nc1,a,c1,a\nc9,b,c1,b\n")
    (folder / "orders.csv.gz").write_bytes(b"\x1f\x8b\x08\x00 no more")
    (folder / "orders.parquet").write_bytes(b"PAR1 no more")
    nested = pyarrow.table({**shop.PRODUCTS, "embedding": [[[1.0]], [[2.0]], [[3.0]]]})
    pyarrow.parquet.write_table(nested, folder / "nested.parquet")
    durations = {**shop.ORDERS, "date": [datetime.timedelta(1)] * 5}
    durations_table = pyarrow.table(durations)
    position = durations_table.schema.get_field_index("date")
    seconds = durations_table["date"].cast(pyarrow.duration("s"))
    pyarrow.parquet.write_table(durations_table.set_column(position, "date", seconds), folder / "durations.parquet")
    return folder


@pytest.mark.parametrize(("breakage", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_broken_tables_are_one_line_and_exit_code_2(folder, breakage, expected, capsys):
    assert main(["describe", str(folder)]) == 0
    capsys.readouterr()
    breakage(folder)
    assert main(["describe", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert re.search(expected, line), line


MEMORY: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("unknown table", {}, {"clients": {}}, r"a table is given for 'clients'; known: customer, product, tag"),
    ("no table", {}, {"customer": 7}, r"customer is a int; need a pandas frame, an Arrow table, or a mapping"),
    ("two lengths", {}, {"product": {**shop.PRODUCTS, "sku": [1]}}, r"product: column '.*' has . rows; another one"),
    ("an object", {}, {"product": {**shop.PRODUCTS, "sku": [1, 2, object()]}}, r"column 'sku' holds <object .*of type"),
    ("complex", {}, {"product": {**shop.PRODUCTS, "sku": np.array([1j, 2, 3])}}, r"column 'sku' holds 1j of type comp"),
    ("mixed", {}, {"product": {**shop.PRODUCTS, "sku": [1, "b", [2]]}}, r"integer and list and text values"),
    ("floats for keys", {}, {"product": {**shop.PRODUCTS, "sku": [1.5, 2, 3]}}, r"product row 0: column 'sku' holds n"),
    ("truth for keys", {}, {"product": {**shop.PRODUCTS, "sku": [True, False, True]}}, r"holds true or false; keys ar"),
    ("beyond 64 bits", {}, {"product": {**shop.PRODUCTS, "sku": [1, 2, 2**70]}}, r"an integer beyond 64 bits"),
    ("unsigned", {}, {"product": {**shop.PRODUCTS, "sku": np.uint64([1, 2, 2**63])}}, r"need integers below 2\*\*63"),
    ("NaN key", {}, {"product": pandas.DataFrame({**shop.PRODUCTS, "sku": [1, None, 3]})}, r"row 1: no key in column"),
    ("unsigned Arrow", {}, {"product": pyarrow.table({**shop.PRODUCTS, "sku": pyarrow.array([1, 2, 2**63], "uint64")})},
     r"product column 'sku': .*9223372036854775808"),
    ("lists for a number", {"nodes__product__features__embedding": "number"}, {}, r"holds lists; need numbers"),
    ("numbers for a vector", {"nodes__customer__features__age": "vector"}, {}, r"'age' holds whole numbers; need list"),
    ("texts for a vector", {"nodes__product__features__labels": "vector"}, {}, r"'labels' holds lists of text; need"),
    ("times for a category", {"nodes__customer__features__joined": "category"}, {}, r"'joined' holds times; need text"),
    ("vectors alone missing", {}, {"product": {**shop.PRODUCTS, "embedding": [None] * 3}}, r"no row has a vector; say"),
    ("nothing to know", {}, {"customer": {**shop.CUSTOMERS, "country": [None] * 5}}, r"'country': no row has a value"),
    ("shares of a number", {"labels__column": "x_1"}, {}, r"row 0: x_1 is 0\.5; classes are text or whole numbers"),
    ("class that is no 0 or 1", {"labels": {"type": "customer", "columns": ["age"]}}, {}, r"row 0: age is 30; a class"),
    ("class a column missing", {"labels": {"type": "customer", "columns": ["vip"]}}, {}, r"row 3: vip is missing; a c"),
    ("files and a table", {"nodes__product__files": "x.csv"}, {}, r"files are named, and a table is given; choose one"),
    ("key of labels", {"labels__key": "id"}, {}, r"\[labels\] has a key, but no files; name them"),
    ("too few", {"splits": {"shares": {"train": 0.9, "test": 0.05}}}, {}, r"4 labelled nodes or links are too few: no"),
    ("equal times", {"splits": {"shares": {"train": 0.5, "test": 0.5}, "by_time": True}},
     {"customer": {**shop.CUSTOMERS, "joined": [5] * 5}, "customer:buys:product": {**shop.ORDERS, "date": [1] * 5}},
     r"too many have one time, so that none is left for 'train'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "tables", "expected"), [case[1:] for case in MEMORY], ids=[case[0] for case in MEMORY]
)
def test_broken_tables_in_memory(changes, tables, expected):
    with pytest.raises(InputError, match=expected) as caught:
        from_tables(shop.schema(**changes), {**shop.TABLES, **tables})
    assert "\n" not in str(caught.value)


STORED: list[tuple[str, Callable[[Path], object], str]] = [
    ("no offsets", lambda p: (p / "type0_keys_offsets.npy").unlink(), r"type0_keys_offsets\.npy is missing"),
    ("offsets fall", lambda p: np.save(p / "type0_keys_offsets.npy", np.int64([0, 4, 2, 6, 8, 12])), "must rise from"),
    ("keys not UTF-8", lambda p: np.save(p / "type0_keys.npy", np.full(12, 0xFF, np.uint8)), r"npy is not UTF-8"),
    ("keys too few", lambda p: np.save(p / "type1_keys.npy", np.int64([1])), r"type1_keys\.npy has 1 rows; need 3"),
    ("keys of a kind", lambda p: edit(p, "node_types", 0, keys="dates"), "keys of 'customer' are 'dates'"),
    ("times too few", lambda p: np.save(p / "relation0_times.npy", np.int64([1])), r"times\.npy has 1 rows; need 5"),
    ("times of floats", lambda p: np.save(p / "type0_times.npy", np.zeros(5)), r"times\.npy has shape"),
    ("columns too few", lambda p: edit(p, "node_types", 0, columns=[{"name": "a", "kind": "number", "width": 1}]),
     "columns of 'customer' do not add up to its features"),
    ("columns of nothing", lambda p: edit(p, "node_types", 0, columns=[{"a": 1}]), "missing or of the wrong type"),
    ("class names too few", lambda p: edit(p, class_names=["a"]), "1 class names for 2 classes"),
]  # fmt: skip


def edit(folder: Path, *path: Any, **changes: Any) -> None:
    file = folder / "schema.json"
    schema = json.loads(file.read_text())
    part = schema
    for key in path:
        part = part[key]
    part |= changes
    file.write_text(json.dumps(schema))


@pytest.mark.parametrize(("breakage", "expected"), [case[1:] for case in STORED], ids=[case[0] for case in STORED])
def test_broken_stores_of_tables(tmp_path, breakage, expected):
    path = save_graph(from_tables(shop.SCHEMA, shop.TABLES), tmp_path / "graph")
    load_graph(path)
    breakage(path)
    with pytest.raises(InputError, match=expected):
        load_graph(path)
