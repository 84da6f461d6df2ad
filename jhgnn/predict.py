"""`python -m jhgnn.predict`: predictions and embeddings from a finished or interrupted run, of nodes or of links."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser
from jhgnn.config.recipe import override
from jhgnn.errors import InputError, StorageError
from jhgnn.runtime import exits
from jhgnn.runtime.files import write_array, write_text
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.runtime.interrupt import Leaving
from jhgnn.runtime.storage_cause import OF_STORAGE


def predict(config: Config, folder: Path, output: Path) -> str:
    """Writes `predictions.csv`, `probabilities.npy` and `embeddings.npy` into `output`; returns a line that says so.

    Of a run of link prediction: `links.csv`, `embeddings_TYPE.npy` and `relations.npy`.

    Raises:
        InputError: the run has no complete checkpoint, the data has changed, or the output's folder cannot be written.
        StorageError: there is no room for the output, or its disk fails.
    """
    from jhgnn.run import Run

    run = Run.open(folder, config=config)
    files = run.prediction_files()
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            if isinstance(content, str):
                write_text(output / name, content)
            else:
                write_array(output / name, content)
    except OSError as error:
        if error.errno not in OF_STORAGE:
            raise InputError(f"--output {output}: {error.strerror}; name a folder that can be written") from None
        raise StorageError(
            f"--output {output}: {error.strerror}; the run is as it was: mend that, and start again"
        ) from None
    return f"{run.describe_predictions()}, parameters of epoch {run.best_epoch}: {output}"


def parser() -> OneLineParser:
    """The command line; wrong arguments raise InputError."""
    parser = OneLineParser(
        prog="python -m jhgnn.predict", description="Predictions and embeddings of all target nodes of a run."
    )
    parser.add_argument("--run", required=True, metavar="DIR", help="run folder, as train printed it")
    parser.add_argument("--output", metavar="DIR", help="where to write (default: DIR/predictions)")
    parser.add_argument(
        "--data.path", dest="data_path", metavar="PATH", help="where the data lies now, if it has moved"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code (docs/reliability.md), after one line on stderr where it is not 0."""

    def command(_: Leaving) -> int:
        options = parser().parse_args(arguments)
        folder = Path(options.run).expanduser()
        from jhgnn.run import read_recipe  # imports JAX: not for a wrong argument

        config = read_recipe(folder)
        if options.data_path is not None:
            config = override(config, {"data": {"path": options.data_path}}, where="command line")
        output = Path(options.output).expanduser() if options.output else folder / "predictions"
        print(predict(config, folder, output))
        return 0

    return exits.ending(command, interrupted="ended at once; the run is as it was: start again")


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
