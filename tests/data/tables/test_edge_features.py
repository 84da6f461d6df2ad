"""Features of edges from the columns of their tables."""

import dataclasses

import numpy as np
import pytest

import jhgnn
from jhgnn.data import load, load_graph, save_graph
from jhgnn.data.describe import describe
from jhgnn.data.tables import from_tables
from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation
from jhgnn.inference.trained_on import TrainedOn
from tests.data.tables import shop
from tests.test_fit import small

BUYS = Relation("customer", "buys", "product")
ORDERS: shop.Columns = {
    **shop.ORDERS,
    "channel": ["web", "shop", "web", None, "phone"],
    "rating": [1.0, None, 3.0, 2.0, 2.0],
    "paid_1": [1, 2, 3, 4, 5],
    "paid_2": [0.5, 0.5, 0.5, 0.5, 0.25],
}
FEATURES = {
    "channel": "category",
    "rating": {"kind": "number", "scale": "none", "missing": "flag"},
    "paid": {"kind": "vector", "columns": ["paid_*"]},
}
SCHEMA = shop.schema(edges__buys__features=FEATURES)
TABLES = {**shop.TABLES, str(BUYS): ORDERS}
EXPECTED = {  # sender, receiver, time of day where there are two: phone, shop, web, rating, missing, paid
    (0, 0): [[0, 0, 0, 2, 0, 4, 0.5]],
    (0, 1): [[0, 0, 1, 1, 0, 1, 0.5], [1, 0, 0, 2, 0, 5, 0.25]],
    (4, 1): [[0, 0, 1, 3, 0, 3, 0.5]],
    (1, 2): [[0, 1, 0, 2, 1, 2, 0.5]],
}


def check(graph: jhgnn.HeteroGraph) -> None:
    edges = graph.edges[BUYS]
    found: dict[tuple[int, int], list[list[float]]] = {}
    for sender, receiver, row in zip(edges.senders, edges.receivers, edges.features, strict=True):
        found.setdefault((int(sender), int(receiver)), []).append(row.tolist())
    assert found == EXPECTED
    assert edges.features.dtype == np.float32
    labels = [label for column in graph.edge_columns[str(BUYS)] for label in column.labels]
    named = ["channel=phone", "channel=shop", "channel=web", "rating", "rating missing", "paid[0]", "paid[1]"]
    assert labels == named
    assert list(graph.edge_columns) == [str(BUYS)]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_and_a_saved_graph(tmp_path, ending):
    folder = shop.write(tmp_path / "shop", ending, SCHEMA, TABLES)
    graph = load("tables", folder)
    check(graph)
    check(load_graph(save_graph(graph, tmp_path / "saved")))
    assert "customer:buys:product channel" in str([*describe(graph)])


def test_tables_in_memory_and_rows_that_are_dropped():
    check(from_tables(SCHEMA, TABLES))
    schema = shop.schema(edges__buys__features=FEATURES, edges__buys__dangling="drop")
    more = {name: [values[3], *values] for name, values in ORDERS.items()} | {"customer": ["c9", *ORDERS["customer"]]}
    check(from_tables(schema, {**TABLES, str(BUYS): more}))


def test_another_graph_is_encoded_as_the_first(tmp_path, caplog):
    first = from_tables(SCHEMA, TABLES)
    other = {**ORDERS, "channel": ["web", "fax", None, None, None]}
    graph = from_tables(SCHEMA, {**TABLES, str(BUYS): other}, like=first)
    assert graph.edge_columns == first.edge_columns
    (row,) = (i for i, edge in enumerate(graph.edges[BUYS].times) if edge == first.edges[BUYS].times[1])
    assert graph.edges[BUYS].features[row, :3].tolist() == [0, 0, 1]
    assert "in no category that was found before, such as fax" in caplog.text
    trained = TrainedOn.of(first.with_reverse_relations(), one_hot=False)
    trained.write(tmp_path)
    again = TrainedOn.read(tmp_path)
    assert again.edge_widths == {str(BUYS): 7, "product:rev_buys:customer": 7}
    assert again.edge_columns == first.edge_columns
    like_run = from_tables(SCHEMA, {**TABLES, str(BUYS): other}, like=again)
    np.testing.assert_array_equal(like_run.edges[BUYS].features, graph.edges[BUYS].features)
    with pytest.raises(InputError, match=r"the features of 'customer:buys:product' are channel \(number\), rating"):
        from_tables(shop.schema(edges__buys__features=FEATURES | {"channel": "number"}), TABLES, like=first)


def test_a_table_without_rows_has_none():
    none = {**TABLES, str(BUYS): {name: [] for name in ORDERS}}
    assert from_tables(SCHEMA, none).edges[BUYS].features is None
    like = from_tables(SCHEMA, none, like=from_tables(SCHEMA, TABLES))
    assert like.edges[BUYS].features.shape == (0, 7)


@pytest.mark.usefixtures("compile_cache")
def test_a_run_reads_them_and_refuses_other_categories():
    graph = from_tables(SCHEMA, TABLES)
    run = small(graph, model="rgcn", edge_features=True, reverse_relations=True)
    projections = run.params["layers"][0]["edge_projection"]["w_io"]
    assert {name: own.shape[0] for name, own in projections.items()} == {"product:rev_buys:customer": 7}
    same = from_tables(SCHEMA, TABLES, like=run.trained_on)
    np.testing.assert_allclose(run.predict(same), run.predict(), atol=1e-6)
    columns = graph.edge_columns[str(BUYS)]
    fitted = dict(columns[0].fitted) | {"categories": ["phone", "stall", "web"]}
    changed = {str(BUYS): (dataclasses.replace(columns[0], fitted=fitted), *columns[1:])}
    with pytest.raises(InputError, match=r"feature 'channel' of the edges of 'customer:buys:product' became numbers"):
        run.predict(dataclasses.replace(graph, edge_columns=changed))
