"""What surrounds a process beside its input: streams, environment variables; what is wrong there is one line."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from jhgnn.data import load_graph
from jhgnn.errors import InputError
from jhgnn.runtime import exits, huge_pages, jax_settings, nvidia
from jhgnn.runtime.storage_cause import of_storage
from tests.commands import run_train, the_error, train_arguments

ROOT = Path(__file__).parents[2]
MODES = {"jax_enable_x64": False, "jax_disable_jit": False}
OVER = "--model.bases=2 --model.blocks=2"
"""A command line that is refused before anything is read."""


def ended(
    command: str, settings: Mapping[str, str] | None = None, stdin: bytes = b"", limits: str = ""
) -> tuple[int, str, str]:
    """`jhgnn COMMAND` in a shell with environment variables: its exit code, stdout and stderr."""
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "JHGNN": f"{sys.executable} -m jhgnn"} | (settings or {})
    shell = ["bash", "-c", f"{limits} $JHGNN {command}"]
    done = subprocess.run(shell, env=environment, cwd=ROOT, input=stdin, capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_stream_that_is_closed_changes_nothing_else(closed):
    code, _, stderr = ended(f"train {OVER} {closed}")
    assert code == 2
    assert stderr.startswith("error: command line: model.bases = 2 and model.blocks = 2")
    assert stderr.count("\n") == 1


def test_a_closed_stderr_leaves_the_exit_code():
    assert ended(f"train {OVER} 2>&-") == (2, "", "")
    assert ended(f"train {OVER} 2>/dev/full") == (2, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"JAX_ENABLE_X64": "banana"}, "JAX cannot be imported"),
        ({"XLA_FLAGS": "--nonsense"}, "XLA_FLAGS='--nonsense': XLA does not take it: Unknown flag in XLA_FLAGS"),
        ({"XLA_FLAGS": "--xla_backend_optimization_level=abc"}, "XLA does not take it: Couldn't interpret value abc"),
        ({"XLA_FLAGS": "/nowhere/flags"}, "XLA does not take it: Could not open file"),
        ({"JAX_PLATFORMS": "nonsense"}, "JAX_PLATFORMS=nonsense: JAX cannot start it"),
    ],
)
def test_an_environment_variable_that_jax_does_not_take_is_one_line(setting, words, tmp_path):
    code, _, stderr = ended(f"train --run.dir {tmp_path / 'run'} --sgb.cache_dir ''", setting)
    assert code == 2, stderr
    assert stderr.startswith("error: ")
    assert words in stderr
    assert stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_user_without_a_home_folder_is_told_so(monkeypatch, capsys):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert exits.ending(lambda _: len(str(Path("~/.cache").expanduser()))) == 2
    assert capsys.readouterr().err.startswith("error: a path begins with ~, but that user has no home folder; set HOME")


def test_a_warning_that_became_an_error_is_one_line(capsys):
    def warn(_: object) -> int:
        raise DeprecationWarning("old\nname")

    assert exits.ending(warn) == 2
    assert capsys.readouterr().err.startswith(
        "error: a warning became an error, as PYTHONWARNINGS or -W says: Deprecati"
    )


@pytest.mark.parametrize("name", ["jax_enable_x64", "jax_disable_jit"])
def test_a_mode_of_jax_in_which_nothing_trains_is_refused(name, monkeypatch):
    monkeypatch.setattr(jax_settings, "jax", SimpleNamespace(config=SimpleNamespace(**MODES | {name: True})))
    with pytest.raises(InputError, match=f"{name.upper()} is set, but"):
        jax_settings.configure_jax()


def test_an_interpreter_that_cannot_be_started_again_goes_on_without_huge_pages(monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(huge_pages, "wanted_environment", lambda: {"GLIBC_TUNABLES": "x"})
    monkeypatch.setattr("os.execve", refused)
    huge_pages.restart_on_huge_pages()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("command", ["predict", "explain --nodes 0 --steps 2", "serve"])
def test_a_platform_that_is_not_here_is_one_line_of_every_reader_of_a_run(command, tmp_path, academic_path):
    run = tmp_path / "run"
    assert run_train(*train_arguments(academic_path, run, "--training.epochs", "1")) == 0
    code, _, stderr = ended(f"{command} --run {run}", {"JAX_PLATFORMS": "cuda"})
    assert code == 2, stderr
    assert stderr.startswith("error: JAX_PLATFORMS=cuda: JAX cannot start it")
    assert stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.long
def test_a_full_standard_output_does_not_say_that_a_complete_run_is_lost(tmp_path, academic_path):
    run = tmp_path / "run"
    words = shlex.join(train_arguments(academic_path, run, "--training.epochs", "1"))
    code, _, stderr = ended(f"train {words} > /dev/full")
    assert code == 3, stderr
    error = the_error(stderr)
    assert error.endswith(f"the run is complete, and its figures are in {run / 'summary.json'}")
    assert "lost" not in error
    assert (run / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.long
def test_too_few_files_for_a_checkpoint_is_one_line(tmp_path, academic_path):
    run = tmp_path / "run"
    words = shlex.join(train_arguments(academic_path, run, "--training.epochs", "2"))
    code, _, stderr = ended(f"train {words}", limits="ulimit -n 40;")
    assert code == 3, stderr
    assert "Too many open files" in the_error(stderr)


def test_data_that_no_file_is_left_to_open_is_not_called_damaged(academic_path, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("numpy.load", refused)
    with pytest.raises(InputError, match="cannot be read: Too many open files") as raised:
        load_graph(academic_path)
    assert of_storage(raised.value)


def test_an_address_space_that_jax_does_not_fit_into_is_one_line():
    code, _, stderr = ended("predict --run nowhere", limits="ulimit -v 1400000;")
    assert code == 2, stderr
    assert stderr.startswith("error: ulimit -v allows 1.3 GiB of address space, and JAX with its threads takes")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["partition acm --parts 2 --plan", "describe acm"])
def test_an_address_space_that_the_libraries_do_not_fit_into_is_one_line(words):
    code, _, stderr = ended(words, limits="ulimit -v 150000;")
    assert code == 2, stderr
    assert stderr.startswith("error: ulimit -v allows 146.5 MiB of address space, and the libraries take")
    assert stderr.count("\n") == 1


def test_what_numpy_says_of_a_library_that_cannot_be_mapped_is_one_short_line(capsys):
    def fail(_: object) -> int:
        raise ImportError("IMPORTANT: READ\n\nOriginal error was: lib.so: failed to map segment from shared object\n")

    assert exits.ending(fail) == 1
    assert capsys.readouterr().err.startswith("error: out of memory: lib.so: failed to map segment from shared object;")


def test_threads_that_cannot_be_started_and_libraries_that_cannot_be_mapped_are_one_line(capsys):
    for error in (RuntimeError("can't start new thread"), OSError("x.so: failed to map segment from shared object")):

        def fail(_: object, error: Exception = error) -> int:
            raise error

        assert exits.ending(fail) == 1
        assert capsys.readouterr().err.startswith(f"error: out of memory: {error}")


def test_without_a_folder_for_programs_one_line_says_that_none_are_kept(monkeypatch, capsys):
    changed: list[object] = []
    config = SimpleNamespace(update=lambda *change: changed.append(change))
    monkeypatch.setattr(jax_settings, "jax", SimpleNamespace(config=config))
    jax_settings._keep_programs(Path("/dev/null/.cache"))
    assert not changed
    said = capsys.readouterr().err
    assert said.startswith("compiled programs are not kept, since /dev/null/.cache cannot be written: Not a directory")
    assert said.count("\n") == 1


def test_a_platform_that_is_not_here_is_one_line_without_assertions(monkeypatch):
    def without_backend() -> str:
        raise AttributeError("'NoneType' object has no attribute 'platform'")  # as JAX under python -O

    monkeypatch.setattr("jax.default_backend", without_backend)
    with pytest.raises(InputError, match="JAX cannot start it"):
        nvidia.check_platforms()


@pytest.mark.parametrize("name", ["a[0]", "a*", "a?", "a\\b"])
def test_a_run_folder_that_orbax_would_take_for_a_pattern_is_refused(name, tmp_path, capsys):
    assert run_train(*train_arguments(tmp_path / "data", tmp_path / name)) == 2
    assert "which Orbax takes for a pattern" in the_error(capsys.readouterr().err)
    assert not (tmp_path / name).exists()
