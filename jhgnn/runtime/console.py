"""Lines and tables for a person who watches a command."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table


def silence(stream: TextIO) -> None:
    """A stream that cannot be written leads nowhere from now on; else Python tries once more at its end, and fails."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class Say:
    """Lines for a person on stderr, styled on a terminal and plain elsewhere; results go to stdout. `quiet`: none."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)

    def __call__(self, line: str) -> None:
        try:
            self.console.print(line, markup=False)
        except BrokenPipeError:
            raise
        except OSError:  # a full disk, or a terminal that is gone: training goes on without a witness
            silence(sys.stderr)

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
