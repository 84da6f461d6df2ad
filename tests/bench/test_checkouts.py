"""The comparison of two checkouts: what it refuses."""

from bench.checkouts import main


def test_a_folder_without_an_environment_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: {tmp_path}: no {tmp_path}/.venv/bin/python; run make .venv/.installed there"
