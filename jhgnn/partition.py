"""`python -m jhgnn.partition`: cut a heterograph into parts, or plan which shard computes which relations."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.errors import InputError
from jhgnn.runtime import exits
from jhgnn.runtime.console import Say
from jhgnn.runtime.interrupt import Leaving

if TYPE_CHECKING:
    from jhgnn.distributed.assignment import Assignment
    from jhgnn.graph.hetero_graph import HeteroGraph
    from jhgnn.graph.schema import Metapath

METHODS = ("metis", "random", "metapath", "given", "meta")
DISTDGL, CHUNKS = "distdgl", "dgl_chunks"


def parser() -> OneLineParser:
    """The command line; wrong arguments raise InputError."""
    from jhgnn.data.formats import FORMATS

    top = OneLineParser(
        prog="python -m jhgnn.partition",
        description="Cut a heterograph into parts, each of which a process reads alone; or, with --method meta, plan"
        " which shard computes which relations. What it would cost is printed before anything is written.",
        epilog="example: python -m jhgnn.partition --config configs/rgcn_mag.toml --parts 4 --out parts/mag-4",
    )
    top.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="data to read instead of the recipe's: a folder, file or zip as downloaded, the name of a synthetic"
        " preset, a folder in DGL's chunked format, or the JSON file of a DistDGL partition",
    )
    top.add_argument(
        "--format",
        choices=(*FORMATS, CHUNKS, DISTDGL),
        help="layout of PATH; found from the file names where not given",
    )
    top.add_argument("--parts", type=int, metavar="N", help="number of parts, or of shards with --method meta")
    top.add_argument(
        "--method",
        choices=METHODS,
        default="metis",
        help="metis: fewest cut edges; random; metapath: label propagation along the recipe's metapaths; given: the"
        " parts of the DistDGL partition at PATH; meta: relations by shard, planned and not cut (default metis)",
    )
    top.add_argument(
        "--out", metavar="FOLDER", help="folder to write; with --method meta, the file to write the plan to"
    )
    top.add_argument("--plan", action="store_true", help="print the report and write nothing")
    top.add_argument("--chart", metavar="FILE", help="draw the report, as .png, .svg or .pdf")
    top.add_argument("--seed", type=int, default=0, help="of the method (default 0)")
    top.add_argument(
        "--tolerance",
        type=float,
        default=1.05,
        help="the most targets of a split that a part may own, over an equal share (default 1.05)",
    )
    top.add_argument(
        "--costs",
        choices=("stated", "measured"),
        default="stated",
        help="with --method meta, what work costs: as stated in the documentation, so that the plan is the same"
        " everywhere, or measured now on this machine (default stated)",
    )
    top.add_argument(
        "--network-gbit",
        type=float,
        default=10.0,
        metavar="GBIT",
        help="with --method meta, gigabits a second between shards: the slower, the more balance a plan gives up for"
        " less traffic (default 10)",
    )
    top.add_argument(
        "--whole-branches",
        action="store_true",
        help="with --method meta, a plan that cuts no branch deeper, as HAN and models with residuals need it",
    )
    top.add_argument("--overwrite", action="store_true", help="replace a partition that is there already")
    top.add_argument("--check", metavar="FOLDER", help="verify a partition instead: every file of every part")
    add_options(top)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code (docs/reliability.md), after one line on stderr where it is not 0."""

    def command(_: Leaving) -> int:
        options = parser().parse_args(arguments)
        config = from_options(options)
        return _check(options.check) if options.check else _partition(options, config)

    return exits.ending(
        command,
        interrupted="ended at once, before the parts were whole; start again",
        memory_advice="take a machine with more memory",
        runs_jax=False,
    )


def _check(folder: str) -> int:
    from jhgnn.distributed.part import check_partition
    from jhgnn.distributed.topology import check_topology

    manifest = check_partition(folder)
    if manifest.topology is not None:
        check_topology(Path(folder).expanduser(), manifest)
    counts = ", ".join(f"{count:,} {node_type}" for node_type, count in manifest.num_nodes.items())
    print(f"{folder}: {manifest.num_parts} parts of {manifest.graph_name} by {manifest.method} are whole: {counts}")
    return 0


def _partition(options: argparse.Namespace, config: Config) -> int:
    from jhgnn.distributed.cutting import assign
    from jhgnn.distributed.quality import assess
    from jhgnn.distributed.quality_report import draw_quality, print_quality
    from jhgnn.distributed.writing import check_free, write_partition
    from jhgnn.runtime.files import write_json

    _check_options(options)
    out = Path(options.out).expanduser() if options.out else None
    if out is not None and options.method == "meta":
        if out.exists() and not (options.overwrite and out.is_file()):
            raise InputError(f"{out} exists; choose another file, or replace it with --overwrite")
    elif out is not None:
        check_free(out, overwrite=options.overwrite)
    say = Say()
    graph, given = read_input(options, config)
    sizes = ", ".join(f"{count:,} {node_type}" for node_type, count in list(graph.num_nodes.items())[:8])
    say(f"{graph.name}: {sizes}; {graph.num_edges:,} edges in {len(graph.edges)} relations")
    if options.method == "meta":
        return _plan_shards(graph, config, options, say, out)
    if given is not None and options.parts not in (None, given.num_parts):
        raise InputError(f"command line: --parts {options.parts}, but the partition given has {given.num_parts}")
    assignment = given
    if assignment is None:
        metapaths = metapaths_of(graph, config) if options.method == "metapath" else ()
        assignment = assign(
            graph,
            options.method,
            options.parts,
            metapaths=metapaths,
            seed=options.seed,
            tolerance=options.tolerance,
        )
    quality = assess(graph, assignment)
    print_quality(say, quality)
    if options.chart:
        draw_quality(Path(options.chart), quality)
    if out is None:
        return 0

    def beside(folder: Path) -> None:
        write_json(folder / "report.json", quality.to_json())
        draw_quality(folder / "report.png", quality)

    write_partition(graph, assignment, out, overwrite=options.overwrite, progress=say, beside=beside)
    say(f"partition: {out}")
    return 0


