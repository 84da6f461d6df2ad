"""Contributions of metapaths: chains of relations, one a layer, along which messages reach a node.

The contribution of a chain (r1, ..., rm) through the last m layers is the mixed derivative of the class's log-odds by
the gates of these relations in these layers: the sum over the chain's instances of what their messages add, where the
activation is piecewise linear, and otherwise with the curvature of the activation. Shorter chains hold the longer ones
that lead into them.

Source: Schnake et al., "Higher-Order Explanations of Graph Neural Networks via Relevant Walks", TPAMI 2022, eq. 4.
"""

from typing import NamedTuple

import numpy as np

from jhgnn.explaining.field_program import FieldProgram, Placed
from jhgnn.explaining.neighbourhood import Neighbourhood

LONGEST = 3
WIDEST = 6


class Walk(NamedTuple):
    """A chain of relations or metapaths in the order in which messages pass, and its contribution in nats."""

    relations: tuple[str, ...]
    contribution: float

    @property
    def name(self) -> str:
        """As recipes write a metapath."""
        return ",".join(self.relations)


def walks(program: FieldProgram, field: Neighbourhood, placed: Placed, of: int, gates: np.ndarray) -> list[Walk]:
    """Chains of every length that end at the node, the largest contributions first.

    Of each length the `WIDEST` with the largest contributions are continued, up to `LONGEST` relations or as many as
    there are layers.

    Args:
        program: of the model.
        field: the neighbourhood.
        placed: its arrays.
        of: the class.
        gates: first derivatives, `[layers, relations]`.
    """
    layers = len(field.plans)
    found: list[Walk] = []
    # A chain backwards from the node: (layer, relation) pairs.
    open_chains: list[tuple[tuple[int, int], ...]] = [()]
    for length in range(1, min(layers, LONGEST) + 1):
        layer = layers - length
        plan = field.plans[layer]
        longer: list[tuple[float, tuple[tuple[int, int], ...]]] = []
        for chain in open_chains:
            derivatives = gates if not chain else program.mixed(field, placed, of, chain)
            follows = (
                field.target if not chain else field.plans[layer + 1].relations[program.names[chain[-1][1]]].source
            )
            for name in plan.into(follows):
                relation = program.names.index(name)
                longer.append((float(derivatives[layer, relation]), (*chain, (layer, relation))))
        longer.sort(key=lambda each: -abs(each[0]))
        found += [Walk(tuple(program.names[number] for _, number in reversed(chain)), value) for value, chain in longer]
        open_chains = [chain for value, chain in longer[:WIDEST] if value]
    return sorted(found, key=lambda walk: (-abs(walk.contribution), len(walk.relations)))
