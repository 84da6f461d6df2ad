"""What the study measures: a recipe each, on its own data where that is here, else on its synthetic graph."""

from typing import Any, NamedTuple

from bench.comparison.cases import DATASETS, is_real
from bench.record import DATA_ROOT, ROOT
from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe, override

MAG_SCALE = 0.1
"""Of ogbn-mag's size: with segment sums, a whole batch of all of it is over this machine's memory. Temporaries of a
whole batch grow with the graph; those of mini-batches do not.
"""

HAN_SCALE = 0.01
"""Of a whole batch of HAN: paper-field_of_study-paper has 18 million edges there, and up to 775 million at 0.1. With
segment sums a step of 54 million, at 0.02, takes minutes.
"""


class StudyCase(NamedTuple):
    """One recipe, and the name of its result."""

    name: str
    config: Config


def all_cases() -> tuple[StudyCase, ...]:
    """Small graphs first."""
    found = []
    for dataset in ("acm", "imdb", "dblp", "aifb"):
        for model in ("rgcn", "rgat", "han"):
            own: dict[str, Any] = {}
            if is_real(dataset):
                layout, folder = DATASETS[dataset]
                own = {"data": {"format": layout, "path": str(DATA_ROOT / folder)}}
            found.append(_case(f"{model}_{dataset}", f"{model}_{dataset}", own))
    scale = {"data": {"scale": MAG_SCALE}}
    found += [_case(f"{model}_mag", f"{model}_mag", scale) for model in ("rgcn", "rgat", "han")]
    whole = scale | {"sampling": {"batch_size": 0}}
    found += [_case(f"{model}_mag_whole", f"{model}_mag", whole) for model in ("rgcn", "rgat")]
    found.append(_case("han_mag_whole", "han_mag", whole | {"data": {"scale": HAN_SCALE}}))
    return tuple(found)


def _case(name: str, recipe: str, tables: dict[str, Any]) -> StudyCase:
    return StudyCase(name, override(load_recipe(ROOT / "configs" / f"{recipe}.toml"), tables, "bench.recompute"))
