"""What a run tells: lines or a progress bar, metrics.jsonl, TensorBoard scalars, curves, the table and summary.json."""

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


def write_text(path: Path, text: str) -> None:
    """Writes to a temporary name and renames: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_json(path: Path, content: Any) -> None:
    """JSON with one key a line, through `write_text`; null where a number is not finite, which JSON cannot say."""
    write_text(path, json.dumps(_finite(content), indent=2, allow_nan=False) + "\n")


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


class Say:
    """Lines for a person on stderr, styled on a terminal and plain elsewhere; results go to stdout. `quiet`: none."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)

    def __call__(self, line: str) -> None:
        self.console.print(line, markup=False)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table on stdout: boxed on a terminal, aligned columns elsewhere."""
        if self.quiet:
            return
        if sys.stdout.isatty():
            table = Table(*columns, title=title, title_justify="left")
            for row in rows:
                table.add_row(*row)
            Console(highlight=False).print(table)
            return
        widths = [max(len(str(row[i])) for row in (columns, *rows)) for i in range(len(columns))]
        print(title)
        for row in (columns, *rows):
            print("  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._writer = None
        if tensorboard:
            from tensorboardX import SummaryWriter

            purge = None if resume_after is None else resume_after + 1
            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def write(self, epoch: int, values: Mapping[str, float]) -> None:
        """Appends one epoch."""
        self._file.write(json.dumps(_finite({"epoch": epoch, **values}), allow_nan=False) + "\n")
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name.replace("_", "/", 1), value, epoch)

    def flush(self) -> None:
        """Everything written so far reaches the disk's cache."""
        self._file.flush()
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flushes and closes."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()


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
    """Draws metrics.jsonl as curves.png: losses, and F1 of validation and test, or MRR where links are predicted."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    if not lines:
        return
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    quality = "mrr" if any("val_mrr" in line for line in lines) else "micro_f1"
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
    temporary = folder / ".curves.tmp.png"
    figure.savefig(temporary, dpi=120)
    plt.close(figure)
    temporary.replace(folder / "curves.png")
