"""Which relations and node types each layer must compute so that the target types are known after the last one."""

import dataclasses
from collections.abc import Collection, Mapping

from jhgnn.graph.schema import Relation


@dataclasses.dataclass(frozen=True)
class LayerPlan:
    """One layer: the relations it aggregates (semantic graph name -> relation), the node types it reads and makes."""

    relations: Mapping[str, Relation]
    reads: tuple[str, ...]
    makes: tuple[str, ...]

    def out_of(self, node_type: str) -> list[str]:
        """Names of the relations that this type sends along."""
        return [name for name, relation in self.relations.items() if relation.source == node_type]

    def into(self, node_type: str) -> list[str]:
        """Names of the relations that this type receives along."""
        return [name for name, relation in self.relations.items() if relation.target == node_type]


def plan_layers(
    relations: Mapping[str, Relation], targets: Collection[str], num_layers: int, reads_targets: bool
) -> tuple[LayerPlan, ...]:
    """Plans backwards from the targets: what no later layer reads is not computed and has no weights.

    Args:
        relations: semantic graph name -> relation.
        targets: the node types that the last layer makes.
        num_layers: at least one.
        reads_targets: whether a layer reads the rows of its receivers too (for a self-loop, a residual or attention).
    """
    plans: list[LayerPlan] = []
    makes = set(targets)
    for _ in range(num_layers):
        used = {name: relation for name, relation in relations.items() if relation.target in makes}
        reads = {relation.source for relation in used.values()} | (makes if reads_targets else set())
        plans.append(LayerPlan(used, tuple(sorted(reads)), tuple(sorted(makes))))
        makes = reads
    return tuple(reversed(plans))
