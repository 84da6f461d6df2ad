"""Lines and tables for a person who watches a command."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


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
