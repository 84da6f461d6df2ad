"""The same weights in jhgnn and in a peer: outputs, gradients and optimizer steps compared."""
