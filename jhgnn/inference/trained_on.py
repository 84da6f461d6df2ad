"""TrainedOn: what a run remembers of its graph, so that its model can be used on another one without the old data."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation
from jhgnn.graph.texts import Texts
from jhgnn.runtime.files import write_array, write_json
from jhgnn.runtime.storage_cause import OF_STORAGE

FOLDER = "trained_on"
FILE = "graph.json"
VERSION = 1


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedOn:
    """Types, widths, categories and classes of the graph that was trained on, as the model read it.

    `jhgnn.data.from_tables` takes one as `like`.

    Attributes:
        name: the graph's.
        num_nodes: of each type, in the schema's order.
        widths: columns of each type that had features; the others learnt a row a node.
        relations: in the schema's order, with the reverse ones that the recipe asked for.
        target: the labelled type.
        num_classes: of the target's nodes.
        multi_label: whether a node may have several.
        class_names: `[num_classes]`, or none.
        columns: what the columns of features that came from tables mean.
        edge_widths: columns of edge features of each relation that has some, as `source:name:target`.
        edge_columns: what they mean, where they came from tables.
        keys: of types in which a node is known by its own row or column of weights; int64 or strings `[num_nodes]`.
    """

    name: str
    num_nodes: Mapping[str, int]
    widths: Mapping[str, int]
    relations: tuple[Relation, ...]
    target: str
    num_classes: int
    multi_label: bool
    class_names: tuple[str, ...] = ()
    columns: Mapping[str, tuple[FeatureColumn, ...]] = dataclasses.field(default_factory=dict)
    keys: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    edge_widths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    edge_columns: Mapping[str, tuple[FeatureColumn, ...]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, graph: HeteroGraph, *, one_hot: bool) -> "TrainedOn":
        """Of the graph that messages pass over; `one_hot`: types without features had a column of weights a node."""
        assert graph.target is not None
        widths = {name: int(matrix.shape[1]) for name, matrix in graph.features.items()}
        by_node = {
            name
            for name, count in graph.num_nodes.items()
            if name not in widths or (one_hot and widths[name] == count and name not in graph.columns)
        }
        return cls(
            graph.name,
            dict(graph.num_nodes),
            widths,
            graph.schema.relations,
            graph.target,
            graph.num_classes,
            graph.multi_label,
            graph.class_names,
            dict(graph.columns),
            {name: keys for name, keys in graph.keys.items() if name in by_node},
            {
                str(relation): int(edges.features.shape[1])
                for relation, edges in graph.edges.items()
                if edges.features is not None
            },
            dict(graph.edge_columns),
        )

    def write(self, folder: Path) -> None:
        """Into `trained_on/` of a run folder; the JSON file comes last.

        Raises:
            OSError: it cannot be written.
        """
        own = folder / FOLDER
        own.mkdir(exist_ok=True)
        types = [self._entry(own, number, name) for number, name in enumerate(self.num_nodes)]
        content = {
            "version": VERSION,
            "name": self.name,
            "node_types": types,
            "relations": [dataclasses.asdict(relation) for relation in self.relations],
            "target": self.target,
            "num_classes": self.num_classes,
            "multi_label": self.multi_label,
            "class_names": list(self.class_names),
            "edge_widths": dict(self.edge_widths),
            "edge_columns": {
                name: [dataclasses.asdict(column) for column in columns] for name, columns in self.edge_columns.items()
            },
        }
        write_json(own / FILE, content)

    def _entry(self, folder: Path, number: int, name: str) -> dict[str, Any]:
        columns = [dataclasses.asdict(column) for column in self.columns.get(name, ())]
        entry = {"name": name, "num_nodes": self.num_nodes[name], "width": self.widths.get(name), "columns": columns}
        keys = self.keys.get(name)
        if keys is None:
            return entry | {"keys": None}
        if keys.dtype.kind == "i":
            write_array(folder / f"keys{number}.npy", keys)
            return entry | {"keys": "integers"}
        texts = Texts.from_strings(keys.tolist())
        write_array(folder / f"keys{number}.npy", texts.data)
        write_array(folder / f"keys{number}_offsets.npy", np.append(texts.starts, len(texts.data)))
        return entry | {"keys": "strings"}

    @classmethod
    def read(cls, folder: Path) -> "TrainedOn | None":
        """What a run folder remembers; None where it remembers nothing, such as of a run of link prediction.

        Raises:
            InputError: the files are damaged.
            OSError: the disk does not give them.
        """
        file = folder / FOLDER / FILE
        if not file.exists():
            return None
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["version"] != VERSION:
                raise InputError(f"{file} is of version {content['version']}; this release reads version {VERSION}")
            types = content["node_types"]
            return cls(
                content["name"],
                {entry["name"]: int(entry["num_nodes"]) for entry in types},
                {entry["name"]: int(entry["width"]) for entry in types if entry["width"] is not None},
                tuple(Relation(**relation) for relation in content["relations"]),
                content["target"],
                content["num_classes"],
                content["multi_label"],
                tuple(content["class_names"]),
                {
                    entry["name"]: tuple(FeatureColumn(**column) for column in entry["columns"])
                    for entry in types
                    if entry["columns"]
                },
                {
                    entry["name"]: _keys(file.parent, number, entry["keys"])
                    for number, entry in enumerate(types)
                    if entry["keys"]
                },
                {name: int(width) for name, width in content.get("edge_widths", {}).items()},
                {
                    name: tuple(FeatureColumn(**column) for column in columns)
                    for name, columns in content.get("edge_columns", {}).items()
                },
            )
        except InputError:
            raise
        except OSError as error:
            if error.errno in OF_STORAGE:
                raise
            raise InputError(f"{file}: is damaged ({error!r}); train again, or restore the folder") from None
        except (ValueError, KeyError, TypeError, EOFError) as error:
            raise InputError(f"{file}: is damaged ({error!r}); train again, or restore the folder") from None


def _keys(folder: Path, number: int, kind: str) -> np.ndarray:
    data = np.load(folder / f"keys{number}.npy", allow_pickle=False)
    if kind == "integers":
        return np.asarray(data)
    offsets = np.load(folder / f"keys{number}_offsets.npy", allow_pickle=False)
    return Texts(data, offsets[:-1], np.diff(offsets)).strings()
