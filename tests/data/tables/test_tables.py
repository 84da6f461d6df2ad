"""Tables become the graph that they describe, whatever holds them."""

import datetime
import gzip
import sys
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from scipy import sparse

from jhgnn.data import load, load_graph, save_graph
from jhgnn.data.tables import csv_file, from_tables, table
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation
from tests.data.tables import shop
from tests.data.test_storage import assert_same

BUYS, HAS = Relation("customer", "buys", "product"), Relation("product", "has", "tag")
MICROS = 1_000_000


def micros(*date: int) -> int:
    return int(datetime.datetime(*date, tzinfo=datetime.UTC).timestamp()) * MICROS


def check_shop(graph: HeteroGraph) -> None:
    assert graph.name == "shop"
    assert graph.num_nodes == {"customer": 5, "product": 3, "tag": 3}
    assert {name: keys.tolist() for name, keys in graph.keys.items()} == {
        "customer": ["c1", "c2", "c3", "c4", "ü 5"], "product": [12, 10, 11], "tag": ["big", "new", "old"],
    }  # fmt: skip
    assert (graph.target, graph.class_names, graph.num_classes) == ("customer", ("a", "b"), 2)
    assert graph.labels.tolist() == [1, 0, 1, -1, 0]
    assert {name: ids.tolist() for name, ids in graph.splits.items()} == {"train": [0], "val": [1], "test": [2]}
    rows = [*zip(graph.edges[BUYS].senders, graph.edges[BUYS].receivers, graph.edges[BUYS].weights, strict=True)]
    assert rows == [(0, 0, 3), (0, 1, 2.5), (0, 1, 4), (4, 1, 1), (1, 2, 1)]
    assert graph.time_unit == "us"
    assert graph.times[BUYS].tolist() == [
        micros(2021, 5, 3), micros(2020, 5, 1), micros(2019, 1, 1) + 5, micros(2021, 5, 2), micros(2020, 5, 2, 10),
    ]  # fmt: skip
    assert graph.times["customer"][:2].tolist() == [micros(2020, 1, 2), micros(2020, 2, 3)]
    assert list(graph.times) == ["customer", BUYS]
    assert sorted(zip(graph.edges[HAS].senders, graph.edges[HAS].receivers, strict=True)) == [(0, 0), (0, 2), (1, 1)]
    names = [label for column in graph.columns["customer"] for label in column.labels]
    assert names[:5] == ["age", "age missing", "vip", "country=DE", "country=FR"]
    assert names[5:] == [*(f"about[{number}]" for number in range(8)), "x[0]", "x[1]"]
    features = graph.features["customer"]
    features = features.toarray() if sparse.issparse(features) else features
    ages = np.array([30, 37, 41, 22, 55])  # 37: the mean of the others
    np.testing.assert_allclose(features[:, 0], (ages - 37) / np.std([30, 41, 22, 55]), rtol=1e-6)
    np.testing.assert_array_equal(features[:, 1], [0, 1, 0, 0, 0])
    np.testing.assert_allclose(features[:, 2], [1, 0, 0, 0.5, 1])
    np.testing.assert_array_equal(features[:, 3:5], [[0, 1], [1, 0], [0, 0], [0, 1], [1, 0]])
    about = features[:, 5:13]
    np.testing.assert_allclose(np.linalg.norm(about, axis=1), [1, 1, 0, 1, 1], rtol=1e-6)
    assert about[0] @ about[1] > 0.3  # red shoes both
    np.testing.assert_array_equal(features[:, 13:], [[0.5, 1], [1.5, 0], [2.5, -1], [3.5, 0], [0, 2]])
    products = graph.features["product"]
    products = products.toarray() if sparse.issparse(products) else products
    np.testing.assert_array_equal(products, [[0.5, 0.25, 0, 1, 1], [0, 0, 1, 0, 0], [1, -2, 0, 0, 1]])


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_files(tmp_path, ending):
    folder = shop.write(tmp_path / "shop", ending)
    check_shop(load("tables", folder))
    check_shop(load("tables", folder / "tables.toml", target="customer"))


def as_pandas(columns: shop.Columns) -> Any:
    return pandas.DataFrame(columns)


