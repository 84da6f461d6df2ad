"""`python -m jhgnn.train`: train, evaluate, checkpoint and resume a recipe."""

import argparse
import contextlib
import dataclasses
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.config.recipe import load_recipe
from jhgnn.errors import InputError, StorageError
from jhgnn.runtime import exits
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.runtime.interrupt import Leaving, StopRequest, stop_on_signals
from jhgnn.runtime.storage_cause import of_storage
from jhgnn.training.run_folder import (
    claimed,
    left_in,
    open_folder,
    recorded,
    storage_told,
    withdraw,
    withdrawn_on_failure,
)

if TYPE_CHECKING:
    from jhgnn.runtime.console import Say
    from jhgnn.training.execution import Execution, Programs


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


def run(config: Config, folder: Path, *, num_seeds: int, resume: bool, leaving: Leaving, several: bool = False) -> int:
    """Trains every seed and writes the summaries; the exit code. With `several`, in processes that have joined."""
    import jax

    from jhgnn.planning.budget import within_budget
    from jhgnn.runtime.agreement import COMPILED, agree
    from jhgnn.runtime.console import Say
    from jhgnn.runtime.files import write_text
    from jhgnn.runtime.jax_settings import configure_jax
    from jhgnn.runtime.step_memory import give_back_unused
    from jhgnn.training.prepare import prepare
    from jhgnn.training.remat import check_supported
    from jhgnn.training.reporting import describe
    from jhgnn.training.resume import check_resumable, with_settled

    leads = not several or jax.process_index() == 0  # only one process writes
    if not several:
        open_folder(folder, num_seeds=num_seeds, resume=resume)
    say = Say(quiet=not leads)
    again = f" --seeds {num_seeds}" if num_seeds > 1 else ""
    new = leads and not resume
    with storage_told(folder, again), claimed(folder) if leads else contextlib.nullcontext():
        if resume:
            started = load_recipe(folder / "recipe.toml")
            config = with_settled(config, started)
            check_resumable(folder, config, started)
        untrained = "ended at once, before the first step: nothing is lost; start again as before"
        with (
            leaving.during(untrained, (lambda: withdraw(folder)) if new else (lambda: None)),
            withdrawn_on_failure(folder) if new else contextlib.nullcontext(),
        ):
            if leads:
                write_text(folder / "recipe.toml", recorded(config))
            configure_jax()
            check_supported(config.training.remat)
            execution = prepare(config)
            config = with_settled(config, execution.config)
            if leads:
                write_text(folder / "recipe.toml", recorded(config))
            describe(say, execution, folder)
            give_back_unused()
            programs = within_budget(execution, say).compile()
            give_back_unused()
            agree(COMPILED, {})
        with stop_on_signals() as stop:
            code, summary = _train_seeds(
                config, folder, execution, programs, say, stop, num_seeds=num_seeds, resume=resume, leads=leads
            )
    if summary:
        _show(say, summary, folder)
    return code


def _show(say: "Say", summary: Mapping[str, Any], folder: Path) -> None:
    """Prints what a complete run came to, which is on the disk by then."""
    from jhgnn.training.summary import print_summary

    try:
        print_summary(say, summary)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        kept = f"the run is complete, and its figures are in {folder / 'summary.json'}"
        raise StorageError(f"standard output: {error.strerror}; {kept}") from error
    say(f"run folder: {folder}")


