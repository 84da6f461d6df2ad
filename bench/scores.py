"""Trains what the README's table of results shows, and writes the table: `python -m bench.scores --data FOLDER`.

Eighteen recipes, each over several seeds, by the command that a user runs. A cell that is stored is trained again only
where the package, its recipe or the installed versions have changed since. Interrupted, the same command goes on where
it stopped, in the middle of a seed. The table is written once all of its cells are there.

    python -m bench.scores --data $DATA --only rgcn_imdb --only han_acm
"""

import dataclasses
import json
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.comparison.environment import machine
from bench.pages import write_between
from bench.record import RESULTS, ROOT, changed_since, commit, store
from jhgnn.config.command_line import OneLineParser
from jhgnn.errors import InputError

STORED = RESULTS / "scores.json"
BEGIN, END = "<!-- scores: begin -->", "<!-- scores: end -->"
MODELS = {"han": "HAN", "rgcn": "R-GCN", "rgat": "R-GAT"}
DATASETS = {
    "acm": ("ACM (600/300/2125 split)", "acm_gtn"),
    "imdb": ("IMDB (MAGNN)", "magnn_imdb"),
    "dblp": ("DBLP (MAGNN)", "magnn_dblp"),
    "hgb_acm": ("HGB ACM", "hgb_acm"),
    "hgb_dblp": ("HGB DBLP", "hgb_dblp"),
    "aifb": ("AIFB", "rdf_aifb"),
}
"""Part of a recipe's name -> what the table calls it, and its folder among the data sets."""
SEEDS = 5
MORE_SEEDS = {"rgcn_acm": 20, "rgcn_imdb": 10}
"""Where five seeds say too little: their standard deviations are the largest."""
SOURCES = ("jhgnn", "pyproject.toml", "CMakeLists.txt")
"""What scores depend on beside the recipe."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A cell of the table: a recipe of `configs/` on a data set."""

    model: str
    dataset: str

    @property
    def name(self) -> str:
        return f"{self.model}_{self.dataset}"

    @property
    def seeds(self) -> int:
        return MORE_SEEDS.get(self.name, SEEDS)

    @property
    def sources(self) -> tuple[str, ...]:
        """Files and folders of the repository that its scores depend on."""
        return (*SOURCES, f"configs/{self.name}.toml")

    def command(self, data: Path, seeds: int, run_dir: Path) -> list[str]:
        """The training, begun or resumed."""
        own = {
            "--config": ROOT / "configs" / f"{self.name}.toml",
            "--data.path": data / DATASETS[self.dataset][1],
            "--seeds": seeds,
            "--run.dir": run_dir,
            "--run.tensorboard": "false",
        }
        resume = ["--resume"] if (run_dir / "recipe.toml").exists() else []
        parts = [str(part) for option in own.items() for part in option]
        return [sys.executable, "-m", "jhgnn.train", *parts, *resume]


CASES = {case.name: case for case in (Case(model, dataset) for dataset in DATASETS for model in MODELS)}


