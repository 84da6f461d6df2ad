"""Cross-framework comparison: cells, processes, results and tables; `python -m bench.compare` runs it."""