def as_pandas_of_its_own_types(columns: shop.Columns) -> Any:
    frame = pandas.DataFrame(columns).convert_dtypes()
    for name in ("joined", "date"):
        if name in frame:
            frame[name] = pandas.to_datetime(frame[name]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    return frame.astype({"country": "category"}) if "country" in frame else frame


def as_arrow(columns: shop.Columns) -> Any:
    arrow = pyarrow.table(columns)
    if "country" in columns:
        position = arrow.schema.get_field_index("country")
        arrow = arrow.set_column(position, "country", arrow["country"].dictionary_encode())
    if "embedding" in columns:
        fixed = pyarrow.array(columns["embedding"], pyarrow.list_(pyarrow.float32(), 2))
        arrow = arrow.set_column(1, "embedding", fixed)
    return arrow


def as_slices(columns: shop.Columns) -> Any:
    """A part of a larger Arrow table, whose arrays begin at an offset."""
    padded = {name: [values[-1], *values, values[0]] for name, values in columns.items()}
    return pyarrow.table(padded).slice(1, len(next(iter(columns.values()))))


@pytest.mark.parametrize("container", [dict, as_pandas, as_pandas_of_its_own_types, as_arrow, as_slices])
def test_tables_in_memory(container, monkeypatch):
    tables = {name: container(columns) for name, columns in shop.TABLES.items()}
    check_shop(from_tables(shop.SCHEMA, tables))
    monkeypatch.setattr(table, "ROWS_IN_MEMORY", 2)
    monkeypatch.setattr("jhgnn.data.tables.arrow_column.BATCH_ROWS", 2)
    assert_same(from_tables(shop.SCHEMA, tables), from_tables(shop.SCHEMA, shop.TABLES))


def test_chunks_of_any_size_give_the_same_graph(tmp_path, monkeypatch):
    folder = shop.write(tmp_path, ".csv")
    whole = load("tables", folder)
    for block in (1, 17, 64):
        monkeypatch.setattr(csv_file, "BLOCK_BYTES", block)
        assert_same(load("tables", folder), whole)


def test_a_saved_graph_keeps_all_of_it(tmp_path):
    graph = from_tables(shop.SCHEMA, shop.TABLES)
    check_shop(load_graph(save_graph(graph, tmp_path / "graph")))


def test_some_tables_in_memory_and_some_in_files(tmp_path):
    shop.write(tmp_path, ".csv")
    changed = shop.schema(
        nodes__customer__files=str(tmp_path / "customers.csv"), nodes__product__files=str(tmp_path / "products.csv")
    )
    rest = {name: columns for name, columns in shop.TABLES.items() if ":" in name}
    check_shop(from_tables(changed, rest))
    (tmp_path / "tables.toml").write_text(shop.toml(changed))
    check_shop(from_tables(tmp_path, rest))


def test_a_table_in_several_files_packed_or_without_a_header(tmp_path):
    shop.write(tmp_path, ".csv")
    head, *lines = (tmp_path / "orders.csv").read_bytes().splitlines(keepends=True)
    (tmp_path / "orders.csv").unlink()
    (tmp_path / "orders-1.csv").write_bytes(head + b"".join(lines[:2]))
    (tmp_path / "orders-2.csv.gz").write_bytes(gzip.compress(head + b"".join(lines[2:])))
    (tmp_path / "tagged.txt").write_bytes(b"new;10\r\nold;12\r\nbig;12\r\n")
    changed = shop.with_files(shop.SCHEMA, ".csv")
    changed["edges"]["customer:buys:product"]["files"] = ["orders-*"]
    changed["edges"]["product:has:tag"] |= {"files": "tagged.txt", "separator": ";", "header": ["tag", "product"]}
    (tmp_path / "tables.toml").write_text(shop.toml(changed))
    check_shop(load("tables", tmp_path))


def graph_of(schema: dict[str, Any] | None = None, **tables: Any) -> HeteroGraph:
    """The shop with changed tables: `customer={"age": [...]}` changes a column, `buys`, `tagged` those of edges."""
    names = {"buys": "customer:buys:product", "tagged": "product:has:tag"}
    changed = dict(shop.TABLES)
    for name, value in tables.items():
        part = names.get(name, name)
        changed[part] = {**changed.get(part, {}), **value}
    return from_tables(schema or shop.SCHEMA, changed)


def test_keys_are_compared_as_text():
    """Integers in one table, text in another; text that only looks like an integer is another key."""
    text = graph_of(product={"sku": ["12", "10", "11"]})
    assert text.keys["product"].tolist() == [12, 10, 11]
    mixed = graph_of(product={"sku": ["12", "10", "011"]}, buys={"product": [10, "011", "10", 12, 10]})
    assert mixed.keys["product"].tolist() == ["12", "10", "011"]
    np.testing.assert_array_equal(mixed.edges[BUYS].senders, graph_of().edges[BUYS].senders)
    with pytest.raises(
        InputError, match=r"customer:buys:product row 1: product is '011', which is no key of node type"
    ):
        graph_of(buys={"product": [10, "011", 10, 12, 10]})
    floats = graph_of(buys={"product": np.array([10.0, 11, 10, 12, 10])})  # what pandas makes of integers
    assert_same(floats, graph_of())


def test_types_without_keys_are_numbered_by_row():
    numbered = graph_of(
        shop.schema(nodes__product__key=None), buys={"product": [1, 2, 1, 0, 1]}, tagged={"product": [1, 0, 0]}
    )
    np.testing.assert_array_equal(numbered.edges[BUYS].senders, graph_of().edges[BUYS].senders)
    assert "product" not in numbered.keys
    with pytest.raises(InputError, match=r"row 0: product is '3', which is no key of .* numbers of its rows, 0 to 2"):
        graph_of(
            shop.schema(nodes__product__key=None), buys={"product": [3, 2, 1, 0, 1]}, tagged={"product": [1, 0, 0]}
        )


def test_types_without_a_table_have_the_keys_of_their_edges():
    assert graph_of(tagged={"tag": [5, 3, 5]}).keys["tag"].tolist() == [3, 5]
    assert graph_of(tagged={"tag": ["5", "30", "4"]}).keys["tag"].tolist() == [4, 5, 30]
    assert graph_of(tagged={"tag": [5, "b", "05"]}).keys["tag"].tolist() == ["05", "5", "b"]


def test_dangling_rows_are_dropped_where_the_schema_says_so(caplog):
    loose = shop.schema(edges__buys__dangling="drop")
    graph = graph_of(loose, buys={"customer": ["c1", "c2", "c9", "c1", "c1"]})
    assert graph.edges[BUYS].num_edges == 4
    assert 1.0 in graph.edges[BUYS].weights
    assert len(graph.times[BUYS]) == 4
    assert "1 rows dropped" in caplog.text


def test_words_for_no_value():
    said = shop.schema(nodes__customer__missing=["", "?"])
    graph = graph_of(said, customer={"country": ["?", "DE", "", "FR", "?"]})
    assert graph.columns["customer"][2].labels == ("country=DE", "country=FR")
    assert graph_of(customer={"country": ["?", "DE", "", "FR", "?"]}).columns["customer"][2].fitted["categories"] == [
        "?", "DE", "FR"
    ]  # fmt: skip


FEATURES: list[tuple[Any, list[Any], list[list[float]], list[str]]] = [
    ({"kind": "number", "scale": "none"}, [1, None, 3], [[1], [2], [3]], ["f"]),
    ("number", [7, 7, 7], [[0], [0], [0]], ["f"]),
    ("number", ["1e3", "-1e3", ""], [[1], [-1], [0]], ["f"]),
    ("number", ["true", "FALSE", "true"], [[0.5**0.5], [-(2**0.5)], [0.5**0.5]], ["f"]),
    ("category", [10, 9, None], [[0, 1], [1, 0], [0, 0]], ["f=9", "f=10"]),
    ("category", [True, False, True], [[0, 1], [1, 0], [0, 1]], ["f=false", "f=true"]),
    ("category", [0.5, 2.0, 0.5], [[1, 0], [0, 1], [1, 0]], ["f=0.5", "f=2"]),
    ({"kind": "category", "missing": "flag"}, ["a", None, "a"], [[1, 0], [0, 1], [1, 0]], ["f=a", "f missing"]),
    ({"kind": "category", "categories": ["b", "a"]}, ["a", "b", "b"], [[0, 1], [1, 0], [1, 0]], ["f=b", "f=a"]),
    ({"kind": "category", "categories": ["b"], "other": True}, ["a", "b", "c"], [[0, 1], [1, 0], [0, 1]],
     ["f=b", "f other"]),
    ({"kind": "category", "max_categories": 1}, ["a", "b", "b"], [[0, 1], [1, 0], [1, 0]], ["f=b", "f other"]),
    ({"kind": "category", "max_categories": 2}, ["a", "b", "b"], [[1, 0, 0], [0, 1, 0], [0, 1, 0]],
     ["f=a", "f=b", "f other"]),
    ("categories", ["a|b", " b ||", None], [[1, 1], [0, 1], [0, 0]], ["f=a", "f=b"]),
    ({"kind": "categories", "separator": ";"}, ["a;a", "b", ""], [[1, 0], [0, 1], [0, 0]], ["f=a", "f=b"]),
    ("categories", [[1, 2], [], [2, 2]], [[1, 1], [0, 0], [0, 1]], ["f=1", "f=2"]),
    ({"kind": "text", "width": 1}, ["Word", "word WORD", "!"], [[1], [1], [0]], ["f[0]"]),
    ("vector", ["[1, 2]", "3;4", "5 6"], [[1, 2], [3, 4], [5, 6]], ["f[0]", "f[1]"]),
    ({"kind": "vector", "missing": "flag"}, [None, [2], [3]], [[0, 1], [2, 0], [3, 0]], ["f[0]", "f missing"]),
    ("vector", np.array([[1, 2], [3, 4], [5, 6]]), [[1, 2], [3, 4], [5, 6]], ["f[0]", "f[1]"]),
]  # fmt: skip


def feature(kind: Any, values: Any, like: Any = None) -> HeteroGraph:
    return from_tables({"nodes": {"a": {"features": {"f": kind}}}}, {"a": {"f": values}}, like=like)


def dense(graph: HeteroGraph) -> np.ndarray:
    matrix = graph.features["a"]
    return matrix.toarray() if sparse.issparse(matrix) else matrix


@pytest.mark.parametrize("chunk", [1, 100])
@pytest.mark.parametrize(("kind", "values", "expected", "labels"), FEATURES)
def test_features(kind, values, expected, labels, chunk, monkeypatch):
    monkeypatch.setattr(table, "ROWS_IN_MEMORY", chunk)
    graph = feature(kind, values)
    found = dense(graph)
    if isinstance(kind, dict) and kind["kind"] == "text":
        found = np.abs(found)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert list(graph.columns["a"][0].labels) == labels
    assert_same(feature(kind, values, like=graph), graph)


def test_another_graph_is_encoded_as_the_first(caplog):
    """Mean, categories and classes are the first one's, its labels may be missing, and nothing is drawn."""
    first = from_tables(shop.SCHEMA, shop.TABLES)
    customers = {
        name: values[:2] for name, values in shop.CUSTOMERS.items() if name not in ("segment", "part")
    } | {"age": [37, 37], "country": ["FR", "IT"]}  # fmt: skip
    tables = shop.TABLES | {"customer": customers, "customer:buys:product": {
        name: values[:2] for name, values in shop.ORDERS.items()}}  # fmt: skip
    second = from_tables(shop.SCHEMA, tables, like=first)
    assert second.columns == first.columns
    assert second.class_names == ("a", "b")
    assert second.labels.tolist() == [-1, -1]
    assert second.splits == {}
    matrix = second.features["customer"]
    matrix = matrix.toarray() if sparse.issparse(matrix) else matrix
    np.testing.assert_array_equal(matrix[:, 0], [0, 0])
    np.testing.assert_array_equal(matrix[:, 3:5], [[0, 1], [0, 0]])
    assert "country: 1 values are in no category that was found before, such as IT" in caplog.text
    with pytest.raises(InputError, match=r"the features of 'customer' are .*like are age \(number\), vip"):
        from_tables(shop.schema(nodes__customer__features__age="category"), tables, like=first)
    no_table = shop.schema(splits={"shares": {"train": 0.5, "test": 0.5}})
    assert from_tables(no_table, tables, like=first).splits == {}


def labelled(of: dict[str, Any], split: dict[str, Any] | None = None, **tables: Any) -> HeteroGraph:
    schema = {"nodes": {"a": {"key": "id"}}, "labels": {"type": "a", **of}}
    if split is not None:
        schema["splits"] = split
    ids = [f"n{number}" for number in range(10)]
    return from_tables(schema, {"a": {"id": ids, **tables.pop("a", {})}, **tables}, seed=3)


def test_labels_of_every_form():
    ten = [10, 9, None, 9, 10, 9, 9, 9, 9, 11]
    graph = labelled({"column": "y"}, a={"y": ten})
    assert graph.class_names == ("9", "10", "11")
    assert graph.labels.tolist() == [1, 0, -1, 0, 1, 0, 0, 0, 0, 2]
    assert labelled({"column": "y", "classes": ["11", "10", "9", "8"]}, a={"y": ten}).labels[:3].tolist() == [1, 2, -1]
    beside = labelled({"column": "y", "key": "who"}, labels={"who": ["n9", "n0", "n9"], "y": ["u", "v", "u"]})
    assert beside.labels.tolist() == [1, *[-1] * 8, 0]
    assert not beside.multi_label
    many = labelled({"column": "y", "multi": True}, a={"y": ["p|q", "q", None, *[""] * 7]})
    assert many.multi_label
    assert many.labels[:3].tolist() == [[1, 1], [0, 1], [0, 0]]
    long = labelled({"column": "y", "key": "who", "multi": True}, labels={"who": ["n1", "n1"], "y": ["q", "p"]})
    assert long.labels[:2].tolist() == [[0, 0], [1, 1]]
    wide = labelled({"columns": ["p", "q"]}, a={"p": [1] * 10, "q": [False] * 9 + [True]})
    assert wide.class_names == ("p", "q")
    assert wide.labels[8:].tolist() == [[1, 0], [1, 1]]


def ids(graph: HeteroGraph) -> dict[str, list[int]]:
    return {name: nodes.tolist() for name, nodes in graph.splits.items()}


def test_splits_of_every_form():
    y = {"y": ["p", "q"] * 4 + ["p", None]}
    drawn = labelled({"column": "y"}, {"shares": {"train": 0.5, "val": 0.2, "test": 0.3}}, a=y)
    assert [len(nodes) for nodes in drawn.splits.values()] == [4, 2, 3]
    assert sorted(node for nodes in ids(drawn).values() for node in nodes) == [*range(9)]
    assert ids(drawn) == ids(labelled({"column": "y"}, {"shares": {"train": 0.5, "val": 0.2, "test": 0.3}}, a=y))
    few = labelled({"column": "y"}, {"shares": {"train": 0.2, "val": 0.2}}, a=y)
    assert [len(nodes) for nodes in few.splits.values()] == [2, 2]
    column = labelled({"column": "y"}, {"column": "s"}, a=y | {"s": ["train"] * 5 + ["test"] * 4 + [None]})
    assert ids(column)["test"] == [5, 6, 7, 8]
    assert sorted(ids(column)["train"] + ids(column)["val"]) == [0, 1, 2, 3, 4]
    beside = labelled({"column": "y"}, {"column": "s", "key": "k"}, a=y,
                      splits={"k": ["n3", "n0", "n1"], "s": ["Valid", "training", "testing"]})  # fmt: skip
    assert ids(beside) == {"train": [0], "val": [3], "test": [1]}


def timed(split: dict[str, Any], times: list[Any], **tables: Any) -> HeteroGraph:
    schema = {"nodes": {"a": {"time": "t"}}, "labels": {"type": "a", "column": "y"}, "splits": split}
    return from_tables(schema, {"a": {"t": times, "y": ["p", "q"] * 5}})


def test_splits_by_time():
    years = [2010, 2019, 2011, 2018, 2012, 2017, 2013, 2016, 2014, 2015]
    assert ids(timed({"time": {"val": 2016, "test": 2018}}, years)) == {
        "train": [0, 2, 4, 6, 8, 9], "val": [5, 7], "test": [1, 3],
    }  # fmt: skip
    assert ids(timed({"time": {"test": 2012}}, years)) == {"train": [0, 2], "test": [1, 3, 4, 5, 6, 7, 8, 9]}
    shares = {"shares": {"train": 0.6, "val": 0.2, "test": 0.2}, "by_time": True}
    assert ids(timed(shares, years)) == {"train": [0, 2, 4, 6, 8, 9], "val": [5, 7], "test": [1, 3]}
    days = [datetime.date(year, 1, 1) for year in years]
    for moment in (
        datetime.date(2018, 1, 1),
        "2018-01-01",
        datetime.datetime(2017, 12, 31, 23, 59, tzinfo=datetime.UTC),
    ):
        assert ids(timed({"time": {"test": moment}}, days))["test"] == [1, 3]
    equal = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2]  # the sixth and seventh are as late as the validation's first
    assert ids(timed({"shares": {"train": 0.7, "test": 0.3}, "by_time": True}, equal)) == {
        "train": [0, 1, 2, 3, 4], "test": [5, 6, 7, 8, 9],
    }  # fmt: skip


