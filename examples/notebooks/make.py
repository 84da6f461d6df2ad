"""Makes the notebooks from the scripts: `python examples/notebooks/make.py`; the tests check that they are the same.

A script's docstring becomes the first cell. `# %% Title` starts a section: its title and the comments right below it
become a text cell, and the rest a code cell.
"""

import ast
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = ("quick_start", "own_model", "tables_to_predictions", "where_the_time_goes", "link_prediction")
MARK = "# %% "


def cells(script: str) -> list[tuple[str, str]]:
    """("markdown" or "code", text) of each cell of a script; cells that would be empty are left out."""
    docstring = ast.get_docstring(ast.parse(script)) or ""
    body = script.split('"""', 2)[2]
    before, *sections = body.split(f"\n{MARK}")
    title, _, text = docstring.partition("\n")
    found = [("markdown", f"# {title}\n{text}"), ("code", before)]
    for section in sections:
        lines = section.splitlines()
        end = next((at for at, line in enumerate(lines[1:], 1) if not line.startswith("#")), len(lines))
        comment = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[1:end])
        found += [("markdown", f"## {lines[0]}\n\n{comment}"), ("code", "\n".join(lines[end:]))]
    return [(kind, text.strip()) for kind, text in found if text.strip()]


def notebook(script: str) -> dict[str, Any]:
    """A script as a notebook of format 4.5, without outputs."""
    made = []
    for number, (kind, text) in enumerate(cells(script)):
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def text_of(name: str) -> str:
    """The file of a script's notebook."""
    script = (HERE.parent / f"{name}.py").read_text(encoding="utf-8")
    return json.dumps(notebook(script), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in NAMES:
        (HERE / f"{each}.ipynb").write_text(text_of(each), encoding="utf-8")
