"""`python -m bench.gpu compile`: what recipes' programs are made of when they are compiled for GPUs, without one.
`python -m bench.gpu run`: what they take where there is one.
"""

import argparse
import sys

from bench.gpu import compile_lane
from bench.gpu.measure import command

COMMANDS = {"compile": compile_lane, "run": command}


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
