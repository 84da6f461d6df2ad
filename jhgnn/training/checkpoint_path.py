"""Which run folders checkpoints can be read from: by their names, which Orbax takes for patterns in places."""

from pathlib import Path

from jhgnn.errors import InputError

PATTERNS = "*?[\\"
"""Orbax looks for a checkpoint's metadata with a pattern that begins with the path of the checkpoint, not escaped."""


def check_path(folder: Path) -> None:
    """Refuses a run folder, or one inside it, whose checkpoints would be written, and not found again.

    Raises:
        InputError: with the path and the characters.
    """
    path = str(folder.absolute())
    found = [letter for letter in PATTERNS if letter in path]
    if found:
        raise InputError(
            f"run folder {folder}: its path holds {' and '.join(found)}, which Orbax takes for a pattern where it looks"
            " for a checkpoint; give it another name"
        )
