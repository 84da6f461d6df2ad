"""Node types, relations, and metapaths as sequences of joined relations. No arrays here."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

from jhgnn.errors import InputError

# Names become file names, named scopes (split at "/") and recipe strings (split at "," and ":").
_NAME = re.compile(r"[^\s/:,\\]+")


@dataclasses.dataclass(frozen=True, order=True)
class Relation:
    """A typed, directed edge set: `source` --`name`--> `target`. Written `source:name:target` in recipes."""

    source: str
    name: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}:{self.name}:{self.target}"

    def reversed(self) -> "Relation":
        """The relation that holds every edge backwards, `target:rev_name:source`; undoes itself."""
        name = self.name[4:] if self.name.startswith("rev_") else f"rev_{self.name}"
        return Relation(self.target, name, self.source)


@dataclasses.dataclass(frozen=True)
class Metapath:
    """A sequence of relations, each starting where the one before ends; edges point from first source to last target.

    `relations[0].source` holds the senders and `relations[-1].target` the receivers.
    """

    name: str
    relations: tuple[Relation, ...]

    @property
    def source(self) -> str:
        return self.relations[0].source

    @property
    def target(self) -> str:
        return self.relations[-1].target

    @property
    def node_types(self) -> tuple[str, ...]:
        return (self.source, *(relation.target for relation in self.relations))


@dataclasses.dataclass(frozen=True)
class Schema:
    """Which node types and relations a heterograph has, in a fixed order.

    Raises:
        InputError: a name is empty or holds white space or one of `/ : , \\`; a type or relation is given twice; a
            relation ends at an unknown type.
    """

    node_types: tuple[str, ...]
    relations: tuple[Relation, ...]

    def __post_init__(self) -> None:
        for name in (*self.node_types, *(relation.name for relation in self.relations)):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InputError(f"name {name!r} must be a non-empty string without white space or any of / : , \\")
        for what, items in (("node type", self.node_types), ("relation", self.relations)):
            seen = set()
            for item in items:
                if item in seen:
                    raise InputError(f"{what} {str(item)!r} is given twice")
                seen.add(item)
        for relation in self.relations:
            for node_type in (relation.source, relation.target):
                if node_type not in self.node_types:
                    raise InputError(
                        f"relation {str(relation)!r} ends at the unknown node type {node_type!r};"
                        f" known: {', '.join(self.node_types)}"
                    )

    @property
    def initials(self) -> dict[str, str] | None:
        """Upper-case first letter -> node type, or None where two types share one."""
        initials = {node_type[0].upper(): node_type for node_type in self.node_types}
        return initials if len(initials) == len(self.node_types) else None

    def relations_between(self, source: str, target: str) -> list[Relation]:
        return [relation for relation in self.relations if (relation.source, relation.target) == (source, target)]

    def metapath(self, text: str | Sequence[str]) -> Metapath:
        """Reads a metapath: `"PAP"` (initials), `"paper,author,paper"` (types) or a list of either types or relations.

        Relations are written `source:name:target`, or by `name` alone where it is unique. Between two types that
        several relations join, the relation must be named.

        Raises:
            InputError: an unknown type or relation, types that no relation joins, or an ambiguous step.
        """
        shown = text if isinstance(text, str) else ",".join(text)
        steps = [step.strip() for step in (text.split(",") if isinstance(text, str) else text)]
        if len(steps) == 1 and steps[0] not in self.node_types and (letters := self._types_of_initials(steps[0])):
            steps = letters
        if steps and all(step in self.node_types for step in steps):
            relations = self._relations_along(steps, shown)
        else:
            relations = [self._relation_named(step, shown) for step in steps]
        for first, second in itertools.pairwise(relations):
            if first.target != second.source:
                raise InputError(
                    f"metapath {shown!r} does not join: {str(first)!r} ends at {first.target!r}"
                    f" but {str(second)!r} starts at {second.source!r}"
                )
        return Metapath(self._metapath_name(relations), tuple(relations))

    def _types_of_initials(self, word: str) -> list[str] | None:
        initials = self.initials
        if initials is None or len(word) < 2 or any(letter not in initials for letter in word):
            return None
        return [initials[letter] for letter in word]

    def _relations_along(self, node_types: Sequence[str], shown: str) -> list[Relation]:
        if len(node_types) < 2:
            raise InputError(f"metapath {shown!r} has one node type; it needs at least two")
        relations = []
        for source, target in itertools.pairwise(node_types):
            between = self.relations_between(source, target)
            if not between:
                raise InputError(
                    f"metapath {shown!r} does not join: no relation from {source!r} to {target!r};"
                    f" known: {_listed(self.relations)}"
                )
            if len(between) > 1:
                raise InputError(
                    f"metapath {shown!r} is ambiguous from {source!r} to {target!r}:"
                    f" name the relations instead, one of {_listed(between)}"
                )
            relations.append(between[0])
        return relations

    def _relation_named(self, step: str, shown: str) -> Relation:
        found = [relation for relation in self.relations if step in (str(relation), relation.name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"metapath {shown!r}: relation {step!r} is ambiguous; write one of {_listed(found)}")
        types = ", ".join(self.node_types)
        raise InputError(
            f"metapath {shown!r}: {step!r} is neither a node type ({types}) nor a relation ({_listed(self.relations)})"
        )

    def _metapath_name(self, relations: Sequence[Relation]) -> str:
        node_types = [relations[0].source, *(relation.target for relation in relations)]
        only_choice = all(len(self.relations_between(relation.source, relation.target)) == 1 for relation in relations)
        if not only_choice:
            return "-".join([node_types[0], *(f"{relation.name}-{relation.target}" for relation in relations)])
        if self.initials is not None:
            return "".join(node_type[0].upper() for node_type in node_types)
        return "-".join(node_types)


def _listed(relations: Iterable[Relation], most: int = 8) -> str:
    names = [str(relation) for relation in relations]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
