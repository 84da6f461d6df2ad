"""What README and docs show is true: commands parse and run, links lead somewhere, the tree is as described.

A comment `<!-- needs: data -->` or `<!-- needs: peers -->` before a block keeps its commands from being run; they are
parsed all the same. `<!-- file: NAME -->` before a block gives the file to write before the commands that follow it.
`<!-- run -->` before a block of Python has it run as a script.
"""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from jhgnn import explain, predict, train
from jhgnn.data import __main__ as describe

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")] + sorted(
    ROOT.glob("docs/*.md")
)
ARCHITECTURE = ROOT / "docs" / "architecture.md"
FENCE = re.compile(r"(?:<!-- (\w+)(?:: ([\w.]+))? -->\n)?^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block and the comment before it."""

    page: Path
    marker: str  # "file", "needs", "run" or nothing
    value: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        if self.language != "sh":
            return []
        joined = self.text.replace("\\\n", " ")
        return [line.strip() for line in joined.splitlines() if line.strip().startswith("python -m jhgnn")]


def blocks(page: Path) -> list[Block]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(page, *(part or "" for part in parts)) for parts in found]


BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [(block, command) for block in BLOCKS for command in block.commands]
SCRIPTS = [block for block in BLOCKS if block.marker == "run"]
PAGES_THAT_RUN = sorted({block.page for block, _ in COMMANDS if block.marker != "needs"})


def name(value: object) -> str | None:
    return value.name if isinstance(value, Path) else value.split("jhgnn.")[1] if isinstance(value, str) else None


def test_readme_shows_both_commands_at_the_top_and_every_command_has_a_block():
    top = (ROOT / "README.md").read_text().splitlines()[:5]
    assert [line.split("#")[0].strip() for line in top if line.startswith("    ")] == ["make train", "make test"]
    shown = " ".join(command for _, command in COMMANDS)
    assert all(f"python -m jhgnn.{each}" in shown for each in ("train", "predict", "data describe"))
    assert "--resume" in shown


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=lambda value: name(value))
def test_command_parses(block, command, tmp_path, monkeypatch):
    """Options, and the recipe where one is named; nothing is read or trained."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    write_files(block.page, tmp_path)
    module, *arguments = shlex.split(command, comments=True)[2:]
    if module == "jhgnn.train":
        train.parse(arguments)
    elif module == "jhgnn.predict":
        predict.parser().parse_args(arguments)
    elif module == "jhgnn.explain":
        explain.parser().parse_args(arguments)
    elif module == "jhgnn.data":
        describe.parser().parse_args(arguments)
    else:  # a command of its own: its help must at least come
        subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, check=True, capture_output=True)


def write_files(page: Path, folder: Path) -> list[Path]:
    paths = [(folder / block.value, block.text) for block in blocks(page) if block.marker == "file"]
    for path, text in paths:
        path.write_text(text)
    return [path for path, _ in paths]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=name)
def test_commands_run_in_the_order_shown(page, tmp_path, compile_cache):
    """In an empty folder beside the recipes, as a reader would, after the files that the page shows."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    steps = [[sys.executable, path.name] for path in write_files(page, tmp_path) if path.suffix == ".py"]
    for block in blocks(page):
        if block.marker != "needs":
            steps += [[sys.executable, *shlex.split(command, comments=True)[1:]] for command in block.commands]
    for step in steps:
        done = subprocess.run(step, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{shlex.join(step)}\n{done.stdout}\n{done.stderr}"
        assert "Warning" not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: block.page.name)
def test_python_that_is_shown_runs(block, tmp_path, compile_cache):
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert float(done.stdout.split()[-1]) > 0.5, done.stdout  # the score of README's quick start


def test_the_quick_start_of_the_readme_is_short():
    (quick_start,) = (block for block in SCRIPTS if block.page.name == "README.md")
    assert quick_start.language == "python"
    assert len(quick_start.text.splitlines()) <= 15
    for part in ("jhgnn.load(", "jhgnn.fit(", "run.scores", "run.predict()", 'run.embeddings("paper")', "run.plot()"):
        assert part in quick_start.text


def test_blocks_of_python_that_can_run_do():
    """What a README shows as a whole script, with its own imports, is run or written as a file for a command."""
    for block in BLOCKS:
        if block.page.name == "README.md" and block.language == "python" and "import " in block.text:
            assert block.marker in ("run", "file"), block.text


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            assert (page.parent / path).exists(), target
            assert not anchor, f"{target}: anchors are not checked"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    for found in re.findall(r"`((?:jhgnn|tests|configs|bench|docs|\.ci)/[\w./{},-]*)`", text):
        if "my_" not in found and not re.search(r"\b[A-Z]{2,}\b", found):  # to be written, or a placeholder
            assert (ROOT / found).exists(), found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_and_keys_that_are_named_exist(page):
    import dataclasses

    from jhgnn.config import Config

    keys = {
        f"{part.name}.{field.name}" for part in dataclasses.fields(Config) for field in dataclasses.fields(part.type)
    }
    sections = "|".join(part.name for part in dataclasses.fields(Config))
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for found in re.findall(rf"`(?:--)?((?:{sections})\.[a-z_]+)\b", text):
        assert found in keys or (ROOT / "jhgnn" / found.replace(".", "/", 1)).exists(), found


def rows() -> list[set[str]]:
    """The rows of the table of folders: top-level names below jhgnn/, in order."""
    table = re.findall(r"^\| (`jhgnn/.*?) \|", ARCHITECTURE.read_text(), re.MULTILINE)
    return [{part.strip("/`").removeprefix("jhgnn/").removesuffix(".py") for part in row.split(", ")} for row in table]


def test_every_folder_and_command_is_in_the_architecture():
    named = set().union(*rows())
    folders = {path.parent.name for path in (ROOT / "jhgnn").glob("*/__init__.py")}
    commands = {path.stem for path in (ROOT / "jhgnn").glob("*.py") if '__name__ == "__main__"' in path.read_text()}
    assert folders | commands <= named


def test_folders_import_only_from_those_above_them():
    order = {name: position for position, names in enumerate(rows()) for name in names}
    for path in sorted((ROOT / "jhgnn").rglob("*.py")):
        here = path.relative_to(ROOT / "jhgnn").parts[0].removesuffix(".py")
        for module in imported(path):
            there = module.split(".")[1]
            if there != here and here in order and there in order:
                assert order[there] <= order[here], f"{path} imports {module}"


def imported(path: Path) -> list[str]:
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "jhgnn":
            modules += [f"jhgnn.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("jhgnn."):
            modules.append(node.module)
    return modules
