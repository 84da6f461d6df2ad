"""`jhgnn COMMAND`, or `python -m jhgnn COMMAND`: the commands under one name."""

import importlib
import sys
from collections.abc import Sequence

from jhgnn.runtime.huge_pages import restart_on_huge_pages

COMMANDS = {
    "train": ("jhgnn.train", "train, evaluate, checkpoint and resume a recipe"),
    "predict": ("jhgnn.predict", "predictions and embeddings from a run"),
    "serve": ("jhgnn.serve", "answers for single nodes, line by line"),
    "explain": ("jhgnn.explain", "what predictions of single nodes rest on"),
    "profile": ("jhgnn.profile", "where a training step spends its time and memory"),
    "search": ("jhgnn.search", "choose fields of a recipe by validation scores"),
    "partition": ("jhgnn.partition", "cut a heterograph into parts"),
    "describe": ("jhgnn.data.__main__", "what a data set holds, and what its metapaths would become"),
}
"""The module of each, and what it is for."""

_ON_HUGE_PAGES = ("train", "predict", "serve", "explain", "profile", "search")


def usage() -> str:
    """What `jhgnn --help` prints."""
    lines = [f"  {name:<10} {help_text}" for name, (_, help_text) in COMMANDS.items()]
    return "\n".join(
        (
            "usage: jhgnn COMMAND ...",
            "",
            *lines,
            "",
            "jhgnn COMMAND --help lists a command's options; python -m jhgnn.COMMAND is the same.",
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; gives its exit code, and 2, after one line on stderr, for one that there is not."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0
    if words[0] not in COMMANDS:
        print(f"error: command line: {words[0]!r} is none of {', '.join(COMMANDS)}; see jhgnn --help", file=sys.stderr)
        return 2
    if arguments is None and words[0] in _ON_HUGE_PAGES:
        restart_on_huge_pages()
    command = importlib.import_module(COMMANDS[words[0]][0])
    return int(command.main(words if words[0] == "describe" else words[1:]))


if __name__ == "__main__":
    sys.exit(main())
