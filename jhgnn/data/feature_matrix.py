"""Whether a feature matrix is kept sparse or dense: by its density, however the file stores it."""

import numpy as np
from scipy import sparse

from jhgnn.graph.hetero_graph import Features

SPARSE_BELOW = 0.2
"""Density under which features stay CSR: bag-of-words inputs are 0.3 to 6 % dense, embeddings nearly 100 %."""


def compact(matrix: np.ndarray | sparse.sparray | sparse.spmatrix) -> Features:
    """CSR where under a fifth of the entries are non-zero, dense otherwise; values and their type unchanged."""
    nonzero = np.count_nonzero(matrix) if isinstance(matrix, np.ndarray) else matrix.count_nonzero()
    if nonzero < SPARSE_BELOW * matrix.shape[0] * matrix.shape[1]:
        csr = sparse.csr_array(matrix)
        csr.eliminate_zeros()
        return csr
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
