"""`python -m jhgnn.serve`: a resident process that predicts one node a line, from keys on stdin to JSON on stdout."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from jhgnn.config.command_line import OneLineParser
from jhgnn.errors import InputError
from jhgnn.predict import add_data_options, other_graph, recipe_of
from jhgnn.runtime import exits
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.runtime.interrupt import Leaving

if TYPE_CHECKING:
    from jhgnn.inference.predictor import Predictor


def serve(predictor: "Predictor", lines: Iterable[str], out: TextIO) -> list[float]:
    """Answers each line; returns the milliseconds that each answer with a prediction took.

    An answer is one line of JSON: `node`, `predicted` (a list where a node may have several classes), `probability` of
    it (a list likewise), and `ms`. A key that no node has, or a node that has no row, gets `node` and `error`.
    """
    graph, taken = predictor.graph, []
    for line in lines:
        key = line.strip()
        if not key:
            continue
        start = time.perf_counter()
        answer: dict[str, Any] = {"node": key}
        try:
            (row,) = predictor.probabilities(predictor.ids([key]))
        except InputError as error:
            answer["error"] = str(error)
        else:
            chosen = np.flatnonzero(row > 0.5) if graph.multi_label else row.argmax()[None]
            names = [graph.class_names[each] if graph.class_names else int(each) for each in chosen]
            odds = [round(float(row[each]), 6) for each in chosen]
            several = graph.multi_label
            answer |= {"predicted": names if several else names[0], "probability": odds if several else odds[0]}
            taken.append((time.perf_counter() - start) * 1e3)
            answer["ms"] = round(taken[-1], 3)
        print(json.dumps(answer, ensure_ascii=False), file=out, flush=True)
    return taken


def warm(predictor: "Predictor", count: int) -> None:
    """Predicts target nodes drawn at random, so that what they need is compiled and read before the first question."""
    size = predictor.graph.num_nodes[predictor.target]
    for node in np.random.default_rng(0).integers(0, size, count):
        try:
            predictor.probabilities(np.array([node], np.int32))
        except InputError:  # a new node without a row; who asks for it is told
            continue


def parser() -> OneLineParser:
    """The command line; wrong arguments raise InputError."""
    parser = OneLineParser(
        prog="python -m jhgnn.serve",
        description="Predicts target nodes one by one: a key a line on stdin, an answer in JSON a line on stdout.",
    )
    add_data_options(parser)
    parser.add_argument(
        "--warm", type=int, default=100, metavar="N", help="nodes to predict before the first question (default: 100)"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command until stdin ends; gives its exit code, after one line on stderr where it is not 0."""

    def command(_: Leaving) -> int:
        options = parser().parse_args(arguments)
        if options.warm < 0:
            raise InputError(f"--warm {options.warm}: need 0 or more")
        folder = Path(options.run).expanduser()
        config = recipe_of(options)[0]
        from jhgnn.run import Run  # imports JAX: not for a wrong argument

        found = other_graph(config, folder, options.new_nodes) if config.data.path else None
        predictor = Run.open(folder, config=config).predictor() if found is None else found[0]
        predictor.prepare()
        warm(predictor, options.warm)
        count = predictor.graph.num_nodes[predictor.target]
        print(f"ready: {count:,} {predictor.target} nodes", file=sys.stderr, flush=True)
        taken = serve(predictor, sys.stdin, sys.stdout)
        if taken:
            p50, p99 = np.percentile(taken, [50, 99])
            print(f"{len(taken):,} answers: p50 {p50:.1f} ms, p99 {p99:.1f} ms", file=sys.stderr)
        return 0

    return exits.ending(command, interrupted="ended at once; every answer that was given is whole")


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
