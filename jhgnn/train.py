"""`python -m jhgnn.train`: train, evaluate, checkpoint and resume a recipe."""

import argparse
import contextlib
import dataclasses
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.huge_pages import restart_on_huge_pages
from jhgnn.recipe import OneLineParser, add_options, from_options, load_recipe, to_toml

CACHE_DIR = Path("~/.cache/jhgnn/xla")


def parse(arguments: Sequence[str] | None) -> tuple[Config, argparse.Namespace]:
    """Reads the command line: the config, and `--resume` and `--seeds` beside it."""
    parser = OneLineParser(
        prog="python -m jhgnn.train",
        description="Train a heterogeneous graph neural network: a recipe in TOML, and dotted overrides.",
        epilog="example: python -m jhgnn.train --config configs/han_acm.toml --data.path FOLDER --training.epochs 100",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in run.dir from its last checkpoint")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="train seeds run.seed to run.seed + N - 1")
    add_options(parser)
    options = parser.parse_args(arguments)
    started = Path(getattr(options, "run.dir", ""), "recipe.toml").expanduser()
    if options.resume and not options.config and hasattr(options, "run.dir") and started.exists():
        options.config = str(started)  # a run knows its own recipe
    if options.seeds < 1:
        raise InputError(f"command line: --seeds {options.seeds} must be at least 1")
    return from_options(options), options


def run_folder(config: Config, options: argparse.Namespace) -> Path:
    """Where the run lives: run.dir, or runs/NAME with the first free number; with --resume, the newest of those."""
    if config.run.dir:
        return Path(config.run.dir).expanduser()
    name = (
        Path(options.config).stem
        if options.config
        else f"{config.model.name}_{Path(config.data.path).name or config.data.preset}"
    )
    candidates = [Path("runs", name if number == 1 else f"{name}-{number}") for number in range(1, 10_000)]
    free = next(number for number, folder in enumerate(candidates) if not folder.exists())
    if options.resume:
        if free == 0:
            raise InputError(f"--resume: there is no run in {candidates[0]}; name one with --run.dir")
        return candidates[free - 1]
    return candidates[free]


def open_folder(folder: Path, *, num_seeds: int, resume: bool) -> None:
    """Makes the run folder, or refuses to overwrite or to resume.

    Raises:
        InputError: the folder holds a run already, holds none to resume, or cannot be written.
    """
    recipe = folder / "recipe.toml"
    try:
        if resume and not recipe.exists():
            raise InputError(f"--resume: {folder} holds no run (no recipe.toml); leave --resume out to start one")
        if not resume and recipe.exists():
            raise InputError(f"run.dir {folder} holds a run already; add --resume to continue it, or name another")
        several = any(folder.glob("seed-*/recipe.toml"))
        if resume and several != (num_seeds > 1) and (several or (folder / "checkpoints").exists()):
            held, way = ("several seeds", "add --seeds N") if several else ("one seed", "leave --seeds out")
            raise InputError(f"--resume: {folder} holds a run of {held}; {way}")
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise InputError(f"run.dir {folder} is not writable; name another one")
    except OSError as error:
        raise InputError(f"run.dir {folder}: {error.strerror}; name a folder that can be written") from None


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Holds the run folder against other processes; the kernel lets go of it however this one ends.

    Raises:
        InputError: another process trains in it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(f"run.dir {folder}: another process trains in it; wait for it, or name another") from None
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def withdrawn_on_bad_input(folder: Path) -> Iterator[None]:
    """Takes a new run's recipe and empty folder back where its input is refused, so that the command can be mended."""
    try:
        yield
    except InputError:
        (folder / "recipe.toml").unlink()
        with contextlib.suppress(OSError):  # it holds something else
            folder.rmdir()
        raise


def configure_jax() -> None:
    """Keeps a step's memory for the next one, and compiled programs on disk between runs, unless the environment says
    where or that it should not.
    """
    import jax

    from jhgnn.step_memory import keep_step_memory

    keep_step_memory()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(CACHE_DIR.expanduser()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def run(config: Config, folder: Path, *, num_seeds: int, resume: bool, several: bool = False) -> int:
    """Trains every seed and writes the summaries; the exit code. With `several`, in processes that have joined."""
    import jax

    from jhgnn.planning.budget import within_budget
    from jhgnn.training.checkpoint import CheckpointStore
    from jhgnn.training.interrupt import stop_on_signals
    from jhgnn.training.loop import check_resumable
    from jhgnn.training.remat import check_supported
    from jhgnn.training.reporting import Say, draw_curves, write_json, write_text
    from jhgnn.training.summary import combine, print_summary, summarize

    prepare, compile_programs, train = ways_to_train(config)
    leads = not several or jax.process_index() == 0  # only one process writes
    if not several:
        open_folder(folder, num_seeds=num_seeds, resume=resume)
    say = Say(quiet=not leads)
    with claimed(folder) if leads else contextlib.nullcontext(), stop_on_signals() as stop:
        if resume:
            check_resumable(folder, config, load_recipe(folder / "recipe.toml"))
        if leads:
            write_text(folder / "recipe.toml", recorded(config))
        configure_jax()
        with withdrawn_on_bad_input(folder) if leads and not resume else contextlib.nullcontext():
            check_supported(config.training.remat)
            problem = prepare(config)
            describe(say, problem, config, folder)
            fitted = within_budget(problem, config, say)
            programs = compile_programs(problem, fitted)
        summaries: list[dict[str, Any]] = []
        for seed in range(config.run.seed, config.run.seed + num_seeds):
            seed_config = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
            trained = dataclasses.replace(fitted, run=seed_config.run)
            seed_folder = folder if num_seeds == 1 else folder / f"seed-{seed}"
            if leads:
                seed_folder.mkdir(exist_ok=True)
                write_text(seed_folder / "recipe.toml", recorded(seed_config))
            outcome = train(
                problem,
                programs,
                trained,
                seed_folder,
                recipe=recorded(seed_config),
                resume=resume and CheckpointStore(seed_folder / "checkpoints").exists(),
                stop=stop,
                say=say,
                title=config.model.name if num_seeds == 1 else f"{config.model.name} seed {seed}",
            )
            stopped = stop.signal or (signal.SIGTERM if outcome.stopped_by == "SIGTERM" else None)
            if stopped is not None:
                seeds = f" --seeds {num_seeds}" if num_seeds > 1 else ""
                batches = f" and {outcome.progress.step} batches" if outcome.progress.step else ""
                say(
                    f"{stopped.name}: stopped after epoch {outcome.progress.epoch}{batches} and saved it;"
                    f" continue with --resume --run.dir {folder}{seeds}"
                )
                return 128 + stopped
            summaries.append(summarize(problem, programs, trained, outcome))
            if leads:
                write_json(seed_folder / "summary.json", summaries[-1])
                draw_curves(seed_folder)
        summary = summaries[0] if num_seeds == 1 else combine(summaries)
        if leads:
            write_json(folder / "summary.json", summary)
    print_summary(say, summary)
    say(f"run folder: {folder}")
    return 0


def recorded(config: Config) -> str:
    """The recipe as a run keeps it: without the processes of this start, since it may be resumed by others."""
    distributed = dataclasses.replace(config.distributed, coordinator="", num_processes=0, process_id=-1)
    return to_toml(dataclasses.replace(config, distributed=distributed))


def run_together(config: Config, folder: Path, *, num_seeds: int, resume: bool) -> int:
    """The same in one process of several, where the recipe or the cluster says so; else in this one alone."""
    import jax

    from jhgnn.training import processes

    if not processes.are_several(config.distributed):
        return run(config, folder, num_seeds=num_seeds, resume=resume)
    if not config.run.dir:
        raise InputError("several processes need run.dir, one folder that all of them reach")
    open_folder(folder, num_seeds=num_seeds, resume=resume)  # each of them, before they join and one of them writes
    processes.join(config.distributed)
    try:
        code = run(config, folder, num_seeds=num_seeds, resume=resume, several=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        processes.leave_on_bad_input()
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        why = "another one has died" if isinstance(error, jax.errors.JaxRuntimeError) else "it failed"
        print(
            f"error: process {jax.process_index()} of {jax.process_count()} ends, as {why} ({type(error).__name__}:"
            f" {reason}); continue all of them with --resume --run.dir {folder}",
            file=sys.stderr,
        )
        processes.leave(1)
    if code:
        processes.leave(code)
    jax.distributed.shutdown()
    return code


def ways_to_train(config: Config) -> tuple[Any, Any, Any]:
    """What prepares, compiles and trains: nodes on the whole graph at once, or in mini-batches; or links."""
    if config.task.name == "link_prediction":
        from jhgnn.training.link_loop import train_links
        from jhgnn.training.link_problem import prepare_links
        from jhgnn.training.link_programs import compile_links

        return prepare_links, compile_links, train_links
    if config.sampling.batch_size:
        from jhgnn.training.minibatch import train_minibatches
        from jhgnn.training.minibatch_problem import prepare_minibatches
        from jhgnn.training.minibatch_programs import compile_minibatches

        return prepare_minibatches, compile_minibatches, train_minibatches
    from jhgnn.training.loop import compile_programs, train
    from jhgnn.training.problem import prepare

    return prepare, compile_programs, train


def describe(say: Any, problem: Any, config: Config, folder: Path) -> None:
    """What is about to be trained: the graph, the metapaths and the implementations with their reasons."""
    graph = problem.graph
    sizes = ", ".join(f"{count:,} {node_type}" for node_type, count in list(graph.num_nodes.items())[:8])
    splits = ", ".join(f"{problem.split_size(split):,} {split}" for split in problem.splits)
    say(f"{graph.name}: {sizes}; {graph.num_edges:,} edges in {len(graph.edges)} relations")
    if config.task.name == "link_prediction":
        source, target = problem.ends
        count = len(problem.links.relations)
        say(f"links {source} -> {target}: {count} relations, {splits}; read in {problem.read_s:.1f} s")
    else:
        say(f"target {graph.target}: {graph.num_classes} classes, {splits}; read in {problem.read_s:.1f} s")
    if problem.metapaths:
        derived = "" if config.model.metapaths else " (derived from the schema; set model.metapaths to choose)"
        if config.sampling.walks:
            shown = ", ".join(metapath.name for metapath in problem.metapaths)
            say(f"metapaths walked: {shown}{derived}; their graphs are not built")
        else:
            shown = ", ".join(f"{name} {count:,}" for name, count in problem.metapath_edges().items())
            say(f"metapath edges: {shown}{derived}; built in {problem.sgb_s:.1f} s")
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for choice in problem.choices:
        by_reason.setdefault((choice.op, choice.implementation, choice.reason), []).append(choice.subject)
    for (op, implementation, reason), subjects in by_reason.items():
        names = ", ".join(subjects[:6]) + (f" and {len(subjects) - 6} more" if len(subjects) > 6 else "")
        say(f"{op} {names}: {implementation} ({reason})")
    if config.sampling.batch_size:
        where = "on the device" if problem.features_on_device[0] else "on the host"
        say(f"sampling side: {problem.side[0]} ({problem.side[1]})")
        say(f"features: {where} ({problem.features_on_device[1]})")
    if problem.split_size("val") == 0:
        say("no validation split: no early stopping, and the last epoch counts as the best")
    say(f"run folder: {folder}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; bad input is one line on stderr and exit code 2."""
    try:
        config, options = parse(arguments)
        folder = run_folder(config, options)
        start = run_together if config.sampling.batch_size else run
        return start(config, folder, num_seeds=options.seeds, resume=options.resume)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted; nothing was saved after the last checkpoint", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except ArithmeticError as error:
        from jhgnn.training.loop import NonFiniteLossError

        if not isinstance(error, NonFiniteLossError):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # XLA's word for it
            raise
        print(
            f"error: out of memory: {' '.join(str(error).split()) or 'on the host'}; lower model.hidden, or set"
            " training.memory_budget or model.dtype = 'bfloat16'",
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
