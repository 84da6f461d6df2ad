"""Metapaths for a graph that comes without any, derived from its schema."""

from jhgnn.errors import InputError
from jhgnn.graph.schema import Metapath, Relation, Schema

_MOST = 16
"""Length-4 metapaths are left out where there would be more than this with them: each costs a semantic graph."""


def default_metapaths(schema: Schema, target: str) -> tuple[Metapath, ...]:
    """Symmetric metapaths of a target type, shortest first.

    1. every relation from the target type to itself;
    2. there and back over each neighbouring type: PAP, PSP of ACM; MDM, MAM of IMDB; APA of DBLP;
    3. through a neighbouring type to each of its neighbours that the target does not touch itself, and back: APTPA and
       APVPA of DBLP; left out where there would be over 16 in all.

    Relations that point there and back are paired by name (`writes` with `rev_writes`), or as the only two between
    their types.

    Raises:
        InputError: the type is unknown, or nothing leads from it back to itself.
    """
    if target not in schema.node_types:
        raise InputError(f"target {target!r} is not a node type; known: {', '.join(schema.node_types)}")
    paths: list[tuple[Relation, ...]] = [(relation,) for relation in schema.relations_between(target, target)]
    neighbors = [
        node_type for node_type in schema.node_types if node_type != target and _pairs(schema, target, node_type)
    ]
    paths += [pair for node_type in neighbors for pair in _pairs(schema, target, node_type)]
    longer = [
        (out, further, nearer, back)
        for node_type in neighbors
        for out, back in _pairs(schema, target, node_type)
        for beyond in schema.node_types
        if beyond not in (target, node_type, *neighbors)
        for further, nearer in _pairs(schema, node_type, beyond)
    ]
    if len(paths) + len(longer) <= _MOST:
        paths += longer
    if not paths:
        raise InputError(
            f"no metapath leads from {target!r} back to itself: give model.metapaths, or set data.reverse_relations"
            " so that each neighbouring type can be left again"
        )
    return tuple(schema.metapath([str(relation) for relation in path]) for path in paths)


def _pairs(schema: Schema, here: str, there: str) -> list[tuple[Relation, Relation]]:
    """(out, back) relations between two different types."""
    out, back = schema.relations_between(here, there), schema.relations_between(there, here)
    if len(out) == len(back) == 1:
        return [(out[0], back[0])]
    return [(relation, relation.reversed()) for relation in out if relation.reversed() in back]
