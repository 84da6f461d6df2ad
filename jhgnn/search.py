"""`python -m jhgnn.search`: choose fields of a recipe by validation scores."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.errors import InputError
from jhgnn.runtime import exits
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.searching.space import EXAMPLES, parse_space


def parse(arguments: Sequence[str] | None) -> tuple[Config, argparse.Namespace]:
    """Reads the command line: the recipe to start from, and what is searched."""
    parser = OneLineParser(
        prog="python -m jhgnn.search",
        description="Choose fields of a recipe by validation scores: trials are trained one after the other, and ended"
        " early where they fall behind. Test scores are never looked at. The same command continues a search.",
        epilog="example: python -m jhgnn.search --config configs/han_acm.toml --trials 40"
        " --search model.dropout=0..0.8 'training.learning_rate=1e-3..2e-2 log' model.heads=4,8",
    )
    parser.add_argument(
        "--search",
        nargs="+",
        default=[],
        metavar="FIELD=VALUES",
        help=f"fields to choose, with their values or ranges: {EXAMPLES}".replace("%", "%%"),
    )
    parser.add_argument("--trials", type=int, default=30, metavar="N", help="trials in all (default 30)")
    parser.add_argument(
        "--seeds",
        type=int,
        default=0,
        metavar="N",
        help="then train the best trials and the recipe itself with N other seeds each, and pick by their mean; 0: pick"
        " the best trial by its own figure, which is of one seed (default 0)",
    )
    parser.add_argument(
        "--finalists", type=int, default=5, metavar="N", help="with --seeds, how many of the best trials (default 5)"
    )
    parser.add_argument("--out", metavar="FOLDER", help="folder of the search; default: searches/RECIPE-NAME")
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.trials < 1:
        raise InputError(f"command line: --trials {options.trials} must be at least 1")
    if options.seeds < 0:
        raise InputError(f"command line: --seeds {options.seeds} must be at least 0")
    if options.finalists < 1:
        raise InputError(f"command line: --finalists {options.finalists} must be at least 1")
    return from_options(options), options


def search(config: Config, options: argparse.Namespace) -> int:
    """Runs the search and writes the best recipe, the table and the plot; the exit code."""
    space = parse_space(options.search, config)
    from jhgnn.runtime.console import Say
    from jhgnn.runtime.interrupt import stop_on_signals
    from jhgnn.runtime.jax_settings import configure_jax
    from jhgnn.runtime.processes import are_several
    from jhgnn.searching import finals
    from jhgnn.searching.report import draw, show, write_trials
    from jhgnn.searching.study import Study, write_best
    from jhgnn.training.problem import read_graph
    from jhgnn.training.run_folder import claimed

    if are_several(config.distributed):
        raise InputError("a search runs in one process; leave out distributed.coordinator")
    name = Path(options.config).stem if options.config else config.model.name
    folder = Path(options.out or Path("searches", name)).expanduser()
    say = Say()
    study = Study(folder, config, space)
    with claimed(folder), stop_on_signals() as stop:
        configure_jax()
        graph = read_graph(config)
        study.run(graph, options.trials, say, stop)
        best = study.best
        if study.trials:
            write_trials(study)
        if best is not None:
            show(study, say)
            draw(study)
            name, chosen = f"trial {best.number + 1}", study.config_of(best)
            if options.seeds and not stop:
                finalists = finals.play(study, graph, options.seeds, options.finalists, say, stop)
                if finalists and not stop:
                    finals.show(finalists, study.figure, say)
                    name, chosen = finalists[0].name, finalists[0].config
            say(f"the best recipe, {name}: {write_best(study, chosen)}")
        if stop.signal is not None:
            say(f"{stop.signal.name}: {len(study.trials)} trials are kept; the same command goes on")
            return 128 + stop.signal
    if best is None:
        raise InputError(f"--search: none of {len(study.trials)} trials could be trained; see {folder / 'trials.csv'}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code (docs/reliability.md), after one line on stderr where it is not 0."""
    ended = "ended at once; trials that ended are kept, and the same command goes on"
    return exits.ending(lambda _: search(*parse(arguments)), interrupted=ended)


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
