"""Schema: metapaths in every notation, and what it refuses."""

import pytest

from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation, Schema

BY, OF, IN, HAS = (
    Relation("paper", "by", "author"), Relation("author", "of", "paper"),
    Relation("paper", "in", "venue"), Relation("venue", "has", "paper"),
)  # fmt: skip
CITES = Relation("paper", "cites", "paper")
SCHEMA = Schema(("paper", "author", "venue"), (BY, OF, IN, HAS))


@pytest.mark.parametrize(
    "text",
    ["PAP", "paper,author,paper", "paper, author, paper", ["paper", "author", "paper"], ["by", "of"],
     "paper:by:author,author:of:paper", ["paper:by:author", "of"]],
)  # fmt: skip
def test_one_metapath_in_every_notation(text):
    metapath = SCHEMA.metapath(text)
    assert metapath.relations == (BY, OF)
    assert (metapath.name, metapath.source, metapath.target) == ("PAP", "paper", "paper")
    assert metapath.node_types == ("paper", "author", "paper")


def test_one_relation_is_a_metapath():
    assert SCHEMA.metapath("by").name == "PA"


def test_two_relations_between_two_types_must_be_named():
    schema = Schema(("paper", "author"), (BY, Relation("paper", "edited_by", "author"), OF))
    with pytest.raises(InputError, match=r"ambiguous from 'paper' to 'author'.*paper:edited_by:author"):
        schema.metapath("PAP")
    assert schema.metapath(["edited_by", "of"]).name == "paper-edited_by-author-of-paper"


def test_types_that_share_an_initial_have_no_initials():
    schema = Schema(("author", "actor"), (Relation("author", "is", "actor"),))
    assert schema.initials is None
    assert schema.metapath("author,actor").name == "author-actor"
    with pytest.raises(InputError, match="'AA' is neither"):
        schema.metapath("AA")


def test_a_relation_within_one_type():
    schema = Schema(("paper",), (CITES,))
    assert schema.metapath("PPP").relations == (CITES, CITES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PVA", "no relation from 'venue' to 'author'"),
        ("PXP", "'PXP' is neither a node type"),
        ("paper", "one node type; it needs at least two"),
        (["by", "in"], "'paper:by:author' ends at 'author' but 'paper:in:venue' starts at 'paper'"),
        (["by", "off"], "'off' is neither"),
    ],
)
def test_metapaths_that_are_none(text, message):
    with pytest.raises(InputError, match=message) as caught:
        SCHEMA.metapath(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("types", "relations", "message"),
    [
        (("a b",), (), "name 'a b'"),
        (("a/b",), (), "name 'a/b'"),
        (("",), (), "name ''"),
        (("a", "a"), (), "'a' is given twice"),
        (("a",), (Relation("a", "r", "a"),) * 2, "'a:r:a' is given twice"),
        (("a",), (Relation("a", "r", "b"),), "unknown node type 'b'; known: a"),
    ],
)
def test_schemas_that_are_none(types, relations, message):
    with pytest.raises(InputError, match=message):
        Schema(types, relations)


def test_reversed_undoes_itself():
    assert BY.reversed() == Relation("author", "rev_by", "paper")
    assert BY.reversed().reversed() == BY
