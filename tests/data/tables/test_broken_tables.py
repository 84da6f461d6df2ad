"""Broken tables and schemas, each with the one line that the command must answer; the table is the specification."""

import datetime
import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from jhgnn import train
from jhgnn.data import load_graph, save_graph
from jhgnn.data.__main__ import main
from jhgnn.data.tables import from_tables
from jhgnn.errors import InputError
from tests.data.tables import shop

PAGE = Path(__file__).parents[3] / "docs" / "tables.md"
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


def folder_named(name: str) -> Break:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def changed(name: str, change: Callable[[bytes], bytes]) -> Break:
    """A whole file changed."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def both(*breaks: Break) -> Break:
    return lambda folder: [each(folder) for each in breaks]


def products(**columns: Any) -> Break:
    """The products in a Parquet file, with other columns."""

    def change(folder: Path) -> None:
        pyarrow.parquet.write_table(pyarrow.table({**shop.PRODUCTS, **columns}), folder / "goods.parquet")

    return both(change, said(nodes__product__files="goods.parquet"))


def orders(**columns: Any) -> Break:
    """The orders in a Parquet file, with other columns."""

    def change(folder: Path) -> None:
        pyarrow.parquet.write_table(pyarrow.table({**shop.ORDERS, **columns}), folder / "sold.parquet")

    return both(change, said(edges__buys__files="sold.parquet"))


def packed_bytes(folder: Path) -> None:
    """A Parquet file whose pages, not its footer, are damaged."""
    data = bytearray((folder / "goods.parquet").read_bytes())
    data[4:40] = bytes(36)
    (folder / "goods.parquet").write_bytes(data)


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


HEADERS = {"orders": b"customer,product,amount,date\n", "tagged": b"product,tag\n",
           "products": b"sku,embedding,labels\n",
           "customers": b"id,age,vip,country,about,x_1,x_2,joined,segment,blank,part\n"}  # fmt: skip
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
    ("a folder for a file", folder_named("orders.csv"),
     r"orders\.csv is a folder, not a file; need a CSV or Parquet f"),
    ("nothing regular", both(gone("orders.csv"), lambda folder: (folder / "orders.csv").symlink_to("/dev/null")),
     r"orders\.csv is no regular file; need a CSV or Parquet file"),
    ("only headers", both(*(given(f"{name}.csv", header) for name, header in HEADERS.items())),
     r"\[labels\]: no row has a class in column 'segment'"),
    ("nodes of a header alone", given("products.csv", HEADERS["products"]),
     r"orders\.csv line 2: product is '10', which is"),
    ("blank lines alone", given("orders.csv", b"\n\n\n"), r"orders\.csv is empty; need a first line with the names"),
    ("no header", changed("orders.csv", lambda data: data.split(b"\n", 1)[1]),
     r"orders\.csv has no column 'customer'; it has c1, 10, 2\.5"),
    ("another separator", said(edges__buys__separator=";"),
     r"no column 'customer'; it has customer,product,amount,date; did you mean separator = ','\?"),
    ("white space in a name", text("orders.csv", ",product", ", product"),
     r"it has customer, ' product', amount, date; take the white space out of ' product'"),
    ("name in capitals", text("orders.csv", "product,", "Product,"),
     r"no column 'product'; .*; did you mean Product\?"),
    ("row too long", text("orders.csv", "c2,11,", "c2,11,11,"), r"orders\.csv line 3 has 5 fields; need 4, as many as"),
    ("NUL bytes", text("orders.csv", "c2,", "c\0,"),
     r"orders\.csv line 3 holds a NUL byte, as no text does; write the"),
    ("UTF-16", changed("orders.csv", lambda data: data.decode().encode("utf-16")),
     r"orders\.csv is UTF-16 text; save the file as UTF-8"),
    ("Latin 1", changed("customers.csv", lambda data: data.decode().encode("latin-1")),
     r"customers\.csv line 7 is not UTF-8 text; save the file in that encoding"),
    ("line ends of another age", changed("orders.csv", lambda data: data.replace(b"\n", b"\r")),
     r"orders\.csv ends its lines in carriage returns alone; need line feeds"),
    ("packed but not called so", changed("orders.csv", gzip.compress),
     r"orders\.csv is packed by gzip; let its name end"),
    ("called packed but is not", both(text("orders.csv", "c2", "c2"), lambda folder: shutil.copy(
        folder / "orders.csv", folder / "orders.csv.gz"), said(edges__buys__files="orders.csv.gz")),
     r"orders\.csv\.gz is damaged or truncated \(Not a gzipped file"),
    ("cut gzip", both(changed("orders.csv", lambda data: gzip.compress(data)[:-12]), lambda folder: shutil.copy(
        folder / "orders.csv", folder / "orders.csv.gz"), said(edges__buys__files="orders.csv.gz")),
     r"orders\.csv\.gz is damaged or truncated \(Compressed file ended"),
    ("Parquet called CSV", both(products(), lambda folder: shutil.copy(folder / "goods.parquet", folder / "orders.csv"),
     said()), r"orders\.csv is a Parquet file; let its name end in \.parquet"),
    ("a spreadsheet", given("orders.csv", b"PK\x03\x04..."),
     r"orders\.csv is a zip archive or a spreadsheet; save the"),
    ("cut Parquet", both(products(), changed("goods.parquet", lambda data: data[: len(data) * 2 // 3])),
     r"goods\.parquet is no Parquet file, or damaged or truncated \(.*\); write it again"),
    ("damaged Parquet", both(products(), packed_bytes), r"goods\.parquet is no Parquet file, or damaged or truncated"),
    ("empty Parquet", both(products(), given("goods.parquet", b"")),
     r"goods\.parquet is no Parquet .* size is 0 bytes"),
    ("Parquet of structures", products(embedding=[{"a": 1}] * 3),
     r"column 'embedding' is of the type struct<a: int64>"),
    ("Parquet of bytes", products(sku=[b"10", b"11", b"12"]),
     r"goods\.parquet column 'sku' is of the type binary; need"),
    ("keys of fractions", products(sku=[10.5, 11.0, 12.0]),
     r"goods\.parquet row 0: column 'sku' holds numbers; keys are"),
    ("keys of days", products(sku=[datetime.date(2020, 1, 2)] * 3),
     r"row 0: column 'sku' holds times; keys are text or"),
    ("keys of truth", products(sku=[True, False, True]), r"column 'sku' holds true or false; keys are text or whole"),
    ("null key in Parquet", products(sku=[10, None, 12]), r"goods\.parquet row 1: no key in column 'sku'; need one in"),
    ("key twice in Parquet", products(sku=[10, 11, 10]),
     r"goods\.parquet row 2: sku is '10', the key of .* row 0 as we"),
    ("keys of another type", orders(customer=[1, 2, 3, 4, 5]),
     r"sold\.parquet row 0: customer is '1', which is no key"),
    ("unknown key in Parquet", orders(customer=["c1", "c2", "c9", "c1", "c1"]),
     r"sold\.parquet row 2: customer is 'c9', w"),
    ("ragged vectors in Parquet", products(embedding=[[0.5], [0.5, 1.0], [2.0]]),
     r"row 1: embedding has 2 numbers; need 1"),
    ("infinite in a vector", products(embedding=[[0.5], [float("inf")], [2.0]]),
     r"row 1: embedding holds inf; need fini"),
    ("null in a vector", products(embedding=[[1], [2], [None]]),
     r"column 'embedding', row 2: the list has a missing it"),
    ("null among words", products(labels=[["x", None], ["y"], None]),
     r"'labels', row 0: the list has a missing item; lea"),
    ("NaN weight in Parquet", orders(amount=[1.0, 2.0, float("nan"), 1.0, 1.0]),
     r"sold\.parquet row 2: no weight in col"),
    ("lists for weights", orders(amount=[[1.0]] * 5),
     r"sold\.parquet row 0: column 'amount' holds lists; need numbers"),
    ("time of day", orders(date=[datetime.time(1)] * 5),
     r"column 'date' is of the type time64\[us\]; need numbers, str"),
    ("time beyond 64 bits", orders(date=pyarrow.array([2**31 - 1] * 5, pyarrow.date32())),
     r"sold\.parquet column 'date': .* out of bounds timestamp"),
    ("key beyond 64 bits", orders(product=pyarrow.array([2**63] * 5, "uint64")),
     r"column 'product': .*9223372036854775808"),
    ("columns of another file", both(given("orders2.csv", b"product,customer,amount\n10,c1,1\n"),
     said(edges__buys__files=["orders.csv", "orders2.csv"])),
     r"orders2\.csv has no column 'date'; it has product, cust"),
    ("infinite weight", text("orders.csv", ",1.0,", ",inf,"),
     r"orders\.csv line 3: amount is inf; need a finite number"),
    ("month 13", text("orders.csv", "2020-05-02T10:00:00", "2020-13-02"),
     r"orders\.csv line 3: date is '2020-13-02'; need"),
    ("day before month", text("orders.csv", "2020-05-02T10:00:00", "05/02/2020"),
     r"line 3: date is '05/02/2020'; need a w"),
    ("year beyond 9999", text("orders.csv", "2020-05-02T10:00:00", "99999999-01-01"),
     r"date is '99999999-01-01'; need a w"),
    ("time beyond 64 bits as text", given("orders.csv", HEADERS["orders"] + b"c1,10,1,99999999999999999999\n"),
     r"orders\.csv line 2: date is '99999999999999999999'; need a whole number"),
    ("decimal comma", text("customers.csv", ",41,", ',"41,5",'),
     r"customers\.csv line 5: age is '41,5', which is not a n"),
    ("empty vector", text("products.csv", "[1.0, -2.0]", "[]"),
     r"products\.csv line 4: embedding has 0 numbers; need 2"),
    ("files that are a number", said(edges__buys__files=3), r"files = 3 must be a string or a list of strings"),
    ("no files in a list", said(edges__buys__files=[]), r"files = \[\] must be a string or a list of strings"),
    ("truth as a word", said(labels__multi="yes"), r"\[labels\]: multi = 'yes' must be true or false"),
    ("unknown rule", said(edges__buys__dangling="ignore"), r"dangling = 'ignore' is not one of 'error', 'drop'"),
    ("long separator", said(edges__buys__separator="||"), r"separator = '\|\|' must be one character of ASCII"),
    ("missing that is a number", said(edges__buys__missing=0), r"missing = 0 must be a string or a list of strings"),
    ("share as a word", said(splits={"shares": {"train": "half", "test": 0.2}}),
     r"shares: train = 'half' must be above 0"),
    ("shares in a list", said(splits={"shares": [0.6, 0.4]}), r"\[splits\.shares\] is \[0\.6, 0\.4\]; need a table"),
    ("width of nothing", said(nodes__customer__features__about={"kind": "text", "width": 0}),
     r"width = 0 must be a whole n"),
    ("width beyond memory", said(nodes__customer__features__about={"kind": "text", "width": 10**15}),
     r"feature 'about': width = 1000000000000000 must be a whole number from 1 to 1,048,576"),
    ("category twice", said(nodes__customer__features__country={"kind": "category", "categories": ["DE", "FR", "DE"]}),
     r"categories = \['DE', 'FR', 'DE'\] names 'DE' twice; name each once"),
    ("class twice", said(labels__classes=["a", "b", "a"]),
     r"classes = \['a', 'b', 'a'\] names 'a' twice; name each once"),
    ("features in a list", said(nodes__customer__features=["age"]),
     r"\[nodes\.customer\.features\] is \['age'\]; need a"),
    ("unknown scale", said(nodes__customer__features__age={"kind": "number", "scale": "log"}),
     r"scale = 'log' is not one o"),
    ("name with a slash", said(nodes={"a/b": {"key": "id"}}), r"a/b"),
    ("key of schema twice", given("tables.toml", b'name = "a"\nname = "b"\n'),
     r"tables\.toml is not TOML: Cannot overwrite"),
    ("word for a number of an edge", both(text("orders.csv", ",1.0,", ",much,"), said(edges__buys__weight=None,
     edges__buys__features={"amount": "number"})), r"orders\.csv line 3: amount is 'much', which is not a number"),
    ("no such column of edges", said(edges__buys__features={"amuont": "number"}),
     r"orders\.csv has no column 'amuont'; it has customer, product, amount, date; did you mean amount\?"),
    ("kind of an edge's feature", said(edges__buys__features={"amount": "float"}),
     r"\[edges\.\"customer:buys:product\"\]: feature 'amount': kind = 'float' is not one of"),
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
def test_broken_tables_are_one_line_and_exit_code_2(folder, breakage, expected, tmp_path, capsys):
    """By the command that looks at data, and by the one that trains on it."""
    assert main(["describe", str(folder)]) == 0
    capsys.readouterr()
    breakage(folder)
    for command in (lambda: main(["describe", str(folder)]), lambda: train.main(training(folder, tmp_path / "run"))):
        assert command() == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        assert re.search(expected, line), line
    assert not (tmp_path / "run").exists()


def training(folder: Path, run: Path) -> list[str]:
    arguments = ["--data.format", "tables", "--data.path", str(folder), "--run.dir", str(run)]
    return ["--model.name", "rgcn", "--model.hidden", "4", *arguments]


NOT_TO_BE_TRAINED_ON: list[tuple[str, Break, str]] = [
    ("one class", changed("customers.csv", lambda data: data.replace(b",b,", b",a,")),
     r"1 class of 'customer'; classification needs two or more"),
    ("none to train on", changed("customers.csv", lambda data: data.replace(b"train", b"test")),
     r"the train split of 'customer' is empty; training needs labelled nodes"),
    ("nobody in a split", said(splits__column="blank"), r"the train split of 'customer' is empty; training needs lab"),
    ("no labels", said(labels=None, splits=None), r"label"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("breakage", "expected"),
    [case[1:] for case in NOT_TO_BE_TRAINED_ON],
    ids=[case[0] for case in NOT_TO_BE_TRAINED_ON],
)
def test_tables_that_are_whole_but_not_to_be_trained_on(folder, breakage, expected, tmp_path, capsys):
    breakage(folder)
    assert main(["describe", str(folder)]) == 0
    capsys.readouterr()
    assert train.main(training(folder, tmp_path / "run")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"^error: .*{expected}", line), line


def test_the_ways_are_distinct_and_as_many_as_the_page_says():
    names, _, patterns = zip(*CASES, *NOT_TO_BE_TRAINED_ON, strict=True)
    assert len(set(names)) == len(names)
    assert len(set(patterns)) >= len(patterns) - 2  # a header alone and blank lines are empty files, too
    (said,) = re.findall(r"(\d+) ways of breaking tables or their schema", PAGE.read_text(encoding="utf-8"))
    assert int(said) == len(names) >= 25


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
