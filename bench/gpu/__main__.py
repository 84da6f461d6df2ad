"""`python -m bench.gpu compile`: what recipes' programs are made of when they are compiled for GPUs, without one.
`python -m bench.gpu kernels`: registers, spills and shared memory of our kernels, by ptxas.
`python -m bench.gpu run`: what all of it takes where there is a GPU.
`python -m bench.gpu predicted`: what was predicted of an H200, beside what it measured.
`python -m bench.gpu page`: the page's tables of stored runs.
"""

import argparse
import sys

from bench.gpu import compile_lane, kernel_resources, measured_page, predicted
from bench.gpu.measure import command

COMMANDS = {
    "compile": compile_lane,
    "kernels": kernel_resources,
    "run": command,
    "predicted": predicted,
    "page": measured_page,
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.__doc__, description=module.__doc__))
    return made


def main() -> int:
    options = parser().parse_args()
    return COMMANDS[options.command].run(options)


if __name__ == "__main__":
    sys.exit(main())
