"""Locality of gathers without hardware counters: reuse distances, what caches make of them, and times beside them."""