def links_of(split: dict[str, Any], **columns: Any) -> HeteroGraph:
    schema = shop.schema(labels=None, splits=None, edges__buys__weight=None)
    return graph_of(schema | {"links": {"relations": [str(BUYS)], **split}}, buys=columns)


def test_links_to_predict_by_column_and_by_time():
    graph = links_of({"column": "s"}, s=["train", "val", "test", None, "train"])
    assert graph.links.relations == (BUYS,)
    assert {name: rows.tolist() for name, rows in graph.links.triples.items()} == {
        "train": [[0, 0, 1], [0, 0, 1]], "val": [[1, 0, 2]], "test": [[4, 0, 1]],
    }  # fmt: skip
    graph = links_of({"time": {"val": datetime.date(2020, 5, 2), "test": datetime.date(2021, 5, 2)}})
    assert {name: rows.tolist() for name, rows in graph.links.triples.items()} == {
        "train": [[0, 0, 1], [0, 0, 1]], "val": [[1, 0, 2]], "test": [[0, 0, 0], [4, 0, 1]],
    }  # fmt: skip
    graph = links_of({"shares": {"train": 0.6, "test": 0.4}, "by_time": True})
    assert sorted(graph.links.triples["test"].tolist()) == [[0, 0, 0], [4, 0, 1]]


