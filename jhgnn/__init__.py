"""jhgnn: train heterogeneous graph neural networks in JAX, and see where their time and memory go.

The names in `__all__`, here and in `jhgnn.nn`, are the public surface. They are imported when they are first used.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from jhgnn._lazy import lazily

if TYPE_CHECKING:
    from jhgnn.config import Config
    from jhgnn.data import from_tables, load, save_graph
    from jhgnn.errors import InputError
    from jhgnn.fitting import fit
    from jhgnn.graph.hetero_graph import HeteroGraph
    from jhgnn.nn.layer import Layer
    from jhgnn.nn.model import Model
    from jhgnn.nn.relational import RelationalModel
    from jhgnn.run import Run
    from jhgnn.tasks.link_prediction import LinkPrediction
    from jhgnn.tasks.node_classification import NodeClassification
    from jhgnn.tasks.task import Task
    from jhgnn.training.loop import EpochResult

try:
    __version__ = version("jhgnn")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "Config",
    "EpochResult",
    "HeteroGraph",
    "InputError",
    "Layer",
    "LinkPrediction",
    "Model",
    "NodeClassification",
    "RelationalModel",
    "Run",
    "Task",
    "fit",
    "from_tables",
    "load",
    "save_graph",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Config": "jhgnn.config",
        "EpochResult": "jhgnn.training.loop",
        "HeteroGraph": "jhgnn.graph.hetero_graph",
        "InputError": "jhgnn.errors",
        "Layer": "jhgnn.nn.layer",
        "LinkPrediction": "jhgnn.tasks.link_prediction",
        "Model": "jhgnn.nn.model",
        "NodeClassification": "jhgnn.tasks.node_classification",
        "RelationalModel": "jhgnn.nn.relational",
        "Run": "jhgnn.run",
        "Task": "jhgnn.tasks.task",
        "fit": "jhgnn.fitting",
        "from_tables": "jhgnn.data",
        "load": "jhgnn.data",
        "save_graph": "jhgnn.data",
    },
)
