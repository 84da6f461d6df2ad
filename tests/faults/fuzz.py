"""A bounded search for tracebacks: options, recipes, files and settings that nobody would write by hand.

Every case runs a command in this process and has to end with an exit code of docs/reliability.md and at most one error
line. Nothing is compiled: training ends where its data is missing, or once its problem is posed.
"""

import contextlib
import dataclasses
import io
import re
import shutil
import tempfile
import traceback
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import hypothesis
from hypothesis import strategies as st

from jhgnn.__main__ import main as jhgnn
from jhgnn.config import Config
from jhgnn.config.recipe import fields_of, type_of
from jhgnn.config.shipped import shipped_recipes
from jhgnn.runtime import exits
from tests.data import layouts
from tests.models.heterographs import academic

CASES = {"options": 700, "recipes": 600, "files": 500, "settings": 200}
"""How many of each kind there are; each of `settings` traces a model."""
IN_CI = CASES | {"settings": 60}


class TracebackError(AssertionError):
    """A command ended in a way that no page promises."""


def check(command: Callable[[], int]) -> int:
    """The exit code of a command.

    Raises:
        TracebackError: an exception left it, or it said something else than one line, or its code is none it may have.
    """
    told = io.StringIO()
    said = io.TextIOWrapper(io.BytesIO(), encoding="ascii")  # as where the locale has few letters
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            code = command()
    except SystemExit as error:  # argparse's --help
        code = int(error.code or 0)
    except Exception:
        raise TracebackError(traceback.format_exc()) from None
    errors = [line for line in told.getvalue().splitlines() if line.startswith("error: ")]
    if code not in (0, 2, 3) or len(errors) != (code != 0):
        raise TracebackError(f"exit code {code}, and {told.getvalue()}")
    return code


def hunt(kind: str, cases: int, *, shrink: bool = True) -> None:
    """Runs so many cases of a kind: the same ones where the same modules are loaded, whose constants Hypothesis draws.

    Raises:
        TracebackError: of a case that ends badly; with `shrink` of the smallest that is found.
    """
    strategy, run = KINDS[kind]
    settings = hypothesis.settings(
        max_examples=cases,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
        phases=[hypothesis.Phase.generate, *((hypothesis.Phase.shrink,) if shrink else ())],
    )

    @settings
    @hypothesis.given(strategy)
    def case(drawn: Any) -> None:
        with _place():
            run(drawn)

    case()


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """A folder to run in, which goes afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="jhgnn-fuzz-"))
    try:
        with contextlib.chdir(folder):
            yield folder
    finally:
        shutil.rmtree(folder)


# -- what is drawn

NUMBERS = ("0", "-1", "1e400", "nan", "-inf", "9" * 30, "9" * 5000, "0x1F", "1_0", "2**31", "4294967296", "1e-320", "٣")
PIECES = (
    "",
    " ",
    "true",
    "'",
    '"',
    "\\",
    "=",
    ",",
    "all",
    "auto",
    "PAP",
    "a=1",
    "[",
    "]" * 40,
    "[" * 2000,
    "\n",
    "\0",
    "é",
    "\udcff",
    "%s",
)
FIELDS = [(section, name) for section, field in fields_of(Config).items() for name in fields_of(field.type)]
COMMANDS = ("train", "predict", "profile", "partition", "describe", "serve")
OWN = ("--resume", "--seeds", "--run", "--output", "--nodes", "--new-nodes", "--steps", "--warm-up", "--trace")
OWN += ("--compare", "--parts", "--method", "--out", "--plan", "--chart", "--tolerance", "--network-gbit", "--check")
OWN += ("--scale", "--help", "--format", "--warm", "--memory-limit-gib", "--metapaths", "--config", "--overwrite")
OWN += ("--costs", "--seed")
_SETS_OFF = ("distributed.coordinator", "distributed.num_processes", "distributed.process_id")
"""Fields that would make a command wait for other processes."""

words = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(PIECES),
    st.sampled_from(sorted(shipped_recipes())),
    st.text(max_size=12),
    st.integers().map(str),
    st.floats().map(str),
    st.lists(st.sampled_from(PIECES + NUMBERS), min_size=1, max_size=4).map("".join),
).map(lambda text: text.replace("/", "_").replace("~", "_"))
"""Values; none leads out of the folder that a case runs in."""

names = st.one_of(
    st.sampled_from([f"--{section}.{name}" for section, name in FIELDS if f"{section}.{name}" not in _SETS_OFF]),
    st.sampled_from(OWN),
    st.sampled_from(FIELDS).map(lambda field: f"--{field[0]}.{field[1][:-1]}"),
)


def _arguments(words: list[str]) -> list[str]:
    """As a process gets them: the system's arguments end at a NUL."""
    return [word.replace("\0", "") for word in words]


