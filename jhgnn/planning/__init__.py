"""Before training: which recomputation policy, and how many micro-batches, fit a budget of memory at the least time."""
