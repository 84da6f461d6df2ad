"""The folder that a person names for what a command or a function writes: all of it or nothing, or one line that says
why."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jhgnn.errors import InputError, StorageError
from jhgnn.runtime.files import write_together
from jhgnn.runtime.storage_cause import of_storage


def write_output(named: str, folder: Path, files: Mapping[str, np.ndarray | str]) -> None:
    """Writes texts and `.npy` arrays by name into a folder, which is made where it is missing.

    Args:
        named: what the folder was named by, such as `--output`.
        folder: to write into.
        files: none is renamed before all are on the disk.

    Raises:
        InputError: the folder cannot be written; another one may be.
        StorageError: there is no room, or its disk fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_together(folder, files)
    except OSError as error:
        raise not_written(f"{named} {folder}", error) from None


def not_written(named: str, error: OSError) -> InputError | StorageError:
    """What to raise where an output folder, by whatever name, cannot be written: another one would do, or none."""
    told = f"{named}: {error.strerror or ' '.join(str(error).split())}"
    if of_storage(error):
        return StorageError(f"{told}; the run is as it was: mend that, and start again")
    return InputError(f"{told}; name a folder that can be written")