groups = st.one_of(
    st.tuples(names, words).map(list),
    names.map(lambda name: [name]),
    words.map(lambda word: [word]),
)
options = st.tuples(st.sampled_from(COMMANDS), st.lists(groups, max_size=6)).map(
    lambda drawn: _arguments([drawn[0], *(word for group in drawn[1] for word in group)])
)

values = st.recursive(
    st.one_of(
        st.integers().map(str),
        st.floats().map(repr),
        st.booleans().map(lambda flag: str(flag).lower()),
        st.sampled_from(NUMBERS + PIECES),
        st.sampled_from(("1979-05-27", "07:32:00", '"a"', "'''x'''", '"\\u0000"', '"' + "x" * 5000 + '"', '"\\uD800"')),
        words.map(lambda text: '"' + text.replace("\\", "").replace('"', "") + '"'),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]"),
        inner.map(lambda each: f"{{a = {each}}}"),
        st.integers(1, 3000).flatmap(lambda depth: inner.map(lambda each: "[" * depth + each + "]" * depth)),
    ),
    max_leaves=4,
)
lines = st.one_of(
    st.tuples(st.sampled_from(FIELDS), values).map(lambda each: f"{each[0][0]}.{each[0][1]} = {each[1]}"),
    st.tuples(words, values).map(lambda each: f"{each[0]} = {each[1]}"),
    st.sampled_from([f"[{section}]" for section in fields_of(Config)]),
    words,
)


@dataclasses.dataclass(frozen=True)
class Change:
    """One damage to bytes, at a share of their length."""

    how: str
    at: float
    piece: bytes

    def of(self, data: bytes) -> bytes:
        """The damaged bytes."""
        at = int(self.at * len(data))
        if self.how == "cut":
            return data[:at]
        if self.how == "insert":
            return data[:at] + self.piece + data[at:]
        if self.how == "overwrite":
            return data[:at] + self.piece + data[at + len(self.piece) :]
        if self.how == "number":  # the next number becomes another one
            found = re.search(rb"\d+", data[at:])
            return data if found is None else data[: at + found.start()] + self.piece + data[at + found.end() :]
        return data[:at] + data[at : at + 40] + data[at:]  # a stretch twice


BYTES = (b"", b"\0", b"\xff\xfe", b"-1", b"nan", b"1e999", b"9" * 25, b"9" * 5000, b"\n\n", b"\t", b",", b"{", b'"')
pieces = st.one_of(st.sampled_from(BYTES), st.binary(max_size=8))
changes = st.builds(
    Change,
    st.sampled_from(("cut", "insert", "overwrite", "number", "twice")),
    st.floats(0, 1, exclude_max=True),
    pieces,
)
recipes = st.one_of(
    st.lists(lines, max_size=8).map(lambda each: "\n".join(each).encode("utf-8", "surrogatepass")),
    st.tuples(st.sampled_from(sorted(shipped_recipes().values())), st.lists(changes, min_size=1, max_size=3)).map(
        lambda drawn: _changed(drawn[0].read_bytes(), drawn[1])
    ),
)


def _changed(data: bytes, each: list[Change]) -> bytes:
    for change in each:
        data = change.of(data)
    return data


def _graph_files() -> layouts.Files:
    from jhgnn.data import save_graph

    with _place() as folder:
        saved = save_graph(academic(), folder / "graph")
        return {path.name: path.read_bytes() for path in saved.iterdir()}


LAYOUTS: dict[str, Callable[[], layouts.Files]] = {
    "hgb": layouts.hgb,
    "magnn": layouts.magnn,
    "acm_mat": layouts.acm_mat,
    "rdf": layouts.rdf,
    "ogb_mag": layouts.ogb_mag,
    "arrays": lambda: {"x.npz": layouts.npz(**layouts.arrays())},
    "triples": layouts.triples,
    "lastfm": layouts.lastfm,
    "jhgnn": _graph_files,
}
files = st.tuples(
    st.sampled_from(sorted(LAYOUTS)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), changes), min_size=1, max_size=2),
    st.booleans(),
)


