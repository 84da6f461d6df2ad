"""From tables to predictions by key: customers, products and orders become a graph, and customers get a segment.

Two CSV files and one Parquet file are all that there is at the start. At the end there are predictions for known and
for new customers, a page that explains one of them, and a program that runs without this package. It needs pyarrow
and flatbuffers: `python -m pip install 'jhgnn[tables,export]'`.
"""

# %% Tables
# Here they are drawn at random and written to a temporary folder, in place of your own: keys that are strings,
# categories, texts, dates, and columns in which some values are missing.
import csv
import datetime
import random
import tempfile
from pathlib import Path

import jax.export
import jax.numpy as jnp
import pyarrow
import pyarrow.parquet

import jhgnn

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
draw = random.Random(0)
segments = ["books", "garden", "sports"]


def segment_of(customer):
    """What a customer is really like: the model sees it for two customers in three, below."""
    return segments[int(customer[1:]) * 7 % 11 % 3]


def described(customer):
    """A row of the table of customers; some have not said their age, and of some the segment is not known."""
    age = draw.choice([draw.randint(18, 80), ""])
    known = segment_of(customer) if draw.random() < 0.67 else ""
    return [customer, age, draw.choice(["DE", "FR", "PL"]), known]


def ordered(customer, day):
    """A row of the table of orders: most often an article of the customer's own segment."""
    likely = [sku for sku, segment in products.items() if segment == segment_of(customer) or draw.random() < 0.2]
    return [customer, draw.choice(likely), day]


def write_csv(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


products = {f"p{number}": draw.choice(segments) for number in range(90)}
titles = [f"{segment} {draw.choice(['new', 'large', 'red'])} article" for segment in products.values()]
prices = [round(draw.uniform(2, 80), 2) if draw.random() < 0.8 else None for _ in products]
table = pyarrow.table({"sku": list(products), "title": titles, "price": prices})
pyarrow.parquet.write_table(table, folder / "products.parquet")

names = [f"c{number}" for number in range(400)]
customers = [described(name) for name in names]
january = datetime.date(2024, 1, 1)
orders = [ordered(draw.choice(names), january + datetime.timedelta(days=number // 9)) for number in range(3000)]
write_csv(folder / "customers.csv", ["id", "age", "country", "segment"], customers)
write_csv(folder / "orders.csv", ["customer", "product", "date"], orders)
print("tables: " + ", ".join(sorted(path.name for path in folder.iterdir())))

# %% A schema
# It says which file holds what and what its columns mean. An age that is missing gets a column of its own. Edges name
# the keys of both their ends.
schema = folder / "tables.toml"
schema.write_text("""
name = "shop"

[nodes.customer]
files = "customers.csv"
key = "id"
features = { age = { kind = "number", missing = "flag" }, country = "category" }

[nodes.product]
files = "products.parquet"
key = "sku"
features = { title = { kind = "text", width = 64 }, price = "number" }

[edges."customer:buys:product"]
files = "orders.csv"
source = "customer"
target = "product"
time = "date"

[labels]
type = "customer"
column = "segment"

[splits]
shares = { train = 0.6, val = 0.2, test = 0.2 }
""")

# %% A graph
# `jhgnn.from_tables` takes pandas frames and Arrow tables as well.
graph = jhgnn.from_tables(schema)
print(f"{graph.num_nodes['customer']} customers, {graph.num_nodes['product']} products, {graph.num_edges} orders")

# %% Training
# With reverse relations, what a product is reaches its customers.
run = jhgnn.fit(
    graph, model="rgcn", hidden=32, layers=2, epochs=60, learning_rate=0.01, reverse_relations=True, progress=False
)
print(f"test micro-F1 {run.scores['test_micro_f1']:.3f}")

# %% Predictions by key
# The same rows are what `python -m jhgnn.predict` writes as `predictions.csv`.
predictions = {row["node"]: row for row in csv.DictReader(run.prediction_files()["predictions.csv"].splitlines())}
for key in ["c7", "c12"]:
    print(f"customer {key}: {predictions[key]['predicted']} ({float(predictions[key]['probability']):.0%})")
unknown = [name for name in names if not predictions[name]["label"]]
right = sum(predictions[name]["predicted"] == segment_of(name) for name in unknown)
print(f"right for {right} of the {len(unknown)} customers whose segment was not in the table")

# %% New customers
# In February there are forty more. The tables have grown, and their columns become numbers as they did for training.
# Only what the new customers' predictions rest on is computed.
new = [f"c{number}" for number in range(400, 440)]
february = datetime.date(2024, 2, 1)
customers += [[name, *described(name)[1:3], ""] for name in new]
orders += [ordered(name, february) for name in new for _ in range(8)]
write_csv(folder / "customers.csv", ["id", "age", "country", "segment"], customers)
write_csv(folder / "orders.csv", ["customer", "product", "date"], orders)
grown = jhgnn.from_tables(schema, like=run.trained_on)
predictor = run.predictor(grown)
rows = csv.DictReader(predictor.files(predictor.ids(new))["predictions.csv"].splitlines())
right = sum(row["predicted"] == segment_of(row["node"]) for row in rows)
print(f"right for {right} of {len(new)} new customers")

# %% Why
# `explanations.html` shows what a prediction rests on, with a picture of the neighbourhood; `explanations.json` has all
# figures.
(why,) = run.explain(["c405"], graph=grown, folder=folder / "why", steps=50)
page = (folder / "why" / "explanations.html").read_text(encoding="utf-8")
print(f"{why.node} is {why.predicted}, moved most by {why.relations[0].relation}; a page of {len(page):,} characters")

# %% A program to take elsewhere
# It holds the trained model on the tables of training. What runs it is JAX alone, without code of this package.
run.export(folder / "program")
program = jax.export.deserialize(bytearray((folder / "program" / "program.bin").read_bytes()))
weights, inputs = (dict(jnp.load(folder / "program" / f"{name}.npz")) for name in ("weights", "graph"))
again = program.call(weights, inputs)["probabilities"]
print(f"the program gives the same: {bool(jnp.allclose(again, run.predict(), atol=1e-5))}")
temporary.cleanup()
