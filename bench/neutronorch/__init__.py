"""Hot vertices (`sampling.hot`) against plain sampling: rows, bytes, gradients, convergence and time."""
