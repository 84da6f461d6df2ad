"""The parts of `python -m bench.recompute`."""
