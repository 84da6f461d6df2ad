"""`python -m bench.gpu compile`: what recipes' programs are made of when they are compiled for GPUs, without one."""

import argparse
import sys

from bench.gpu import compile_lane


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    compile_lane.add_arguments(commands.add_parser("compile", help=compile_lane.__doc__))
    return made


def main() -> int:
    return compile_lane.run(parser().parse_args())


if __name__ == "__main__":
    sys.exit(main())
