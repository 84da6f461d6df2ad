"""`python -m jhgnn.predict`: predictions and embeddings from a finished or interrupted run, of nodes or of links."""

import csv
import dataclasses
import functools
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.huge_pages import restart_on_huge_pages
from jhgnn.recipe import OneLineParser, load_recipe, override


def predict(config: Config, folder: Path, output: Path) -> str:
    """Writes `predictions.csv`, `probabilities.npy` and `embeddings.npy` into `output`; returns a line that says so.

    Of a run of link prediction: `links.csv`, `embeddings_TYPE.npy` and `relations.npy`.

    Raises:
        InputError: the run has no complete checkpoint, the data has changed, or the output cannot be written.
    """
    import jax

    from jhgnn.train import configure_jax
    from jhgnn.training.checkpoint import CheckpointStore
    from jhgnn.training.minibatch_predict import predict_minibatches
    from jhgnn.training.minibatch_problem import prepare_minibatches
    from jhgnn.training.problem import prepare
    from jhgnn.training.state import abstract_params, model_structure
    from jhgnn.training.step import apply_model

    store = CheckpointStore(folder / "checkpoints")
    seeds = sorted(path.parent for path in folder.glob("seed-*/checkpoints"))
    if seeds and not store.exists():
        raise InputError(f"--run {folder}: holds a run of several seeds; name one of them, such as {seeds[0]}")
    progress = store.progress()
    configure_jax()
    if config.task.name == "link_prediction":
        return f"{_predict_links(config, store, output)}, parameters of epoch {progress.best_epoch}: {output}"
    if config.sampling.batch_size:
        problem: Any = prepare_minibatches(config)
    else:  # no step is run
        problem = prepare(dataclasses.replace(config, training=dataclasses.replace(config.training, rows="all")))
    params = store.load_best_params(abstract_params(config.model, problem.spec))
    if config.sampling.batch_size:
        logits, embeddings = predict_minibatches(problem, config, params)
    else:
        structure = model_structure(config.model, problem.spec)
        logits, embeddings = jax.jit(functools.partial(apply_model, structure))(params, problem.inputs)
    probabilities = jax.nn.sigmoid(logits) if problem.graph.multi_label else jax.nn.softmax(logits)
    try:
        output.mkdir(parents=True, exist_ok=True)
        _save(output / "probabilities.npy", np.asarray(probabilities))
        _save(output / "embeddings.npy", np.asarray(embeddings))
        from jhgnn.training.reporting import write_text

        write_text(output / "predictions.csv", predictions_csv(problem.graph, np.asarray(probabilities)))
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}; name a folder that can be written") from None
    target, count = problem.graph.target, len(probabilities)
    return f"{count:,} {target} nodes, parameters of epoch {progress.best_epoch}: {output}/predictions.csv, *.npy"


def _predict_links(config: Config, store: Any, output: Path) -> str:
    """Writes `links.csv`, `embeddings_TYPE.npy` and `relations.npy`; returns what they hold."""
    from jhgnn.training.link_predict import arrays, predict_links
    from jhgnn.training.link_problem import prepare_links
    from jhgnn.training.reporting import write_text
    from jhgnn.training.state import shapes_of

    problem = prepare_links(config)
    params = store.load_best_params(shapes_of(problem.builder(config)))
    rows, table = predict_links(problem, config, params)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for stem, array in arrays(rows, problem.ends).items():
            _save(output / f"{stem}.npy", array)
        write_text(output / "links.csv", table)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}; name a folder that can be written") from None
    return f"{problem.split_size('val') + problem.split_size('test'):,} held-out links"


def predictions_csv(graph: HeteroGraph, probabilities: np.ndarray) -> str:
    """One row a target node: id, predicted class (classes joined by `|`), its probability, label, split.

    A node without a label or a split has an empty field there; for multi-label data the probability is that of the
    least certain class among those predicted, empty where none is.
    """
    splits = np.full(len(probabilities), "", dtype="<U5")
    for split, ids in graph.splits.items():
        splits[ids] = split
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", "predicted", "probability", "label", "split"])
    for node, row in enumerate(probabilities):
        predicted = np.flatnonzero(row > 0.5) if graph.multi_label else [int(row.argmax())]
        certainty = f"{row[predicted].min():.6f}" if len(predicted) else ""
        writer.writerow([node, _joined(predicted), certainty, _label(graph, node), splits[node]])
    return text.getvalue()


def _label(graph: HeteroGraph, node: int) -> str:
    assert graph.labels is not None
    if graph.multi_label:
        return _joined(np.flatnonzero(graph.labels[node]))
    return "" if graph.labels[node] < 0 else str(int(graph.labels[node]))


def _joined(classes: Sequence[int] | np.ndarray) -> str:
    return "|".join(str(int(each)) for each in classes)


def _save(path: Path, array: np.ndarray) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    temporary.replace(path)


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
    """Runs the command; bad input is one line on stderr and exit code 2."""
    try:
        options = parser().parse_args(arguments)
        folder = Path(options.run).expanduser()
        if not (folder / "recipe.toml").exists():
            raise InputError(f"--run {folder}: holds no run (no recipe.toml); give the folder that train printed")
        config = load_recipe(folder / "recipe.toml")
        if options.data_path is not None:
            config = override(config, {"data": {"path": options.data_path}}, where="command line")
        output = Path(options.output).expanduser() if options.output else folder / "predictions"
        print(predict(config, folder, output))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
