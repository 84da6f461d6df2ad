"""`explanations.html`: one file without network access that shows explanations, a section a node."""

import html
from collections.abc import Sequence

from jhgnn.explaining.explanation import Explanation
from jhgnn.profiling.report import page, table


def explanations_page(explanations: Sequence[Explanation], title: str) -> str:
    """The page of some nodes; `title` is its heading."""
    sections = [f"<h1>{html.escape(title)}</h1>"]
    for each in explanations:
        sections += _sections(each)
    return page(title, sections)


def _sections(own: Explanation) -> list[str]:
    lead = (
        f"{own.probability:.1%} for {own.predicted}; the receptive field has {own.num_nodes:,} nodes and"
        f" {own.num_edges:,} edges"
    )
    found = [
        f"<h2>{html.escape(f'{own.node_type} {own.node}')}</h2>",
        f"<p class=lead>{html.escape(lead)}</p>",
        own.picture,
        "<p class=legend>The widest edges add most to the class's log-odds (gradient times input); dashed ones speak"
        " against it.</p>",
        "<h3>Relations</h3>",
        table(
            ("relation", "edges", "gradient", "probability without", "mean mask", "attention flow"),
            [
                [each.relation, each.num_edges, each.gradient, each.without, each.mask, each.attention]
                for each in own.relations
            ],
        ),
        "<h3>Metapaths</h3>",
        table(("metapath", "contribution"), [[each.metapath, each.contribution] for each in own.metapaths]),
    ]
    if own.semantic_attention:
        rows = [[layer, name, value] for layer, each in own.semantic_attention.items() for name, value in each.items()]
        found += ["<h3>Semantic attention</h3>", table(("layer", "metapath", "weight"), rows)]
    found += [
        "<h3>Edges</h3>",
        table(
            ("relation", "from", "to", "gradient", "mask", "attention flow"),
            [
                [each.relation, each.sender, each.receiver, each.gradient, each.mask, each.attention]
                for each in own.edges
            ],
        ),
        "<h3>Features</h3>",
        table(
            ("type", "feature", "gradient x input", "of the node itself"),
            [[each.node_type, each.feature, each.contribution, each.own] for each in own.features],
        ),
        "<h3>Fidelity</h3>",
        table(
            ("way", "edges", "fidelity+", "fidelity-"),
            [[way, each.num_edges, each.plus, each.minus] for way, each in own.fidelity.items()],
        ),
        "<p class=legend>Fidelity+ is the fall of the probability without these edges, fidelity- with them alone.</p>",
    ]
    return found
