"""What the PyTorch libraries share: importing on demand, and arrays to and from tensors."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, Features, HeteroGraph


def import_peer(module: str, caller: str, install: str) -> Any:
    """Imports a library that jhgnn does not depend on.

    Raises:
        InputError: it cannot be imported; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # DGL raises FileNotFoundError and OSError where its build does not fit torch
        raise InputError(f"{caller} needs {module}, which cannot be imported ({error}): {install}") from error


def feature_tensor(torch: Any, features: Features, densify: bool) -> Any:
    """A float32 tensor `[num_nodes, width]`: dense, or coalesced sparse COO from CSR unless `densify`."""
    if isinstance(features, np.ndarray):
        return copied_tensor(torch, features)
    if densify:
        return torch.from_numpy(features.toarray())
    coo = features.tocoo()
    indices = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    # Rows and columns ascend already; saying so keeps torch from sorting again.
    return torch.sparse_coo_tensor(
        indices, copied_tensor(torch, coo.data), coo.shape, is_coalesced=True, check_invariants=False
    )


def copied_tensor(torch: Any, array: np.ndarray) -> Any:
    """A tensor of its own memory: tensors are written to in place, a HeteroGraph never."""
    return torch.from_numpy(np.array(array))


def features_from(tensor: Any, sparse_below: float) -> Features:
    """Dense float `[num_nodes, width]`, or CSR where the tensor is sparse or its share of non-zeros is small."""
    tensor = tensor.detach().cpu()
    if str(tensor.layout) != "torch.strided":
        coo = tensor.to_sparse_coo().coalesce()
        rows, columns = coo.indices().numpy()
        return sparse.csr_array((coo.values().float().numpy(), (rows, columns)), shape=tuple(coo.shape))
    dense = np.array((tensor.float() if tensor.is_floating_point() else tensor).numpy())
    if dense.ndim == 2 and dense.size and np.count_nonzero(dense) < sparse_below * dense.size:
        return sparse.csr_array(dense)
    return dense


def label_tensor(torch: Any, graph: HeteroGraph) -> Any:
    """As torch's losses want: class ids int64 `[num_targets]`; multi-label float32 `[num_targets, num_classes]`."""
    assert graph.labels is not None
    return torch.from_numpy(graph.labels.astype(np.float32 if graph.multi_label else np.int64))


def mask_tensors(torch: Any, graph: HeteroGraph) -> dict[str, Any]:
    """`train_mask`, `val_mask`, `test_mask`: bool `[num_targets]`, of the splits that there are."""
    masks = {}
    for split, ids in graph.splits.items():
        mask = np.zeros(graph.num_nodes[graph.target or ""], bool)
        mask[ids] = True
        masks[f"{split}_mask"] = torch.from_numpy(mask)
    return masks


def splits_from(attributes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Boolean masks by split name."""
    names = {split: f"{split}_mask" for split in SPLITS}
    return {split: attributes[key].cpu().numpy().astype(bool) for split, key in names.items() if key in attributes}


def only_target(labelled: list[str], target: str | None, caller: str, key: str) -> str | None:
    """The labelled node type: the one named, or the only one there is."""
    if target is None and len(labelled) > 1:
        raise InputError(f"{caller}: {', '.join(labelled)} all have {key!r}; name one of them as target")
    return target if target is not None else next(iter(labelled), None)
