"""Lines that a user writes to train a model on data that is read already, counted in the files that are compared.

The rule: in the peers, the code lines (no blank lines, comments, docstrings) of the model, of what builds its graphs
and features, and of the training loop with early stopping, with all of our files that these use and the imports for it;
scoring is left out. In jhgnn, the lines of the recipe (no blank lines, comments) and the one command.
"""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

PEERS = Path(__file__).parents[1] / "peers"
CONFIGS = Path(__file__).parents[2] / "configs"
LOOP = ("feature_tensors", "Trainer")
ROOTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "dgl": {
        "han": ("metapath_graphs", "HAN"),
        "rgcn": ("layer_graphs", "RGCN"),
        "rgat": ("layer_graphs", "RGAT"),
    },
    "pyg": {
        "han": ("metapath_graphs", "cached_edge_index", "HAN"),
        "rgcn": ("layer_graphs", "mean_matrix", "SparseMatrixRGCN"),
        "rgat": ("layer_graphs", "cached_edge_index", "RGAT"),
    },
}
"""The default variant of each: what the comparison times where no other was quicker."""


def user_lines(framework: str, model: str) -> int:
    """Lines for one model in one framework."""
    if framework == "jhgnn":
        recipe = (CONFIGS / f"{model}_acm.toml").read_text(encoding="utf-8").splitlines()
        return 1 + sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in recipe)
    files = [PEERS / f"{framework}_models.py", PEERS / "shared.py", PEERS / "training.py"]
    sources = {path.stem: path.read_text(encoding="utf-8") for path in files}
    return count(sources, [*ROOTS[framework][model], *LOOP])


def count(sources: Mapping[str, str], roots: Sequence[str]) -> int:
    """Code lines of the roots, of what they use among the sources' top-level names, and of the imports for it.

    Raises:
        KeyError: a root is in no source.
    """
    defined: dict[str, tuple[str, ast.stmt]] = {}
    imports: list[tuple[str, ast.stmt, set[str]]] = []
    for name, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined[node.name] = (name, node)
            elif isinstance(node, ast.Assign):
                defined |= {target.id: (name, node) for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                imports.append((name, node, bound))
    waiting, seen = list(roots), set()
    used: dict[str, set[str]] = {name: set() for name in sources}
    lines: set[tuple[str, int]] = set()
    while waiting:
        symbol = waiting.pop()
        if symbol in seen:
            continue
        seen.add(symbol)
        file, node = defined[symbol]
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        used[file] |= names
        waiting += sorted(name for name in names if name in defined)
        lines |= {(file, line) for line in _code_lines(sources[file], node)}
    for file, node, bound in imports:
        internal = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bench.")
        if bound & used[file] and not internal:
            lines |= {(file, line) for line in _code_lines(sources[file], node)}
    return len(lines)


def _code_lines(source: str, node: ast.stmt) -> list[int]:
    """Numbers of a statement's lines, decorators included, that are neither blank, comment nor docstring."""
    text = source.splitlines()
    docstrings: set[int] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(each) is not None:
            docstrings |= set(range(each.body[0].lineno, (each.body[0].end_lineno or 0) + 1))
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return [
        number
        for number in range(first, (node.end_lineno or node.lineno) + 1)
        if number not in docstrings and text[number - 1].strip() and not text[number - 1].lstrip().startswith("#")
    ]