def _train_seeds(
    config: Config,
    folder: Path,
    execution: "Execution",
    programs: "Programs",
    say: "Say",
    stop: StopRequest,
    *,
    num_seeds: int,
    resume: bool,
    leads: bool,
) -> tuple[int, dict[str, Any]]:
    """Trains every seed with programs that are compiled, and writes the summaries; the exit code, and the summary of a
    run that ended by itself."""
    from jhgnn.run import remember
    from jhgnn.runtime.files import write_json, write_text
    from jhgnn.training.checkpoint import CheckpointStore
    from jhgnn.training.loop import train
    from jhgnn.training.reporting import draw_curves
    from jhgnn.training.summary import combine, summarize

    again = f" --seeds {num_seeds}" if num_seeds > 1 else ""
    summaries: list[dict[str, Any]] = []
    for seed in range(config.run.seed, config.run.seed + num_seeds):
        seed_config = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
        seed_folder = folder if num_seeds == 1 else folder / f"seed-{seed}"
        if leads:
            seed_folder.mkdir(exist_ok=True)
            write_text(seed_folder / "recipe.toml", recorded(seed_config))
            remember(execution, seed_folder)
        outcome = train(
            programs,
            seed_folder,
            seed=seed,
            recipe=recorded(seed_config),
            resume=resume and CheckpointStore(seed_folder / "checkpoints").exists(),
            stop=stop,
            say=say,
            title=config.model.name if num_seeds == 1 else f"{config.model.name} seed {seed}",
        )
        stopped = stop.signal or (signal.SIGTERM if outcome.stopped_by == "SIGTERM" else None)
        if stopped is not None:
            batches = f" and {outcome.progress.step} batches" if outcome.progress.step else ""
            say(
                f"{stopped.name}: stopped after epoch {outcome.progress.epoch}{batches} and saved it;"
                f" continue with --resume --run.dir {folder}{again}"
            )
            return 128 + stopped, {}
        summaries.append(summarize(programs, outcome, seed))
        if leads:
            write_json(seed_folder / "summary.json", summaries[-1])
            draw_curves(seed_folder)
    summary = summaries[0] if num_seeds == 1 else combine(summaries)
    if leads:
        write_json(folder / "summary.json", summary)
    return 0, summary


def run_together(config: Config, folder: Path, *, num_seeds: int, resume: bool, leaving: Leaving) -> int:
    """The same in one process of several, where the recipe or the cluster says so; else in this one alone."""
    import jax

    from jhgnn.runtime import processes
    from jhgnn.training.alike import started_with

    if not processes.are_several(config.distributed):
        return run(config, folder, num_seeds=num_seeds, resume=resume, leaving=leaving)
    if not config.run.dir:
        raise InputError("several processes need run.dir, one folder that all of them reach")
    try:
        open_folder(folder, num_seeds=num_seeds, resume=resume)  # each of them, before they join and one of them writes
    except InputError as error:
        processes.say_last(error)
        processes.refuse(config.distributed, str(error))
    way = f"continue all of them with --resume --run.dir {folder}"
    started = started_with(config, num_seeds=num_seeds, resume=resume)
    try:
        processes.join(config.distributed, started=started, farewell=lambda: f"{left_in(folder)}; {way}")
    except processes.DisagreementError as error:
        processes.say_last(error)
        if not resume:
            withdraw(folder)
        processes.leave_on_bad_input(str(error))
    try:
        code = run(config, folder, num_seeds=num_seeds, resume=resume, leaving=leaving, several=True)
        if not code:
            # JAX's own farewell waits for `heartbeat_timeout_s`, for which the first one may write its summary alone.
            processes.meet("done")
    except InputError as error:
        processes.say_last(error, exits.STORAGE if of_storage(error) else 2)
        if of_storage(error):
            processes.leave(exits.STORAGE)
        processes.leave_on_bad_input(str(error))
    except StorageError as error:
        processes.say_last(error, exits.STORAGE)
        processes.leave(exits.STORAGE)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        why = "another one has died" if isinstance(error, jax.errors.JaxRuntimeError) else "it failed"
        processes.leave_with(f"{why} ({type(error).__name__}: {reason}); {left_in(folder)}; {way}")
    if code:
        processes.leave(code)
    try:
        jax.distributed.shutdown()
    except jax.errors.JaxRuntimeError:  # another one was killed on its way out, when the run was complete
        processes.leave(code)  # JAX would try the same once more
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code (docs/reliability.md), after one line on stderr where it is not 0."""

    def command(leaving: Leaving) -> int:
        config, options = parse(arguments)
        folder = run_folder(config, options)
        start = run_together if config.sampling.batch_size or config.distributed.parts else run
        try:
            return start(config, folder, num_seeds=options.seeds, resume=options.resume, leaving=leaving)
        except ArithmeticError as error:
            from jhgnn.training.loop import NonFiniteLossError

            if not isinstance(error, NonFiniteLossError):
                raise
            print(f"error: {error}", file=sys.stderr)
            return exits.FAILED

    return exits.ending(command, interrupted="ended at once; what was trained since the last checkpoint is lost")


if __name__ == "__main__":
    restart_on_huge_pages()
    sys.exit(main())
