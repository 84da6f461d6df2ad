"""Meta-partitioning: which shard computes which branches of the tree of relations that a batch is sampled along."""