def parser() -> OneLineParser:
    """The command line; wrong arguments raise InputError."""
    parser = OneLineParser(prog="python -m bench.scores", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="folder of the data sets")
    parser.add_argument("--only", action="append", metavar="CASE", help="a recipe's name; may be given again")
    parser.add_argument("--seeds", type=int, metavar="N", help="of every case, in the place of the table's")
    parser.add_argument("--output", type=Path, default=STORED, help="JSON of the scores")
    parser.add_argument("--page", type=Path, default=ROOT / "README.md", help="page with the table's marks")
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "scores", help="folder of the run folders")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; bad input is one line on stderr and exit code 2."""
    try:
        options = parser().parse_args(arguments)
        cases = wanted(options.only, options.data.expanduser())
        if options.seeds is not None and options.seeds < 1:
            raise InputError(f"command line: --seeds {options.seeds} must be at least 1")
        rows = read_rows(options.output)
        for case in cases:
            seeds = options.seeds or case.seeds
            if is_current(rows.get(case.name), case, seeds):
                say(f"{case.name}: {shown(rows[case.name])}, stored")
                continue
            row, code = train(case, options.data.expanduser(), seeds, options.runs)
            if row is None:
                say(f"{case.name}: ended with status {code}; the same command goes on with it")
                return code
            rows[case.name] = row
            store(options.output, {"study": "scores", "rows": {name: rows[name] for name in CASES if name in rows}})
            say(f"{case.name}: {shown(row)}")
        missing = [name for name in CASES if name not in rows]
        if missing:
            say(f"{options.page.name} keeps its table: {', '.join(missing)} not trained yet")
            return 0
        write_between(options.page, BEGIN, END, f"\n{table(rows)}\n")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def wanted(only: Sequence[str] | None, data: Path) -> list[Case]:
    """The cases to train.

    Raises:
        InputError: one is unknown, or its data is not there.
    """
    for name in only or ():
        if name not in CASES:
            raise InputError(f"command line: --only {name} is none of {', '.join(CASES)}")
    cases = [case for name, case in CASES.items() if not only or name in only]
    for case in cases:
        folder = data / DATASETS[case.dataset][1]
        if not folder.is_dir():
            raise InputError(f"--data {data}: holds no {folder.name}, which {case.name} needs")
    return cases


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Stored rows by case; none where there is no file yet.

    Raises:
        InputError: the file is something else.
    """
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["rows"])
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{path}: not stored scores; name another file with --output") from None


def is_current(row: Mapping[str, Any] | None, case: Case, seeds: int) -> bool:
    """Whether a stored row is what training now would give."""
    if row is None or len(row["seeds"]) != seeds or row["changed"]:
        return False
    from jhgnn.training.summary import versions

    return row["versions"] == versions() and not changed_since(row["commit"], *case.sources)


def train(case: Case, data: Path, seeds: int, runs: Path) -> tuple[dict[str, Any] | None, int]:
    """Begins or resumes the training: its row, or None where it did not end, and the exit code."""
    changed = changed_since("HEAD", *case.sources)
    folder = runs / commit() / f"{case.name}-{seeds}"
    if changed:  # what was begun may be of other sources
        shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    code = run(case.command(data, seeds, folder))
    if code:
        return None, code
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    each = summary.get("runs", [summary])
    scores = {name: [one[name] for one in each] for name in ("test_micro_f1", "test_macro_f1", "best_epoch", "epochs")}
    described = machine()
    row = {
        "seeds": [one["seed"] for one in each],
        **scores,
        "epoch_ms": statistics.fmean(one["epoch_ms"] for one in each),
        "machine": f"{described['processor']}, {described['cores']} cores",
        "commit": commit(),
        "changed": changed,
        "versions": summary["versions"],
    }
    return row, 0


def run(command: Sequence[str]) -> int:
    """A command's exit code, 128 + n where signal n ended it; signals to this process are passed on to it."""
    process = subprocess.Popen(command, cwd=ROOT, process_group=0)  # a terminal's Ctrl-C comes by this process alone

    def pass_on(number: int, _: object) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown of all cells."""

    def lines() -> Iterator[str]:
        yield f"| data | {' | '.join(MODELS.values())} |"
        yield "|---" * (len(MODELS) + 1) + "|"
        for dataset, (title, _) in DATASETS.items():
            cells = [shown(rows[Case(model, dataset).name]) for model in MODELS]
            yield f"| {title} | {' | '.join(cells)} |"

    return "\n".join(lines())


def shown(row: Mapping[str, Any]) -> str:
    """Test micro-F1 in percent, with its sample standard deviation and, where it is not five, the number of seeds."""
    scores = [100 * score for score in row["test_micro_f1"]]
    spread = f" +- {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    count = "" if len(scores) == SEEDS else f" ({len(scores)} seed{'s' if len(scores) > 1 else ''})"
    return f"{statistics.fmean(scores):.2f}{spread}{count}"


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
