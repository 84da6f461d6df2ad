from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "recompute.md"


def write_document(results, path):
    pass
