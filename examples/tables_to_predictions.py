"""From tables to predictions: files of customers, products and orders become a graph, and a customer gets a segment."""

# %% Tables
# Here they are drawn at random and written to a temporary folder, in place of your own. Parquet files need pyarrow
# (`python -m pip install 'jhgnn[tables]'`); without it the products are a CSV file, too.
import csv
import importlib.util
import random
import tempfile
from pathlib import Path

import jhgnn

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
draw = random.Random(0)
segments = ["books", "garden", "sports"]
products = [{"sku": 1000 + number, "segment": draw.choice(segments)} for number in range(90)]
customers = [{"id": f"c{number}", "segment": draw.choice(segments)} for number in range(400)]


def write_csv(name, header, rows):
    with open(folder / name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return name


def known(customer):
    """The segment of two customers in three; of the others it is to be predicted, and the column is empty."""
    return customer["segment"] if draw.random() < 0.67 else ""


def bought(customer):
    """A product, most often of the customer's own segment."""
    return draw.choice([one for one in products if one["segment"] == customer["segment"] or draw.random() < 0.2])


ages = [draw.choice([draw.randint(18, 80), ""]) for _ in customers]  # some have not said
countries = [draw.choice(["DE", "FR", "PL"]) for _ in customers]
described = [
    [one["id"], age, country, known(one)] for one, age, country in zip(customers, ages, countries, strict=True)
]
write_csv("customers.csv", ["id", "age", "country", "segment"], described)
buyers = [draw.choice(customers) for _ in range(3000)]
write_csv("orders.csv", ["customer", "product"], [[buyer["id"], bought(buyer)["sku"]] for buyer in buyers])
titles = [f"{one['segment']} {draw.choice(['new', 'large', 'red'])} article" for one in products]
if importlib.util.find_spec("pyarrow"):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"sku": [one["sku"] for one in products], "title": titles})
    pyarrow.parquet.write_table(table, folder / "products.parquet")
    product_file = "products.parquet"
else:
    skus = [one["sku"] for one in products]
    product_file = write_csv("products.csv", ["sku", "title"], zip(skus, titles, strict=True))
print(f"products are in {product_file}")

# %% A schema
# It says which file holds what and what its columns mean. The age of some customers is missing, which gets a column
# of its own. Edges name the keys of both their ends.
(folder / "tables.toml").write_text(f"""
name = "shop"

[nodes.customer]
files = "customers.csv"
key = "id"
features = {{ age = {{ kind = "number", missing = "flag" }}, country = "category" }}

[nodes.product]
files = "{product_file}"
key = "sku"
features = {{ title = {{ kind = "text", width = 64 }} }}

[edges."customer:buys:product"]
files = "orders.csv"
source = "customer"
target = "product"

[labels]
type = "customer"
column = "segment"

[splits]
shares = {{ train = 0.6, val = 0.2, test = 0.2 }}
""")

# %% A graph
# `jhgnn.from_tables` takes pandas frames and Arrow tables as well.
graph = jhgnn.from_tables(folder / "tables.toml")
print(f"{graph.num_nodes['customer']} customers, {graph.num_nodes['product']} products, {graph.num_edges} orders")

# %% Training
# With reverse relations, what a product is reaches its customers.
run = jhgnn.fit(
    graph, model="rgcn", hidden=32, layers=2, epochs=60, learning_rate=0.01, reverse_relations=True, progress=False
)
print(f"test micro-F1 {run.scores['test_micro_f1']:.3f}")

# %% Predictions by key
# Rows of predictions are in the order of the table; `node_ids` finds the row of a key.
probabilities = run.predict()
for key, row in zip(["c7", "c12"], graph.node_ids("customer", ["c7", "c12"]), strict=True):
    best = probabilities[row].argmax()
    print(f"customer {key}: {graph.class_names[best]} ({probabilities[row, best]:.0%})")
unknown = [row for row in range(len(customers)) if graph.labels[row] < 0]
right = sum(graph.class_names[probabilities[row].argmax()] == customers[row]["segment"] for row in unknown)
print(f"right for {right} of the {len(unknown)} customers whose segment was not in the table")
temporary.cleanup()
