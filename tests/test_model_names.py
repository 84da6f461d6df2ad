"""What a model is stands in its own file: no other file of the package asks for a model's name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jhgnn
from jhgnn.models import names

PACKAGE = Path(jhgnn.__file__).parent


def asked_for(tree: ast.AST, models: set[str]) -> Iterator[int]:
    """Lines that compare something with a model's name, match it, or look it up in a literal dictionary."""
    for node in ast.walk(tree):
        compared: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        elif isinstance(node, ast.Dict):
            compared = [key for key in node.keys if key is not None]
        for part in compared:
            for leaf in ast.walk(part):
                if isinstance(leaf, ast.Constant) and leaf.value in models:
                    yield leaf.lineno


@pytest.mark.parametrize("text", ['x = name == "han"', 'if name in ("rgcn", "gat"): pass', 'y = {"rgat": 1}[name]'])
def test_a_name_that_is_asked_for_is_found(text):
    assert list(asked_for(ast.parse(text), set(names()))) != []


def test_no_file_outside_models_asks_for_a_models_name():
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if PACKAGE / "models" not in path.parents]
    assert len(files) > 100
    found = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in files
        for line in asked_for(ast.parse(path.read_text(encoding="utf-8")), set(names()))
    }
    assert found == set()