def test_tables_without_rows():
    """An empty type has no features to find; as another graph has them, it has that width."""
    none = {name: {column: [] for column in columns} for name, columns in shop.TABLES.items()}
    bare = shop.schema(labels=None, splits=None)
    graph = from_tables(bare, none)
    assert graph.num_nodes == {"customer": 0, "product": 0, "tag": 0}
    assert [edges.num_edges for edges in graph.edges.values()] == [0, 0]
    assert graph.features == {}
    like = from_tables(bare, none, like=from_tables(bare, shop.TABLES))
    assert like.features["customer"].shape == (0, 15)


def test_times_of_whole_numbers_and_of_time_zones():
    schema = {"nodes": {"a": {"time": "t"}}}
    assert from_tables(schema, {"a": {"t": ["5", "-3"]}}).times["a"].tolist() == [5, -3]
    zones = ["2020-01-01T02:00:00+02:00", "2020-01-01 00:00:00Z", "2020-01-01T00:00:00.000000"]
    graph = from_tables(schema, {"a": {"t": zones}})
    assert graph.times["a"].tolist() == [micros(2020, 1, 1)] * 3
    aware = [datetime.datetime(2020, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))]
    assert from_tables(schema, {"a": {"t": aware}}).times["a"].tolist() == [micros(2020, 1, 1)]


def test_csv_needs_no_pyarrow_and_parquet_says_that_it_does(tmp_path, monkeypatch):
    csv, parquet = shop.write(tmp_path / "csv", ".csv"), shop.write(tmp_path / "parquet", ".parquet")
    pyarrow.chunked_array([["a"]]).is_null()  # what pandas' strings need of pyarrow is loaded at its first use
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_shop(load("tables", csv))
    check_shop(from_tables(shop.SCHEMA, {name: as_pandas(columns) for name, columns in shop.TABLES.items()}))
    with pytest.raises(InputError, match=r"customers\.parquet: Parquet needs pyarrow.*'jhgnn\[tables\]'"):
        load("tables", parquet)
