"""Metatrees, and what is counted at their nodes: the same draws as the samplers of training."""

import numpy as np
import pytest

from jhgnn.distributed.meta.counts import count_tree, reach
from jhgnn.distributed.meta.tree import MOST_NODES, tree_of_metapaths, tree_of_schema
from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation, Schema
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.fan_out import fan_outs
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan
from tests.distributed.graphs import sampled_from

MAG = Schema(
    ("author", "field", "institution", "paper"),
    (
        Relation("author", "at", "institution"),
        Relation("institution", "rev_at", "author"),
        Relation("author", "writes", "paper"),
        Relation("paper", "rev_writes", "author"),
        Relation("paper", "cites", "paper"),
        Relation("paper", "about", "field"),
        Relation("field", "rev_about", "paper"),
    ),
)


def test_a_tree_has_every_relation_into_every_type_met():
    tree = tree_of_schema(MAG, "paper", 2)
    assert [tree.path(child) for child in tree.children(0)] == [
        "self", "author:writes:paper", "paper:cites:paper", "field:rev_about:paper",
    ]  # fmt: skip
    author = tree.children(0)[1]
    assert [tree.path(child) for child in tree.children(author)] == [
        "author:writes:paper / self",
        "author:writes:paper / institution:rev_at:author",
        "author:writes:paper / paper:rev_writes:author",
    ]
    assert len(tree.nodes) == 1 + 4 + 4 + 3 + 4 + 2
    assert tree.subtree(0) == tuple(range(len(tree.nodes)))
    assert all(tree.nodes[node].parent < node for node in range(1, len(tree.nodes)))
    assert len(tree_of_schema(MAG, "paper", 2, self_loops=False).nodes) == 1 + 3 + 2 + 3 + 1
    assert tree.num_hops == 2
    assert tree.target == "paper"


def test_parallel_relations_are_kept_apart():
    """Heta keys its metatree by the two types, and loses one of them."""
    schema = Schema(("post",), (Relation("post", "links", "post"), Relation("post", "answers", "post")))
    tree = tree_of_schema(schema, "post", 2, self_loops=False)
    assert sorted(tree.path(node.number) for node in tree.nodes if node.hop == 2) == [
        f"post:{first}:post / post:{second}:post" for first in ("answers", "links") for second in ("answers", "links")
    ]


def test_metapaths_share_their_beginnings():
    metapaths = [MAG.metapath(path) for path in ("paper,author,paper", "paper,author,institution,author,paper")]
    tree = tree_of_metapaths(metapaths)
    assert [tree.path(node.number) for node in tree.nodes] == [
        "paper",
        "author:writes:paper",
        "author:writes:paper / paper:rev_writes:author",
        "author:writes:paper / institution:rev_at:author",
        "author:writes:paper / institution:rev_at:author / author:at:institution",
        "author:writes:paper / institution:rev_at:author / author:at:institution / paper:rev_writes:author",
    ]
    assert [node.hop for node in tree.nodes] == [0, 1, 2, 2, 3, 4]


def test_trees_that_cannot_be():
    with pytest.raises(InputError, match="target 'venue' is not a node type"):
        tree_of_schema(MAG, "venue", 2)
    with pytest.raises(InputError, match="a metatree got 0 hops"):
        tree_of_schema(MAG, "paper", 0)
    with pytest.raises(InputError, match="no relation leads into the target 'a'; set data"):
        tree_of_schema(Schema(("a", "b"), (Relation("a", "to", "b"),)), "a", 1)
    with pytest.raises(InputError, match=f"over {MOST_NODES} nodes; use fewer layers, or metapaths"):
        tree_of_schema(MAG, "paper", 12)
    with pytest.raises(InputError, match="metapaths of a metatree end at nothing; need one type"):
        tree_of_metapaths([])


@pytest.mark.parametrize("fan_out", [[5, 3], [2, -1], [3, 0]])
def test_leaves_reach_what_the_sampler_reads(fan_out):
    """Every input row of a sampled batch is at a leaf, and the other way round: the tree's draws are training's."""
    graph = sampled_from()
    tree = tree_of_schema(graph.schema, "paper", 2)
    targets = np.array([3, 7, 250, 12, 0, 299, 1], np.int32)
    branches = reach(graph, tree, fan_outs(fan_out, graph.schema, 2), targets, 5, 11)
    plan = fan_out_plan(graph, fan_out, 2)
    sampler = HostSampler(graph, plan)
    blocks, _ = sampler.sample({"paper": targets}, 5, 11, fixed(plan.bound_capacities({"paper": len(targets)})))
    for node_type, ids in blocks.nodes.items():
        at_leaves = [
            branches.vertices[node.number]
            for node in tree.nodes
            if not tree.children(node.number) and node.node_type == node_type
        ]
        assert np.unique(np.concatenate(at_leaves)).tolist() == np.sort(ids[ids >= 0]).tolist()
    first = {node.relation: branches.draws[node.number] for node in tree.nodes if node.hop == 1 and node.relation}
    for relation, count in first.items():
        table = blocks.hops[0].get(str(relation))
        assert count == (0 if table is None else int(table.num_neighbors.sum()))


def test_counts_are_means_over_batches_and_grow_with_the_share():
    graph = sampled_from()
    tree, drawn = tree_of_schema(graph.schema, "paper", 2), fan_outs(4, graph.schema, 2)
    batches = [np.arange(first, first + 40, dtype=np.int32) for first in (0, 100)]
    counts = count_tree(graph, tree, drawn, batches, seed=1, first_step=3)
    for step, batch in enumerate(batches, start=3):
        branches = reach(graph, tree, drawn, batch, 1, step)
        counts.vertices[-1] -= np.array([len(branches.vertices[node]) for node in range(len(tree.nodes))]) / 2
    assert np.allclose(counts.vertices[-1], 0)
    again = count_tree(graph, tree, drawn, batches, seed=1, first_step=3)
    assert (np.diff(again.vertices, axis=0) >= 0).all()
    assert (np.diff(again.draws, axis=0) >= 0).all()
    assert again.rows("paper", 40) == again.input_rows["paper"][-1]
    assert again.rows("paper", 0) == 0


def test_counts_that_cannot_be():
    graph = sampled_from()
    tree, drawn = tree_of_schema(graph.schema, "paper", 2), fan_outs(4, graph.schema, 2)
    with pytest.raises(InputError, match="0 batches and shares"):
        count_tree(graph, tree, drawn, [])
    with pytest.raises(InputError, match=r"1 batches and shares \(0.5,\); need batches, and shares that rise to 1"):
        count_tree(graph, tree, drawn, [np.arange(3, dtype=np.int32)], shares=(0.5,))
    with pytest.raises(InputError, match="fan-outs of 1 hops for a metatree of 2"):
        reach(graph, tree, fan_outs(4, graph.schema, 1), np.arange(3, dtype=np.int32), 0, 0)
