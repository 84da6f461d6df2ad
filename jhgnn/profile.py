"""`python -m jhgnn.profile`: where a recipe's training step spends its time, memory traffic and memory."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.errors import InputError
from jhgnn.runtime import exits
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.runtime.interrupt import Leaving


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = OneLineParser(
        prog="python -m jhgnn.profile",
        description="Profile the training step of a recipe by stage, kernel type, semantic graph, traffic and memory.",
        epilog="example: python -m jhgnn.profile --config configs/han_imdb.toml --run.dir runs/profile_han_imdb",
    )
    parser.add_argument("--warm-up", type=int, default=3, metavar="N", help="steps before anything is counted")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps to trace")
    parser.add_argument("--barriers", action="store_true", help="also trace the step with barriers at stage borders")
    parser.add_argument("--ncu", action="store_true", help="on a GPU: run Nsight Compute and merge its figures")
    parser.add_argument("--trace", metavar="DIR", help="analyse a trace that was brought here, with its program beside")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="put two profiles side by side")
    add_options(parser)
    options = parser.parse_args(arguments)
    for name in ("warm_up", "steps"):
        if getattr(options, name) < (0 if name == "warm_up" else 1):
            raise InputError(f"command line: --{name.replace('_', '-')} {getattr(options, name)} is too small")
    if options.trace and options.compare:
        raise InputError("command line: --trace and --compare are two commands; give one of them")
    return options


def output_folder(options: argparse.Namespace, config: Config) -> Path:
    """run.dir, or runs/profile_NAME with the first free number."""
    if config.run.dir:
        folder = Path(config.run.dir).expanduser()
        if (folder / "checkpoints").exists():
            raise InputError(f"run.dir {folder} holds a training run; name another folder for its profile")
    else:
        source = Path(options.config).stem if options.config else f"{config.model.name}_{config.data.preset}"
        names = (f"profile_{source}" + (f"-{number}" if number > 1 else "") for number in range(1, 10_000))
        folder = next(path for path in (Path("runs", name) for name in names) if not path.exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"run.dir {folder}: {error.strerror}; name a folder that can be written") from None
    return folder


def profile_recipe(options: argparse.Namespace) -> int:
    """Traces a recipe and reports."""
    from jhgnn.profiling import ncu
    from jhgnn.profiling.capture import capture
    from jhgnn.runtime.console import Say
    from jhgnn.runtime.jax_settings import configure_jax

    config = from_options(options)
    if options.ncu:
        ncu.find()
        if config.sampling.batch_size or config.task.name == "link_prediction":
            raise InputError("--ncu replays full-batch steps of node classification; leave it out for others")
    folder = output_folder(options, config)
    configure_jax()
    Say()(f"profiling {config.model.name}: {options.warm_up} steps to warm up, {options.steps} traced; in {folder}")
    capture(config, folder, warm_up=options.warm_up, steps=options.steps, with_barriers=options.barriers)
    if options.ncu:
        ncu.measure(folder)
    return report(folder, folder)


def report(source: Path, folder: Path) -> int:
    """Analyses a folder and writes profile.json, report.html and the figures."""
    from jhgnn.profiling.figures import draw_figures
    from jhgnn.profiling.report import write_report
    from jhgnn.profiling.stages import analyse
    from jhgnn.profiling.tables import print_profile
    from jhgnn.runtime.console import Say
    from jhgnn.runtime.files import write_json

    profile = analyse(source)
    write_json(folder / "profile.json", profile)
    write_report(profile, folder / "report.html")
    draw_figures(profile, folder)
    print_profile(Say(), profile)
    Say()(f"profile folder: {folder} (open report.html)")
    return 0


def load_profile(path: Path) -> dict[str, Any]:
    """Reads a profile.json, or that of a folder.

    Raises:
        InputError: there is none, or it has another schema.
    """
    from jhgnn.profiling.stages import SCHEMA

    file = path / "profile.json" if path.is_dir() else path
    try:
        profile = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"profile {file}: {error.strerror}; name a folder that jhgnn.profile wrote") from None
    except ValueError as error:
        raise InputError(f"profile {file}: not JSON: {error}") from None
    found = profile.get("schema") if isinstance(profile, dict) else None
    if found != SCHEMA:
        raise InputError(f"profile {file}: schema is {found!r}, need {SCHEMA}; profile again")
    return dict(profile)


def compare(first: Path, second: Path, options: argparse.Namespace) -> int:
    """Prints two profiles side by side and writes compare.html."""
    from jhgnn.profiling.report import write_comparison
    from jhgnn.profiling.tables import print_comparison
    from jhgnn.runtime.console import Say

    profiles = (load_profile(first), load_profile(second))
    folder = Path(getattr(options, "run.dir", "") or ".").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    write_comparison(profiles, (str(first), str(second)), folder / "compare.html")
    print_comparison(Say(), profiles, (str(first), str(second)))
    Say()(f"written to {folder / 'compare.html'}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code (docs/reliability.md), after one line on stderr where it is not 0."""

    def command(_: Leaving) -> int:
        options = parse(arguments)
        if options.compare:
            return compare(Path(options.compare[0]), Path(options.compare[1]), options)
        if options.trace:
            source = Path(options.trace).expanduser()
            folder = Path(
                getattr(options, "run.dir", "") or (source if source.is_dir() else source.parent)
            ).expanduser()
            if not source.exists():
                raise InputError(f"--trace {source}: there is no such file or folder")
            folder.mkdir(parents=True, exist_ok=True)
            return report(source, folder)
        return profile_recipe(options)

    return exits.ending(command)


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
