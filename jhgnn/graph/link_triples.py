"""LinkTriples: edges to predict, by split."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation

_SPLITS = ("train", "val", "test")


class Edges(Protocol):
    """What of an `EdgeSet` is read here."""

    @property
    def senders(self) -> np.ndarray: ...

    @property
    def receivers(self) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True, eq=False)
class LinkTriples:
    """Links (head, relation, tail) of each split; the head is the relation's source.

    Attributes:
        relations: those that links belong to.
        triples: `train`, `val`, `test` -> int32 `[num_links, 3]`: head, position in `relations`, tail.
    """

    relations: tuple[Relation, ...]
    triples: Mapping[str, np.ndarray]

    def of_relations(self, chosen: Sequence[Relation]) -> "LinkTriples":
        """The links of some of the relations, which are numbered as they are chosen."""
        number = np.full(len(self.relations), -1, np.int32)
        number[[self.relations.index(relation) for relation in chosen]] = np.arange(len(chosen))
        triples = {}
        for name, rows in self.triples.items():
            own = rows[number[rows[:, 1]] >= 0].copy()
            own[:, 1] = number[own[:, 1]]
            triples[name] = own
        return LinkTriples(tuple(chosen), triples)

    def check(self, num_nodes: Mapping[str, int], edges: Mapping[Relation, Edges], where: str = "") -> None:
        """Raises InputError unless every link is an edge of its relation; `where` starts the message."""
        prefix = f"{where}: " if where else ""
        for relation in self.relations:
            if relation not in edges:
                raise InputError(f"{prefix}links of {str(relation)!r}, which is no relation of the graph")
        for split, triples in self.triples.items():
            if split not in _SPLITS:
                raise InputError(f"{prefix}split {split!r} of links is unknown; need {', '.join(_SPLITS)}")
            if triples.dtype != np.int32 or triples.ndim != 2 or triples.shape[1] != 3:
                raise InputError(
                    f"{prefix}{split} links are {triples.dtype} {triples.shape}; need int32 [num_links, 3]"
                )
            if len(triples) and not 0 <= triples[:, 1].min() <= triples[:, 1].max() < len(self.relations):
                raise InputError(f"{prefix}{split} links name a relation outside 0 to {len(self.relations) - 1}")
            for number, relation in enumerate(self.relations):
                own = triples[triples[:, 1] == number].astype(np.int64)
                if not len(own):
                    continue
                packed = edges[relation].receivers.astype(np.int64) << 32 | edges[relation].senders
                known = np.isin(own[:, 2] << 32 | own[:, 0], packed)
                if not known.all():
                    head, _, tail = own[int(np.argmin(known))].tolist()
                    raise InputError(
                        f"{prefix}{split} link {head} -> {tail} of {str(relation)!r} is no edge of the graph"
                    )
