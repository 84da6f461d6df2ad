"""The ops' implementations beside each other and beside the peers' kernels; `python -m bench.ops` runs it."""
