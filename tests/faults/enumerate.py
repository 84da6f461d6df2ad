"""`python -m tests.faults.enumerate`: every command of the scenarios with every one of its file operations failing.

Each case starts from the same files. The command runs with one call failing; then it is done again without faults, as
its message says, and what is there afterwards is compared with what an undisturbed command leaves. What a kill leaves
is taken from copies of the folder before each call that changes a file: a process that is killed there leaves the same.
"""

import argparse
import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jhgnn.data import save_graph
from tests.compile_flags import QUICK_TO_COMPILE
from tests.faults import shim
from tests.faults.forked import Worker, import_everything
from tests.faults.points import Point, fired, points, spread
from tests.faults.scenarios import SCENARIOS, Result, Scenario
from tests.models.heterographs import academic

ONE_LINE = (2, 3)
"""Exit codes of a command whose files failed: 3, and 2 where what failed is what it was told to read or write."""


@dataclasses.dataclass
class Count:
    """What came of a scenario's cases."""

    scenario: str
    calls: int = 0
    points: int = 0
    kills: int = 0
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0


class Bench:
    """A folder in which a scenario's cases run, one after the other at the same place."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self.scenario, self.root = scenario, root
        self.place, self.template, self.log = root / "place", root / "template", root / "log"
        self.place.mkdir(parents=True)
        self.worker = Worker(root, lambda: scenario.result(self.place))
        save_graph(academic(), self.place / "data")
        (self.place / "out").mkdir()
        for words in scenario.before(self.place):
            answer = self.worker.run(words, {})
            assert answer.code == 0, answer.text
        shutil.copytree(self.place / "out", self.template)
        self.old = self.worker.run(["data.__main__", "--help"], {}, read_always=True).result if scenario.old else None
        self.sound: set[tuple] = set()

    def restore(self, state: Path | None = None) -> None:
        """`out` as it was before, or as in a copy of it."""
        shutil.rmtree(self.place / "out")
        shutil.copytree(state or self.template, self.place / "out")

    def watched(self) -> dict[str, str]:
        """What the library counts and where it says so."""
        self.log.unlink(missing_ok=True)
        return {"FAULT_UNDER": f"{self.place / 'data'}:{self.place / 'out'}", "FAULT_LOG": str(self.log)}

    def undisturbed(self) -> tuple[list[tuple[int, str, str]], Result]:
        """The command's calls and its result; a second run takes the copies that kills leave."""
        results = []
        for copies in (
            {},
            {"FAULT_SNAPSHOTS": str(self.root / "snapshots"), "FAULT_SNAPSHOT_OF": str(self.place / "out")},
        ):
            self.restore()
            answer = self.worker.run(self.scenario.command(self.place), self.watched() | copies)
            assert answer.code == 0, answer.text
            assert answer.result is not None, answer.text
            results.append(answer.result)
            if not copies:
                calls = shim.calls(self.log)
        assert results[0] == results[1], f"two undisturbed runs differ: {results}"
        return calls, results[0]

    def killed(self) -> list[tuple[str, Path]]:
        """The states that kills leave, each once, with the call before which it was."""
        seen, found = set(), []
        names = {number: f"{how} of {path}" for number, how, path in shim.calls(self.log)}
        for folder in sorted((self.root / "snapshots").iterdir(), key=lambda path: int(path.name)):
            state = folder / "of"
            if state.exists() and (key := files_of(state)) not in seen:
                seen.add(key)
                found.append((f"kill at call {folder.name}, {names[int(folder.name)]}", state))
        return found


