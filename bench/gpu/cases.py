"""What the lane compiles: every recipe of `configs/`, on its own data where that is here, else on a synthetic graph."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jhgnn.config.recipe import load_recipe, override, to_toml

ROOT = Path(__file__).parents[2]
DATA_ROOT = Path(os.environ.get("JHGNN_DATA_ROOT", ROOT.parent / "shared" / "data"))
DATA = {
    "acm": ("arrays", "acm_gtn"),
    "imdb": ("magnn", "magnn_imdb"),
    "dblp": ("magnn", "magnn_dblp"),
    "aifb": ("rdf", "rdf_aifb"),
    "paper_aifb": ("rdf", "rdf_aifb"),
    "hgb_acm": ("hgb", "hgb_acm"),
    "hgb_dblp": ("hgb", "hgb_dblp"),
    "fb15k237": ("triples", "kg_fb15k237"),
    "lastfm": ("lastfm", "lastfm_magnn"),
}
"""Data set of a recipe's name -> layout and folder below the data's root."""

MAG_SCALE = 0.1
"""Of the synthetic graph of ogbn-mag's size, which takes minutes to make; shapes follow the batch, not the graph."""

COMPARED = {
    "han_dblp": ("bucketed", "segment", "dense"),
    "rgat_dblp": ("bucketed", "segment", "dense"),
    "rgcn_dblp": ("native", "segment", "dense"),
}
"""Recipes that are compiled with other implementations as well, for the page."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One recipe and what is changed in it.

    Attributes:
        recipe: its name in `configs/`.
        variant: how it differs from what `auto` chooses, or nothing.
        tables: the changes, as a recipe's tables.
    """

    recipe: str
    variant: str
    tables: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.variant}" if self.variant else self.recipe

    @property
    def sampled(self) -> bool:
        return "_mag" in self.recipe

    def toml(self) -> str:
        """The whole recipe."""
        return to_toml(override(load_recipe(ROOT / "configs" / f"{self.recipe}.toml"), self.tables, "bench.gpu"))


def all_cases() -> list[Case]:
    """Every recipe; mini-batch ones with sampling on the host and on the device."""
    found = []
    for path in sorted((ROOT / "configs").glob("*.toml")):
        recipe = path.stem
        model, _, dataset = recipe.partition("_")
        if dataset.startswith("mag"):
            for side in ("host", "device"):
                tables = {"data": {"scale": MAG_SCALE}, "sampling": {"side": side}}
                found.append(Case(recipe, f"{side} sampling", tables))
            continue
        own: dict[str, Any] = {}
        if dataset in DATA and (DATA_ROOT / DATA[dataset][1]).is_dir():
            layout, folder = DATA[dataset]
            own = {"data": {"format": layout, "path": str(DATA_ROOT / folder)}}
        found.append(Case(recipe, "", own))
        key = "mean" if model == "rgcn" else "attention"
        for implementation in COMPARED.get(recipe, ()):
            found.append(Case(recipe, implementation, own | {"kernels": kernels_of(key, implementation)}))
    return found


def kernels_of(key: str, implementation: str) -> dict[str, str]:
    """The recipe's table for an implementation of an aggregation; loops over buckets project features as well."""
    return {key: implementation} | ({"projection": implementation} if implementation == "bucketed" else {})
