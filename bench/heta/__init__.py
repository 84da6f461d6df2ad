"""Relations first, meta-partitions and caches, against training over `data` on cut graphs: `python -m bench.heta`."""
