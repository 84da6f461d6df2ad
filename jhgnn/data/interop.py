"""Heterographs to and from jraph, PyTorch Geometric and DGL; each library is imported only when called."""

from jhgnn.data.interop_dgl import from_dgl, to_dgl
from jhgnn.data.interop_jraph import TypedGraphsTuple, from_jraph, to_jraph
from jhgnn.data.interop_pyg import from_pyg, to_pyg

__all__ = ["TypedGraphsTuple", "from_dgl", "from_jraph", "from_pyg", "to_dgl", "to_jraph", "to_pyg"]
