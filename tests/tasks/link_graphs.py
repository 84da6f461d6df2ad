"""Small graphs and recipes of links for tests: users, items and what they have to do with each other."""

import numpy as np

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.graph.hetero_graph import HeteroGraph


def liked(seed: int = 0, users: int = 24, items: int = 15) -> HeteroGraph:
    """Two pairs of types are linked, one relation is symmetric, there are parallel edges, and items have features."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, users, 40), rng.integers(0, users, 40)
    return HeteroGraph.from_arrays(
        name="liked",
        num_nodes={"user": users, "item": items, "tag": 5},
        edges={
            ("user", "likes", "item"): (rng.integers(0, users, 90), rng.integers(0, items, 90)),
            ("user", "knows", "user"): (np.concatenate([first, second]), np.concatenate([second, first])),
            ("tag", "of", "item"): (rng.integers(0, 5, 30), rng.integers(0, items, 30)),
        },
        features={"item": rng.normal(size=(items, 6)).astype(np.float32)},
    )


def recipe(name: str = "rgcn", **changes) -> Config:
    """Links of users to items and to users, R-GCN or R-GAT without dropout; over the whole graph by default."""
    tables: dict[str, dict] = {
        "data": {"reverse_relations": True},
        "task": {
            "name": "link_prediction", "relations": ["likes", "knows"], "batch_size": 16, "negatives": 5,
            "val_share": 0.1, "test_share": 0.1,
        },
        "model": {"name": name, "hidden": 8, "heads": 2, "layers": 2, "dropout": 0.0},
        "sgb": {"cache_dir": ""},
    }  # fmt: skip
    for section, values in changes.items():
        tables[section] = tables.get(section, {}) | values
    return override(Config(), tables, where="test")


def sampling(fan_out: str = "all", **changes) -> dict:
    """The recipe's section for mini-batches of 16 links."""
    return {"batch_size": 16, "fan_out": fan_out, "prefetch_threads": 0, "threads": 1} | changes
