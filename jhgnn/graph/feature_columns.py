"""FeatureColumn: the part of a feature matrix that a column of a table became, and how values became numbers."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class FeatureColumn:
    """One feature of a node type; those of a type stand beside each other in its matrix, in their order.

    Attributes:
        name: the feature's.
        kind: `number`, `category`, `categories`, `text` or `vector`.
        width: columns of the matrix.
        fitted: what was found in the data, such as the categories or the mean; plain JSON values. Given this, the
            same value becomes the same numbers in another graph.
    """

    name: str
    kind: str
    width: int
    fitted: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each column of the matrix says: `age`, `country=FR`, `about[17]`."""
        if self.kind in ("category", "categories"):
            names = [f"{self.name}={value}" for value in self.fitted["categories"]]
            names += [f"{self.name} other"] if self.fitted["other"] else []
        else:
            width = self.width - bool(self.fitted.get("missing"))
            names = [self.name] if self.kind == "number" else [f"{self.name}[{number}]" for number in range(width)]
        return (*names, f"{self.name} missing") if self.fitted.get("missing") else tuple(names)
