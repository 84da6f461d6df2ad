"""A node's neighbourhood as SVG: the node in the middle, hops as rings, the edges that matter most."""

import html
import math
from collections.abc import Callable

import numpy as np

from jhgnn.explaining.explanation import EdgeScores, highest
from jhgnn.explaining.neighbourhood import Neighbourhood

MOST_EDGES = 40
SIZE = 720
COLOURS = ("--fp", "--na", "--sf", "--lc", "--pu", "--host", "--idle")


def picture(field: Neighbourhood, scores: EdgeScores, key: Callable[[str, int], str], title: str) -> str:
    """The SVG of the `MOST_EDGES` edges whose gradients times inputs are largest, of either sign.

    An edge is as wide and dark as its gradient is large; one that speaks against the class is dashed. A node's colour
    is its type, an edge's its relation.

    Args:
        field: the receptive field.
        scores: of its edges.
        key: a node's key by its type and number.
        title: read by those who do not see it.
    """
    chosen = [int(edge) for edge in highest(np.abs(scores.gradients), MOST_EDGES)]
    relations = {name: relation for plan in field.plans for name, relation in plan.relations.items()}
    ends: dict[int, tuple[tuple[str, int], tuple[str, int]]] = {}
    for edge in chosen:
        relation = relations[field.edges.names[field.edges.relations[edge]]]
        ends[edge] = (
            (relation.source, int(field.edges.senders[edge])),
            (relation.target, int(field.edges.receivers[edge])),
        )
    hop_of = _hops(field)
    rings: dict[int, list[tuple[str, int]]] = {0: [(field.target, field.node)]}
    for node in sorted({node for pair in ends.values() for node in pair} - {(field.target, field.node)}):
        rings.setdefault(hop_of[node], []).append(node)
    places = _places(rings)
    types = list(dict.fromkeys(name for hop in field.rows for name in hop))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(types)}
    lines = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(field.edges.names)}
    largest = float(np.abs(scores.gradients).max(initial=0.0)) or 1.0
    body = []
    for edge in reversed(chosen):
        own, name = float(scores.gradients[edge]), field.edges.names[field.edges.relations[edge]]
        share = abs(own) / largest
        tip = html.escape(f"{name}: {key(*ends[edge][0])} to {key(*ends[edge][1])}, {own:+.4f}")
        start, end = (places[node] for node in ends[edge])
        body.append(_edge(start, end, lines[name], share, own < 0, tip))
    for node, (x, y) in places.items():
        shown = html.escape(key(*node))
        radius = 13 if node == (field.target, field.node) else 7
        body.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="var({colours[node[0]]})" stroke="var(--paper)">'
            f"<title>{html.escape(node[0])} {shown}</title></circle>"
            f'<text class="small" x="{x:.1f}" y="{y - radius - 3:.1f}" text-anchor="middle">{shown}</text>'
        )
    height = SIZE + 22 * (len(types) + len(lines)) + 16
    for number, (name, colour, kind) in enumerate(
        [(name, colours[name], "node") for name in types] + [(name, lines[name], "edge") for name in lines]
    ):
        y = SIZE + 22 * number + 14
        mark = (
            f'<circle cx="20" cy="{y}" r="6" fill="var({colour})"/>'
            if kind == "node"
            else f'<line x1="10" y1="{y}" x2="30" y2="{y}" stroke="var({colour})" stroke-width="4"/>'
        )
        body.append(f'{mark}<text class="small" x="40" y="{y + 4}">{html.escape(name)}</text>')
    label = html.escape(title, quote=True)
    return f'<svg viewBox="0 0 {SIZE} {height}" role="img" aria-label="{label}">{"".join(body)}</svg>'


def _hops(field: Neighbourhood) -> dict[tuple[str, int], int]:
    """The hop at which each node is first met."""
    found: dict[tuple[str, int], int] = {}
    for hop, rows in enumerate(field.rows):
        for name, ids in rows.items():
            for node in ids[ids >= 0].tolist():
                found.setdefault((name, node), hop)
    return found


def _places(rings: dict[int, list[tuple[str, int]]]) -> dict[tuple[str, int], tuple[float, float]]:
    """Each node's place, `(x, y)`; a ring's nodes stand by type and number."""
    middle, room, furthest = SIZE / 2, SIZE / 2 - 40, max(rings)
    found = {}
    for hop, nodes in rings.items():
        for number, node in enumerate(nodes):
            angle = 2 * math.pi * (number + 0.5 * (hop % 2)) / len(nodes) - math.pi / 2
            radius = room * hop / max(1, furthest)
            found[node] = (middle + radius * math.cos(angle), middle + radius * math.sin(angle))
    return found


def _edge(
    start: tuple[float, float], end: tuple[float, float], colour: str, share: float, against: bool, tip: str
) -> str:
    dashes = ' stroke-dasharray="6 4"' if against else ""
    style = f'stroke="var({colour})" stroke-width="{1 + 6 * share:.2f}" stroke-opacity="{0.25 + 0.75 * share:.2f}"'
    if start == end:
        return (
            f'<circle cx="{start[0]:.1f}" cy="{start[1] + 22:.1f}" r="14" fill="none" {style}{dashes}>'
            f"<title>{tip}</title></circle>"
        )
    # Bent, so that an edge and its reverse lie side by side.
    bend_x = (start[0] + end[0]) / 2 + (end[1] - start[1]) * 0.06
    bend_y = (start[1] + end[1]) / 2 - (end[0] - start[0]) * 0.06
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{bend_x:.1f} {bend_y:.1f} {end[0]:.1f} {end[1]:.1f}"
    return f'<path d="{path}" fill="none" {style}{dashes}><title>{tip}</title></path>'
