"""What a run reports while it trains: a progress bar or lines, metrics.jsonl, TensorBoard scalars, curves."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from jhgnn.config.suggested import told
from jhgnn.errors import StorageError
from jhgnn.runtime.console import Say
from jhgnn.runtime.files import finite, write_text
from jhgnn.runtime.nvidia import unused_gpu
from jhgnn.training.scalars import Scalars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jhgnn.training.execution import Execution


def describe(say: Say, execution: "Execution", folder: Path | None) -> None:
    """What is about to be trained: the graph, the metapaths and the implementations with their reasons."""
    graph, config = execution.graph, execution.config
    sizes = ", ".join(f"{count:,} {node_type}" for node_type, count in list(graph.num_nodes.items())[:8])
    say(f"{graph.name}: {sizes}; {graph.num_edges:,} edges in {len(graph.edges)} relations")
    if suggestion := told(config, sum(graph.num_nodes.values())):
        say(suggestion)
    say(f"{execution.task.describe()}; read in {execution.read_s:.1f} s")
    if execution.metapaths:
        derived = "" if config.model.metapaths else " (derived from the schema; set model.metapaths to choose)"
        edges = execution.semantic_edges()
        if edges:
            shown = ", ".join(f"{metapath.name} {edges[metapath.name]:,}" for metapath in execution.metapaths)
            say(f"metapath edges: {shown}{derived}; built in {execution.sgb_s:.1f} s")
        else:
            shown = ", ".join(metapath.name for metapath in execution.metapaths)
            say(f"metapaths walked: {shown}{derived}; their graphs are not built")
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for choice in execution.choices:
        by_reason.setdefault((choice.op, choice.implementation, choice.reason), []).append(choice.subject)
    for (op, implementation, reason), subjects in by_reason.items():
        names = ", ".join(subjects[:6]) + (f" and {len(subjects) - 6} more" if len(subjects) > 6 else "")
        say(f"{op} {names}: {implementation} ({reason})")
    for line in execution.describe():
        say(line)
    unused = unused_gpu()
    if unused:
        say(unused)
    if execution.split_size("val") == 0:
        say("no validation split: no early stopping, and the last epoch counts as the best")
    if folder is not None:
        say(f"run folder: {folder}")


class Metrics:
    """metrics.jsonl (one line an evaluated epoch) and TensorBoard scalars of one run.

    On resume, lines after the checkpoint's epoch are dropped: they will be written again.
    """

    def __init__(self, folder: Path, *, tensorboard: bool, resume_after: int | None) -> None:
        path = folder / "metrics.jsonl"
        kept = []
        if resume_after is not None and path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _epoch_of(line) <= resume_after]
        self.kept_step_ms: list[float] = [json.loads(line)["step_ms"] for line in kept]
        write_text(path, "".join(f"{line}\n" for line in kept))
        self._path = path
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._scalars = None
        if tensorboard:
            purge = None if resume_after is None else resume_after + 1
            self._scalars = Scalars(folder / "tensorboard", purge_step=purge)

    def write(self, epoch: int, values: Mapping[str, float]) -> None:
        """Appends one epoch."""
        self._file.write(json.dumps(finite({"epoch": epoch, **values}), allow_nan=False) + "\n")
        if self._scalars is not None:
            for name, value in values.items():
                self._scalars.add(name.replace("_", "/", 1), value, epoch)

    def check(self) -> None:
        """Looks whether the file is still where it was opened.

        Raises:
            StorageError: it, or its folder, was removed or moved away.
        """
        try:
            here = os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            here = False
        if not here:
            what = self._path if self._path.parent.exists() else f"run folder {self._path.parent}"
            raise StorageError(f"{what} was removed, moved or replaced while the run trained in it")

    def flush(self) -> None:
        """Everything written so far reaches the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._scalars is not None:
            self._scalars.flush()

    def close(self) -> None:
        """Flushes and closes; after a failure there may be no room for what was not flushed, which is written anew."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._scalars is not None:
            self._scalars.close()


def _epoch_of(line: str) -> int:
    try:
        return int(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):  # the line that a kill cut short
        return sys.maxsize


class EpochBar:
    """A progress bar with time per epoch and ETA on a terminal; a line every `log_every` epochs elsewhere."""

    def __init__(self, say: Say, title: str, epochs: int, done: int, log_every: int) -> None:
        self._say, self._title, self._epochs, self._log_every = say, title, epochs, log_every
        self._started, self._first = time.monotonic(), done
        self._progress: Progress | None = None
        if say.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[shown]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=say.console,
                transient=True,
            )
            self._task = self._progress.add_task(title, total=epochs, completed=done, shown="")
            self._progress.start()

    def update(self, epoch: int, shown: str) -> None:
        """Shows the state after an epoch."""
        if self._progress is not None:
            self._progress.update(self._task, completed=epoch, shown=shown)
        elif epoch % self._log_every == 0 or epoch == self._epochs:
            each = (time.monotonic() - self._started) / max(1, epoch - self._first)
            self._say(f"{self._title} epoch {epoch}/{self._epochs}: {shown}, ETA {each * (self._epochs - epoch):.0f} s")

    def close(self) -> None:
        """Removes the bar."""
        if self._progress is not None:
            self._progress.stop()


def draw_curves(folder: Path) -> None:
    """Draws metrics.jsonl as curves.png; nothing where no epoch was evaluated."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    if not lines:
        return
    temporary = folder / ".curves.tmp.png"
    try:
        curves(lines).savefig(temporary, dpi=120)
        temporary.replace(folder / "curves.png")
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def curves(lines: Sequence[Mapping[str, float]]) -> "Figure":
    """Losses by epoch, and F1 of validation and test, MRR of links, or else the first figure of a task of one's own.

    Args:
        lines: of metrics.jsonl.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    figures = dict.fromkeys(name.removeprefix("val_") for line in lines for name in line if name.startswith("val_"))
    others = [name for name in figures if name != "loss"]
    quality = next((name for name in ("mrr", "micro_f1") if name in figures), others[0] if others else "micro_f1")
    for axis, kind in zip(axes, ("loss", quality), strict=True):
        for split in ("train", "val", "test"):
            values = [(line["epoch"], line.get(f"{split}_{kind}")) for line in lines]
            points = [(epoch, value) for epoch, value in values if value is not None]
            if points:
                axis.plot(*zip(*points, strict=True), label=split, linewidth=1.2)
        axis.set_xlabel("epoch")
        axis.set_title(kind.replace("_", " "))
        if axis.lines:
            axis.legend(frameon=False)
    return figure