def files_of(folder: Path) -> tuple:
    """Names and sizes of all files, without those parts of names and those sizes that differ from run to run."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"[0-9a-f]{16,}|(?<=tmp-).*|(?<=tfevents\.).*|\d+(?=\.tmp)", "*", str(path.relative_to(folder)))
        timed = path.suffix in (".jsonl", ".json", ".html") or "tfevents" in name
        found.append((name, path.stat().st_size if path.is_file() and not timed else -1))
    lines = [len(path.read_bytes().splitlines()) for path in sorted(folder.rglob("metrics.jsonl"))]
    return (*sorted(found), *lines)


def told_wrong(code: int, text: str) -> str | None:
    """What is wrong with how a command ended, or nothing."""
    if "Traceback" in text or "terminate called" in text:
        return "a traceback"
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    if code == 0:
        return f"exit code 0, but {errors[0]}" if errors else None
    if code not in ONE_LINE:
        return f"exit code {code}"
    if len(errors) != 1 or text.strip().splitlines()[-1] != errors[0]:
        return f"exit code {code} with {len(errors)} error lines, of which the last line is not one"
    for path in re.findall(r"what is left is checkpoint (\S+),", errors[0]):
        if not (Path(path) / "digests.json").exists():
            return f"it names a checkpoint that is not there: {path}"
    for folder in re.findall(r"continue with --resume --run.dir (\S+)", errors[0]):
        if not (Path(folder) / "recipe.toml").exists():
            return f"it says to resume where nothing is: {folder}"
    return None


def afterwards(bench: Bench, expected: Result) -> str | None:
    """Does the command again without faults; what is wrong then, or nothing. Equal states are tried once."""
    state = files_of(bench.place / "out")
    if state in bench.sound:
        return None
    for _ in range(2):  # a partition that was whole is checked; one that was not there is written, then checked
        answer = bench.worker.run(bench.scenario.again(bench.place), {})
        wrong = told_wrong(answer.code, answer.text)
        if wrong or answer.code != 0:
            return f"again: {wrong or f'exit code {answer.code}'}: {answer.text.strip()[-2000:]}"
        if answer.result == expected:
            bench.sound.add(state)
            return None
    differ = [name for name in expected if answer.result is None or answer.result.get(name) != expected[name]]
    return f"again: the result differs in {', '.join(differ) or 'more files'}"


def fails(bench: Bench, point: Point, expected: Result) -> tuple[str, str | None, str]:
    """The outcome of a command with one call failing; what is wrong with it, or nothing; what it said."""
    bench.restore()
    faults = bench.watched() | point.faults()
    answer = bench.worker.run(bench.scenario.command(bench.place), faults, read_always=bench.old is not None)
    if not fired(bench.log):
        return "the call did not come", None, ""
    wrong = told_wrong(answer.code, answer.text)
    if wrong is None and answer.code == 0 and answer.result != expected:
        wrong = "exit code 0 with another result"
    if wrong is None and bench.old is not None and answer.result not in (bench.old, expected):
        wrong = "neither what was there before nor what is new"
    return f"exit code {answer.code}", wrong or afterwards(bench, expected), answer.text


def one_case(bench: Bench, point: Point, expected: Result, count: Count) -> None:
    """A point; once more in a new process where it looks wrong."""
    outcome, wrong, text = fails(bench, point, expected)
    if wrong:
        bench.worker.close()
        outcome, wrong, text = fails(bench, point, expected)
        bench.worker.close()
    count.points += outcome.startswith("exit")
    count.outcomes["wrong" if wrong else outcome] += 1
    if wrong:
        count.failures.append(f"{point}: {wrong}\n{_indented(text)}")


def one_kill(bench: Bench, name: str, state: Path, expected: Result, count: Count) -> None:
    """What is done again after a kill; once more in a new process where it looks wrong."""
    count.kills += 1
    for _ in range(2):
        bench.restore(state)
        wrong = afterwards(bench, expected)
        if wrong is None:
            break
        bench.worker.close()
    count.outcomes["wrong" if wrong else "killed"] += 1
    if wrong:
        count.failures.append(f"{name}: {wrong}")


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip().splitlines()[-30:])


def examine(scenario: Scenario, root: Path, most: int, most_kills: int) -> Count:
    """All cases of a scenario."""
    began, count = time.monotonic(), Count(scenario.name)
    bench = Bench(scenario, root)
    calls, expected = bench.undisturbed()
    killed = bench.killed()
    count.calls = len(calls)
    for point in spread(points(calls), most):
        one_case(bench, point, expected, count)
    for name, state in spread(killed, most_kills):
        one_kill(bench, name, state, expected, count)
    bench.worker.close()
    count.seconds = time.monotonic() - began
    return count


def restart_with(library: Path) -> None:
    """This process again, with the library loaded before all others and programs kept between the commands."""
    environment = dict(os.environ)
    environment |= {"LD_PRELOAD": str(library), "JAX_COMPILATION_CACHE_DIR": str(library.parent / "programs")}
    environment |= {"JHGNN_HUGE_PAGES": "0", "JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg"}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # no threads before a fork
    environment.setdefault("XLA_FLAGS", QUICK_TO_COMPILE)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the counts of each scenario, and what went wrong; 1 where anything did."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.enumerate", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenario", action="append", choices=names, help="only this one; may be given several times")
    parser.add_argument("--most", type=int, default=10**6, metavar="N", help="points of a scenario at most, evenly")
    parser.add_argument("--kills", type=int, default=10**6, metavar="N", help="kills of a scenario at most, evenly")
    parser.add_argument("--json", metavar="FILE", help="also write the counts there")
    options = parser.parse_args(arguments)
    if "shim.so" not in os.environ.get("LD_PRELOAD", ""):
        restart_with(shim.build(Path(tempfile.mkdtemp(prefix="jhgnn-faults-"))))
    root = Path(os.environ["LD_PRELOAD"]).parent
    try:
        import_everything()
        counts = []
        for scenario in SCENARIOS:
            if options.scenario and scenario.name not in options.scenario:
                continue
            count = examine(scenario, root / scenario.name.replace(" ", "-"), options.most, options.kills)
            counts.append(count)
            shown = ", ".join(f"{number} {outcome}" for outcome, number in sorted(count.outcomes.items()))
            print(
                f"{count.scenario}: {count.calls} calls, {count.points} points and {count.kills} kills"
                f" in {count.seconds:.0f} s: {shown}",
                flush=True,
            )
            for failure in count.failures:
                print(f"  {failure}", flush=True)
            shutil.rmtree(root / scenario.name.replace(" ", "-"))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    points_, kills = sum(count.points for count in counts), sum(count.kills for count in counts)
    wrong = sum(len(count.failures) for count in counts)
    print(f"{points_} points and {kills} kills, {wrong} wrong")
    if options.json:
        Path(options.json).write_text(json.dumps([vars(count) for count in counts], indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
