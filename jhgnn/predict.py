"""`python -m jhgnn.predict`: predictions and embeddings from a finished or interrupted run, of nodes or of links."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.runtime import exits
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.runtime.interrupt import Leaving
from jhgnn.runtime.output_folder import write_output

if TYPE_CHECKING:
    from jhgnn.inference.new_rows import NewNodes
    from jhgnn.inference.predictor import Predictor


NEW_NODES = ("refuse", "mean")


def predict(
    config: Config,
    folder: Path,
    output: Path,
    *,
    moved: bool = False,
    nodes: str = "",
    new_nodes: "NewNodes" = "refuse",
) -> str:
    """Writes `predictions.csv`, `probabilities.npy` and `embeddings.npy` into `output`; returns a line that says so.

    Of a run of link prediction: `links.csv`, `embeddings_TYPE.npy` and `relations.npy`.

    Args:
        config: the run's recipe, with the data to predict.
        folder: of the run.
        output: the folder to write.
        moved: the data is not where the recipe had it: the same in another place, one that has grown, or another one.
        nodes: keys between commas, or `@FILE` with a key a line; empty: all target nodes.
        new_nodes: as `Run.predict`.

    Raises:
        InputError: the run has no complete checkpoint, the data does not fit it, a node has no row, or the output's
            folder cannot be written.
        StorageError: there is no room for the output, or its disk fails.
    """
    from jhgnn.run import Run

    keys = node_keys(nodes) if nodes else None
    found = other_graph(config, folder, new_nodes) if moved else None
    if found is not None:
        predictor, best_epoch = found
        ids = None if keys is None else predictor.ids(keys)
        files, what = predictor.files(ids), predictor.task.describe_predictions()
    else:
        run = Run.open(folder, config=config)
        best_epoch, what = run.best_epoch, run.describe_predictions()
        if keys is None:
            files = run.prediction_files()
        else:
            predictor = run.predictor()
            files = predictor.files(predictor.ids(keys))
    if keys is not None:
        what = f"{len(keys):,} of {what}"
    write_output("--output", output, files)
    return f"{what}, parameters of epoch {best_epoch}: {output}"


def other_graph(config: Config, folder: Path, new_nodes: "NewNodes") -> "tuple[Predictor, int] | None":
    """A run's predictor on the data that a recipe names, and its best epoch.

    None where the run does not remember what it was trained on: then the data must be that.
    """
    from jhgnn.inference.trained_on import TrainedOn
    from jhgnn.run import open_on
    from jhgnn.training.problem import read_graph

    trained = TrainedOn.read(folder)
    if trained is None:
        return None
    if config.data.format in ("jhgnn", "tables"):  # labels, and with them a target, need not be there
        config = override(config, {"data": {"target": ""}}, where="command line")
    return open_on(folder, config, read_graph(config, like=trained), trained, new_nodes=new_nodes)


def node_keys(text: str) -> list[str]:
    """The keys that `--nodes` names.

    Raises:
        InputError: the file cannot be read, or there are none.
    """
    if text.startswith("@"):
        try:
            keys = Path(text[1:]).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise InputError(f"--nodes {text}: the file cannot be read: {error}") from None
    else:
        keys = text.split(",")
    keys = [key.strip() for key in keys if key.strip()]
    if not keys:
        raise InputError(f"--nodes {text}: names no node; give keys between commas, or @FILE with one a line")
    return keys


def recipe_of(options: argparse.Namespace) -> tuple[Config, bool]:
    """The recipe of the run that `--run` names, with the data that the command line names anew; and whether it does.

    Raises:
        InputError: the folder holds no run, or a field cannot be what is named.
    """
    from jhgnn.run import read_recipe  # imports JAX: not for a wrong argument

    config = read_recipe(Path(options.run).expanduser())
    named = {"path": options.data_path, "format": options.data_format}
    changes = {name: value for name, value in named.items() if value is not None}
    return (override(config, {"data": changes}, where="command line") if changes else config), bool(changes)


def add_data_options(parser: OneLineParser) -> None:
    """The options that `predict` and `serve` share."""
    parser.add_argument("--run", required=True, metavar="DIR", help="run folder, as train printed it")
    parser.add_argument(
        "--data.path",
        dest="data_path",
        metavar="PATH",
        help="the graph to predict: the data where it lies now, if it has moved, or has grown, or another graph",
    )
    parser.add_argument("--data.format", dest="data_format", metavar="NAME", help="its format (default: the recipe's)")
    parser.add_argument(
        "--new-nodes",
        choices=NEW_NODES,
        default="refuse",
        help="nodes that training did not know, of types without features: refuse them (default), or give them the mean"
        " row of nodes that share a neighbour with them",
    )


def parser() -> OneLineParser:
    """The command line; wrong arguments raise InputError."""
    parser = OneLineParser(
        prog="python -m jhgnn.predict",
        description="Predictions and embeddings of a run's target nodes, of its own graph or another one.",
    )
    add_data_options(parser)
    parser.add_argument("--output", metavar="DIR", help="where to write (default: DIR/predictions)")
    parser.add_argument(
        "--nodes",
        metavar="KEY,...",
        default="",
        help="predict these nodes alone, by their keys, or by their numbers where they have none; @FILE: a key a line",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code (docs/reliability.md), after one line on stderr where it is not 0."""

    def command(_: Leaving) -> int:
        options = parser().parse_args(arguments)
        folder = Path(options.run).expanduser()
        config, moved = recipe_of(options)
        output = Path(options.output).expanduser() if options.output else folder / "predictions"
        print(predict(config, folder, output, moved=moved, nodes=options.nodes, new_nodes=options.new_nodes))
        return 0

    return exits.ending(command, interrupted="ended at once; the run is as it was: start again")


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
