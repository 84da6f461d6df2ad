"""Benchmarks and studies; each is a `python -m bench.NAME`."""
