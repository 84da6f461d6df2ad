"""Where an output folder cannot be written, whoever named it hears the same."""

import errno
import os

import pytest

from jhgnn.errors import InputError, StorageError
from jhgnn.runtime.output_folder import not_written, write_output


def test_a_folder_that_is_a_file_is_wrong_input(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"^--output .*file: .*; name a folder that can be written$"):
        write_output("--output", tmp_path / "file", {"a.txt": "new"})
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_fails_is_no_wrong_input_and_leaves_what_was_there(number, tmp_path, monkeypatch):
    write_output("folder", tmp_path, {"a.txt": "old"})

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(StorageError, match=rf"^folder .*: {os.strerror(number)}; the run is as it was"):
        write_output("folder", tmp_path, {"a.txt": "new", "b.txt": "new"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_a_write_that_numpy_tells_of_without_a_number_is_of_the_disk():
    assert isinstance(not_written("folder x", OSError("100 requested and 20 written")), StorageError)
