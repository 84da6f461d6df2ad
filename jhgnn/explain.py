"""`python -m jhgnn.explain`: what predictions of single nodes rest on, as JSON and as a page."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jhgnn.config.command_line import OneLineParser, add_section, section_from
from jhgnn.config.options import ExplainConfig
from jhgnn.predict import add_data_options, node_keys, other_graph, recipe_of
from jhgnn.runtime import exits
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.runtime.interrupt import Leaving
from jhgnn.runtime.output_folder import write_output


def parser() -> OneLineParser:
    """The command line; wrong arguments raise InputError."""
    parser = OneLineParser(
        prog="python -m jhgnn.explain",
        description="Which relations, metapaths, edges and features the predictions of some nodes rest on.",
    )
    add_data_options(parser)
    parser.add_argument(
        "--nodes",
        metavar="KEY,...",
        required=True,
        help="target nodes by their keys, or by their numbers where they have none; @FILE: a key a line",
    )
    parser.add_argument("--output", metavar="DIR", help="where to write (default: DIR/explanations)")
    add_section(parser, ExplainConfig)
    return parser


def explain(options: argparse.Namespace) -> str:
    """Writes `explanations.json` and `explanations.html`; returns a line that says so.

    Raises:
        InputError: the run, the data, a key or a setting is not what it should be.
        StorageError: there is no room for the output, or its disk fails.
    """
    settings: ExplainConfig = section_from(options, ExplainConfig)
    keys = node_keys(options.nodes)
    folder = Path(options.run).expanduser()
    config, moved = recipe_of(options)
    output = Path(options.output).expanduser() if options.output else folder / "explanations"
    from jhgnn.explaining.explainer import explain as explain_nodes
    from jhgnn.explaining.explainer import files_of
    from jhgnn.run import Run  # imports JAX: not for a wrong argument

    found = other_graph(config, folder, options.new_nodes) if moved else None
    predictor = Run.open(folder, config=config).predictor() if found is None else found[0]
    explained = explain_nodes(predictor, predictor.ids(keys).tolist(), settings)
    write_output("--output", output, files_of(explained, f"{config.model.name} on {predictor.graph.name}"))
    for each in explained:
        first = each.relations[0].relation if each.relations else "no relation"
        print(f"{each.node}: {each.predicted} ({each.probability:.1%}), moved most by {first}")
    return f"{len(explained):,} explanations: {output}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code (docs/reliability.md), after one line on stderr where it is not 0."""

    def command(_: Leaving) -> int:
        print(explain(parser().parse_args(arguments)))
        return 0

    return exits.ending(command, interrupted="ended at once; the run is as it was: start again")


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