def _plan_shards(graph: "HeteroGraph", config: Config, options: Any, say: Say, out: Path | None) -> int:
    """Plans, prints and draws; then writes the plan, which is all that `--method meta` writes."""
    from jhgnn.distributed.meta.measure import measure_plan, stored_bytes
    from jhgnn.distributed.meta.plan import write_plan
    from jhgnn.distributed.meta.planner import plan_shards
    from jhgnn.distributed.meta.report import draw_plan, print_plan
    from jhgnn.distributed.meta.request import request_of
    from jhgnn.distributed.meta.work import tree_work
    from jhgnn.models import find

    model = find(config.model.name)
    request = request_of(
        graph,
        config,
        metapaths_of(graph, config),
        over=model.over,
        reads_receivers=model.reads_receivers(config.model),
        measured_costs=options.costs == "measured",
        network_gbit=options.network_gbit,
    )
    plan = plan_shards(
        request.tree,
        request.counts,
        request.shape,
        request.costs,
        options.parts,
        whole_branches=options.whole_branches,
    )
    measured = measure_plan(
        graph,
        plan,
        request.fan_outs,
        request.other_batches,
        request.shape,
        request.costs,
        config.run.seed,
        request.first_other_step,
    )
    work = tree_work(request.tree, request.counts, request.shape, request.costs)
    print_plan(say, plan, request.counts, work, request.shape, measured, stored_bytes(graph, plan, request.shape))
    if options.chart:
        draw_plan(Path(options.chart), plan, measured)
    if out is not None:
        write_plan(plan, out)
        say(f"plan: {out}")
    return 0


def _check_options(options: argparse.Namespace) -> None:
    from jhgnn.distributed.assignment import check_num_parts

    if options.parts is None and options.method != "given":
        raise InputError("command line: --parts is missing; give the number of parts")
    if options.parts is not None:
        check_num_parts(options.parts)
    if bool(options.out) == options.plan:
        raise InputError("command line: give --out FOLDER to write the parts, or --plan to see the report alone")
    if not options.tolerance >= 1:
        raise InputError(f"command line: --tolerance {options.tolerance} must be at least 1, which is equal shares")
    if options.whole_branches and options.method != "meta":
        raise InputError(f"command line: --whole-branches is of --method meta, not of {options.method!r}; leave it out")
    if not 0 < options.network_gbit < float("inf"):
        raise InputError(f"command line: --network-gbit {options.network_gbit} must be above 0")
    if not 0 <= options.seed < 2**32:
        raise InputError(f"command line: --seed {options.seed} must be from 0 to {2**32 - 1}")
    if options.format and not options.path:
        raise InputError("command line: --format is of PATH, which is not given; a recipe has data.format")
    if options.chart and Path(options.chart).suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"command line: --chart {options.chart} must end in .png, .svg or .pdf")


def read_input(options: argparse.Namespace, config: Config) -> "tuple[HeteroGraph, Assignment | None]":
    """The graph of PATH, or else of the recipe, and the assignment that a DistDGL partition brings.

    Raises:
        InputError: what its reader finds wrong; `--method given` without a DistDGL partition.
    """
    from jhgnn.data.formats import load
    from jhgnn.distributed.dgl_chunks import read_dgl_chunks
    from jhgnn.distributed.distdgl import read_distdgl

    data, given = config.data, None
    target = data.target or None
    if options.path:
        layout = options.format or _detect(options.path)
        if layout == DISTDGL:
            graph, given = read_distdgl(options.path, target=target)
        elif layout == CHUNKS:
            graph = read_dgl_chunks(options.path, target=target)
        else:
            graph = load(layout, options.path, target=target, scale=data.scale, seed=data.seed)
    else:
        if not data.path and not data.preset:
            raise InputError(f"data.path is empty: give the folder of the {data.format} files with --data.path")
        layout, path = (data.format, data.path) if data.path else ("synthetic", data.preset)
        graph = load(layout, path, target=target, scale=data.scale, seed=data.seed)
    if options.method == "given" and given is None:
        raise InputError("--method given keeps the parts of a DistDGL partition; give its JSON file as PATH")
    if data.reverse_relations:
        graph = graph.with_reverse_relations()
    return graph, given if options.method == "given" else None


def _detect(path: str) -> str:
    from jhgnn.data.detect import detect_format
    from jhgnn.distributed.dgl_chunks import is_chunked
    from jhgnn.distributed.distdgl import is_distdgl

    place = Path(path).expanduser()
    if place.is_file() and is_distdgl(place):
        return DISTDGL
    return CHUNKS if is_chunked(place) else detect_format(path)


def metapaths_of(graph: "HeteroGraph", config: Config) -> "tuple[Metapath, ...]":
    """The recipe's metapaths, or those that the schema suggests for the target."""
    from jhgnn.graph.default_metapaths import default_metapaths

    if config.model.metapaths:
        return tuple(graph.schema.metapath(text) for text in config.model.metapaths)
    return () if graph.target is None else default_metapaths(graph.schema, graph.target)


if __name__ == "__main__":
    sys.exit(main())
