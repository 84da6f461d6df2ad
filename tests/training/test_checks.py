"""Settings that do not fit a model or each other are refused in one line, before any data is read."""

import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.models import find, names
from jhgnn.training.checks import check

LINKS = {"task": {"name": "link_prediction", "relations": ["likes"]}, "model": {"name": "rgcn"}}
REFUSED = {
    "heads do not divide": ({"model": {"hidden": 30, "heads": 8}}, "model.hidden = 30 is not a multiple of"),
    "bases of HAN": ({"model": {"bases": 2}}, "decompose R-GCN's weights, not those of 'han'"),
    "metapaths of R-GCN": ({"model": {"name": "rgcn", "metapaths": ["PAP"]}}, "model.metapaths are HAN's"),
    "walks of R-GCN": ({"model": {"name": "rgcn"}, "sampling": {"batch_size": 4, "walks": 5}}, "walks are HAN's"),
    "walks layer by layer": (
        {"sampling": {"batch_size": 4, "walks": 5, "evaluation": "layerwise"}},
        "which sampling.walks = 5 does without",
    ),
    "kernel": ({"kernels": {"attention": "cuda"}}, "kernels.attention = 'cuda' is not one of"),
    "option of links": ({"task": {"negatives": 5}}, "task.negatives = 5 is for task.name = 'link_prediction'"),
    "links of HAN": (LINKS | {"model": {"name": "han"}}, "links need 'rgcn' or 'rgat'"),
    "links of GCN": (LINKS | {"model": {"name": "gcn"}}, "links need 'rgcn' or 'rgat'"),
    "links against all nodes in batches": (
        LINKS | {"sampling": {"batch_size": 8}},
        "task.negatives = 0 scores against all nodes, whose rows a mini-batch does not have",
    ),
    "no negatives for each link": (
        LINKS | {"task": {"name": "link_prediction", "negatives_of": "link"}},
        "draws task.negatives for each link, which is 0",
    ),
    "no neighbours to sample": (
        LINKS | {"sampling": {"batch_size": 8}, "task": {"name": "link_prediction", "negatives": 4, "encoder": "none"}},
        "task.encoder = 'none' has no neighbours to sample",
    ),
    "edges of R-GAT left out over the whole graph": (
        {"model": {"name": "rgat"}, "task": {"name": "link_prediction", "exclude_targets": True}},
        "task.exclude_targets over the whole graph works with 'rgcn'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_one_line(case):
    tables, message = REFUSED[case]
    config = override(Config(), tables, where="test")
    with pytest.raises(InputError) as caught:
        check(config, find(config.model.name))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_model_is_found_by_name_and_settles_what_is_left_open():
    assert names() == ["gat", "gcn", "han", "rgat", "rgcn"]
    for name in names():
        settled = find(name).settled(override(Config(), {"model": {"name": name}}, where="test").model)
        assert settled.layers == {"han": 1, "gcn": 2, "gat": 2, "rgcn": 3, "rgat": 3}[name]
        assert settled.activation == ("relu" if name in ("gcn", "rgcn") else "elu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hann", "model.name = 'hann' is not one of gat, gcn, han, rgat, rgcn; a model of your own is MODULE:CLASS"),
        ("no_such_module:Model", "cannot import 'no_such_module'"),
        ("jhgnn.models.han:Nothing", "'jhgnn.models.han' has no 'Nothing'"),
        ("jhgnn.config:Config", "'jhgnn.config:Config' is no subclass of jhgnn.Model"),
    ],
)
def test_a_model_that_is_not_there_is_one_line(name, message):
    with pytest.raises(InputError) as caught:
        find(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_of_ones_own_is_found_by_module_and_class():
    from jhgnn.models.rgcn import RGCN

    assert find("jhgnn.models.rgcn:RGCN") is RGCN
