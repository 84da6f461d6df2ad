"""How a command ends that keeps what it measures, so that its next run goes on: Ctrl-C is one line, no traceback."""

import sys
from collections.abc import Callable
from typing import NoReturn


def end(main: Callable[[], int]) -> NoReturn:
    """Exits with the command's code, or with 130 where Ctrl-C or SIGINT cut it."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept; run the same command to go on", file=sys.stderr)
        sys.exit(130)
