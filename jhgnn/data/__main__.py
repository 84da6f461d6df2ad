"""`python -m jhgnn.data describe PATH`: what a data set holds, and what its metapaths would become."""

import argparse
import itertools
import sys
from collections.abc import Sequence
from typing import NoReturn

from jhgnn.errors import InputError
from jhgnn.runtime import exits
from jhgnn.runtime.interrupt import Leaving
from jhgnn.runtime.memory_limit import GIB


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"command line: {message}; see python -m jhgnn.data describe --help")


def parser() -> argparse.ArgumentParser:
    """The command line; wrong arguments raise InputError."""
    from jhgnn.data.detect import RULES
    from jhgnn.data.formats import FORMATS

    top = _Parser(prog="python -m jhgnn.data", description="Look at heterographs on disk.", allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="describe")
    one = commands.add_parser(
        "describe",
        allow_abbrev=False,
        help="types, counts, degrees, densities, labels, splits, and the size of each metapath's semantic graph",
        description="Prints node types, counts, features and their densities, relations with degrees and densities,"
        " labels, splits, and for each metapath the edges that the semantic graph build would produce, before producing"
        " it: counted where that takes about a second, else estimated from sampled rows with a standard error.",
        epilog="Exit code: 0; 2 with one line on stderr where the input or an argument is wrong.",
    )
    one.add_argument(
        "path", metavar="PATH", help="folder, file or zip as downloaded, or the name of a synthetic preset"
    )
    one.add_argument(
        "--format",
        choices=tuple(FORMATS),
        help=f"layout; found from the file names where not given, the first of {RULES}",
    )
    one.add_argument("--target", metavar="TYPE", help="labelled node type; found by itself where there is only one")
    one.add_argument(
        "--metapaths",
        nargs="+",
        metavar="METAPATH",
        help="metapaths as a recipe writes them: PAP (initials), paper,author,paper (types) or relations;"
        " default: those that the schema suggests for the target",
    )
    one.add_argument(
        "--reverse-relations",
        action="store_true",
        help="add the reverse of every relation that has none, as a recipe can",
    )
    one.add_argument(
        "--memory-limit-gib",
        type=float,
        metavar="GIB",
        help="what a build may take, as sgb.memory_limit_gib; default: half of the memory available now",
    )
    one.add_argument("--scale", type=float, default=1.0, help="share of a synthetic graph's full size (default: 1)")
    one.add_argument("--seed", type=int, default=0, help="of synthetic data and drawn splits (default: 0)")
    one.add_argument("--no-progress", action="store_true", help="do not report on stderr while large files are read")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""

    def command(_: Leaving) -> int:
        options = parser().parse_args(arguments)
        from rich.console import Console

        from jhgnn.config.suggested import suggested
        from jhgnn.data.describe import describe, render, suggestions
        from jhgnn.data.detect import detect_format
        from jhgnn.data.formats import load

        if options.memory_limit_gib is not None and not options.memory_limit_gib > 0:
            raise InputError(f"command line: --memory-limit-gib {options.memory_limit_gib} must be above 0")
        layout = options.format or detect_format(options.path)
        graph = load(
            layout,
            options.path,
            target=options.target,
            scale=options.scale,
            seed=options.seed,
            progress=not options.no_progress,
        )
        if options.reverse_relations:
            graph = graph.with_reverse_relations()
        limit_bytes = None if options.memory_limit_gib is None else int(options.memory_limit_gib * GIB)
        console = Console(highlight=False)
        console.print(f"{graph.name} ({layout}): {options.path}\n", markup=False, soft_wrap=True)
        sections = describe(graph, options.metapaths, memory_limit_bytes=limit_bytes)
        render(itertools.chain(sections, suggestions(suggested(layout, sum(graph.num_nodes.values())))), console)
        return 0

    advice = "take a smaller share with --scale, or a machine with more memory"
    # The code is for `describe PATH | head`.
    return exits.ending(command, memory_advice=advice, closed_pipe=exits.DONE, runs_jax=False)


if __name__ == "__main__":
    sys.exit(main())
