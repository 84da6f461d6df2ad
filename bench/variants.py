"""What a setting of mini-batch training costs or saves: one recipe with several values of a field, in paired rounds.

    python -m bench.variants --config configs/rgcn_mag.toml --vary sampling.feature_dtype=float32,bfloat16

The first value is what the others are compared with. All other options are those of a recipe. Printed are targets a
second, times those of the first value, processor time a batch, what the loader's threads do in it, and temporary
memory of the step. A value holds no comma.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from bench.paired_rounds import paired_rounds
from bench.record import commit, store
from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.config.recipe import fields_of, nearest
from jhgnn.errors import InputError
from jhgnn.runtime.console import Say
from jhgnn.training.prepare import prepare
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_programs import SampledPrograms


def variants(options: argparse.Namespace) -> dict[str, Config]:
    """The recipe with each value of the field that varies.

    Raises:
        InputError: `--vary` is not FIELD=VALUE,VALUE, or names no field; what a recipe refuses.
    """
    field, equals, values = options.vary.partition("=")
    names = list(dict.fromkeys(filter(None, values.split(","))))
    if not equals or len(names) < 2:
        raise InputError(f"--vary: {options.vary!r}; need FIELD=VALUE,VALUE, such as sampling.threads=1,2")
    sections = {section: cast(type, each.type) for section, each in fields_of(Config).items()}
    known = [f"{section}.{name}" for section, each in sections.items() for name in fields_of(each)]
    if field not in known:
        raise InputError(f"--vary: {field!r} is no field of a recipe{nearest(field, known)}")
    return {name: from_options(argparse.Namespace(**vars(options) | {field: name})) for name in names}


def compiled(config: Config) -> SampledPrograms:
    """Programs of mini-batches.

    Raises:
        InputError: the recipe trains on whole graphs.
    """
    execution = prepare(config)
    if not isinstance(execution, Sampled):
        raise InputError("the recipe trains on whole graphs; set sampling.batch_size")
    return execution.compile()


def measure(options: argparse.Namespace) -> None:
    ways = {name: compiled(config) for name, config in variants(options).items()}
    found = paired_rounds(ways, rounds=options.rounds, steps=options.steps)
    rows = [
        [
            name,
            f"{row['targets_a_second']:,.0f}",
            f"{row['times_first']:.3f}",
            f"{row['cpu_ms']:.1f}",
            f"{row['cpu_of_first']:.3f}",
            ", ".join(f"{part} {value:.1f}" for part, value in row["host_ms_a_batch"].items()) or "-",
            f"{row['peak_temp_bytes'] / 2**20:.1f}",
        ]
        for name, row in found.items()
    ]
    columns = ["value", "targets a second", "times first", "CPU ms", "CPU, of first", "loader, ms", "temporaries, MiB"]
    Say().table(f"{options.vary}: {options.rounds} rounds of {options.steps} batches", columns, rows)
    if options.out:
        load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        command = f"python -m bench.variants {shlex.join(sys.argv[1:])}"
        store(options.out, {"command": command, "commit": commit(), "machine": load, "values": found})


def main() -> int:
    try:
        measure(parse())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = OneLineParser(prog="python -m bench.variants", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--vary", required=True, metavar="FIELD=VALUE,VALUE", help="field of the recipe, and its values"
    )
    parser.add_argument("--steps", type=int, default=12, help="batches of a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
