"""Where heterographs come from: readers of public layouts, synthetic generators, storage.

Its names are imported when they are first used, so that a command can say in a line that the memory for its libraries
is not there.
"""

from typing import TYPE_CHECKING

from jhgnn._lazy import lazily

if TYPE_CHECKING:
    from jhgnn.data.formats import FORMATS, load
    from jhgnn.data.storage import load_graph, save_graph
    from jhgnn.data.tables import from_tables

__all__ = ["FORMATS", "from_tables", "load", "load_graph", "save_graph"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "FORMATS": "jhgnn.data.formats",
        "from_tables": "jhgnn.data.tables",
        "load": "jhgnn.data.formats",
        "load_graph": "jhgnn.data.storage",
        "save_graph": "jhgnn.data.storage",
    },
)