def _plausible(section: str, name: str) -> st.SearchStrategy:
    """Values of a field that its own check takes, most of them."""
    kind: Any = fields_of(Config)[section].type
    field, hint = fields_of(kind)[name], type_of(kind, name)
    bounds = field.metadata
    if typing.get_origin(hint) is Literal:
        return st.sampled_from(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return st.lists(st.sampled_from(("PAP", "PSP", "writes", "is_about", "PA", "paper,author,paper")), max_size=2)
    if hint is bool:
        return st.booleans()
    if hint in (int, float):
        least = bounds["minimum"] if bounds["minimum"] is not None else (bounds["above"] or 0)
        steps = st.sampled_from((0, 1, 2, 3, 5, 8, 16, 100))
        return steps.map(lambda step: hint(least + step * (1 if hint is int else 0.11)))
    return st.sampled_from(
        (
            "auto",
            "all",
            "1",
            "2,2",
            "dense",
            "native",
            "segment",
            "full",
            "na",
            "balanced",
            "1GiB",
            "rgcn",
            "han",
            "rgat",
        )
    )


def _settable(field: tuple[str, str]) -> bool:
    return field[0] not in ("data", "run", "sgb") and ".".join(field) not in _SETS_OFF and field != ("model", "name")


settings = st.tuples(
    st.sampled_from(("han", "rgcn", "rgat", "gcn", "gat")),
    st.sampled_from(("node_classification", "node_classification", "link_prediction")),
    st.lists(
        st.sampled_from([field for field in FIELDS if _settable(field)]).flatmap(
            lambda field: _plausible(*field).map(lambda value: (*field, value))
        ),
        max_size=5,
    ),
    st.sampled_from(((40, 25, 4), (40, 25, 0), (40, 0, 4), (30, 1, 1))),
)


# -- what is run


def run_options(words: list[str]) -> None:
    """A command line; data is missing, so that nothing is trained."""
    data = () if words[0] in ("describe", "predict", "serve") else ("--data.format", "jhgnn", "--data.path", "missing")
    with mock.patch("sys.stdin", io.StringIO("")):
        check(lambda: jhgnn([*words, *data]))


def run_recipe(data: bytes) -> None:
    """A recipe's bytes."""
    Path("recipe.toml").write_bytes(data)
    own = ("--data.format", "jhgnn", "--data.path", "missing", "--run.dir", "run")
    alone = ("--distributed.coordinator", "", "--distributed.num_processes", "0")
    check(lambda: jhgnn(["train", "--config", "recipe.toml", *own, *alone]))


def run_files(drawn: tuple[str, list[tuple[float, Change]], bool]) -> None:
    """A damaged data set, as a folder or zipped."""
    layout, each, zipped = drawn
    found = dict(LAYOUTS[layout]())
    for where, change in each:
        name = sorted(found)[int(where * len(found))]
        found[name] = change.of(found[name])
    path = Path("data")
    if zipped and layout not in ("jhgnn", "arrays"):
        path = layouts.zipped(found, Path("data.zip"))
    else:
        layouts.write(found, path)
    check(lambda: jhgnn(["describe", str(path), "--format", layout]))


def run_settings(drawn: tuple[str, str, list[tuple[str, str, Any]], tuple[int, int, int]]) -> None:
    """A recipe that is read without complaint, on a small graph, up to where it would be compiled."""
    from jhgnn.config.recipe import override
    from jhgnn.training.prepare import execution_of
    from jhgnn.training.problem import pose

    model, task, each, (papers, authors, subjects) = drawn
    tables: dict[str, dict[str, Any]] = {"model": {"name": model, "hidden": 8, "heads": 2}, "task": {"name": task}}
    tables |= {"sgb": {"cache_dir": ""}, "data": {"format": "jhgnn", "preset": ""}}
    for section, name, value in each:
        tables.setdefault(section, {})[name] = value

    def command(_: object) -> int:
        config = override(Config(), tables, where="recipe")
        execution_of(pose(_academic(papers, authors, subjects), config))
        return 0

    check(lambda: exits.ending(command))


def _academic(papers: int, authors: int, subjects: int) -> Any:
    """The academic graph, in which a type may have no nodes."""
    import numpy as np

    from jhgnn.graph.hetero_graph import HeteroGraph

    if authors > 1 and subjects > 1:
        return academic(papers=papers, authors=authors, subjects=subjects)
    rng = np.random.default_rng(0)
    none = np.zeros(0, np.int64)

    def ends(count: int) -> tuple[np.ndarray, np.ndarray]:
        return (rng.integers(0, count, 50), rng.integers(0, papers, 50)) if count else (none, none)

    writes, about = ends(authors), ends(subjects)
    order = rng.permutation(papers)
    return HeteroGraph.from_arrays(
        name="academic",
        num_nodes={"paper": papers, "author": authors, "subject": subjects},
        edges={
            ("author", "writes", "paper"): writes,
            ("paper", "written_by", "author"): writes[::-1],
            ("subject", "covers", "paper"): about,
            ("paper", "is_about", "subject"): about[::-1],
        },
        features={"paper": rng.normal(size=(papers, 4)), "author": rng.normal(size=(authors, 5))},
        target="paper",
        labels=rng.integers(0, 3, papers),
        splits={"train": order[:15], "val": order[15:20], "test": order[20:]},
    )


KINDS: dict[str, tuple[st.SearchStrategy, Callable[[Any], None]]] = {
    "options": (options, run_options),
    "recipes": (recipes, run_recipe),
    "files": (files, run_files),
    "settings": (settings, run_settings),
}
