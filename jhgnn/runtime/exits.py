"""How a command ends: its exit code, and at most one line on stderr. docs/reliability.md lists the codes."""

import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable

from jhgnn.errors import InputError, StorageError
from jhgnn.runtime.address_space import check_address_space
from jhgnn.runtime.console import silence
from jhgnn.runtime.interrupt import Leaving, leaving_on_signals
from jhgnn.runtime.storage_cause import cause, of_storage

DONE, FAILED, WRONG_INPUT, STORAGE = 0, 1, 2, 3

_OF_MEMORY = ("RESOURCE_EXHAUSTED", "can't start new thread", "failed to map segment from shared object")
"""The words of XLA, Python and the dynamic loader where memory, address space or threads ran out."""


def ending(
    command: Callable[[Leaving], int],
    *,
    interrupted: str = "ended at once; start again",
    memory_advice: str = "lower model.hidden, or set training.memory_budget or model.dtype = 'bfloat16'",
    closed_pipe: int = 128 + signal.SIGPIPE,
    runs_jax: bool = True,
) -> int:
    """Runs a command and gives its exit code; what input or surroundings caused is one line on stderr.

    Args:
        command: gives the code of a run that ends by itself; it may change what a signal makes of it.
        interrupted: what Ctrl-C and SIGTERM are answered.
        memory_advice: what needs less memory.
        closed_pipe: the code where nobody reads what it says any more.
        runs_jax: whether it will, and not import it alone; it is refused an address space that this does not fit into.
    """
    try:
        open_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # names that the locale has no letters for are escaped
                stream.reconfigure(errors="backslashreplace")
        check_address_space(runs_jax=runs_jax)
        with leaving_on_signals(interrupted) as leaving:
            code = command(leaving)
            sys.stdout.flush()
            return code
    except InputError as error:
        return _end(str(error), STORAGE if of_storage(error) else WRONG_INPUT)
    except StorageError as error:
        return _end(str(error), STORAGE)
    except KeyboardInterrupt:  # outside the main thread
        return _end(interrupted, 128 + signal.SIGINT)
    except BrokenPipeError:  # `... | head`: the reader has enough, or the terminal is gone
        return _end("", closed_pipe)
    except Warning as warning:
        text = f"a warning became an error, as PYTHONWARNINGS or -W says: {type(warning).__name__}: {warning}"
        return _end(f"{' '.join(text.split())[:400]}; leave that out", WRONG_INPUT)
    except OSError as error:
        if _is_of_memory(error):
            return _out_of_memory(error, memory_advice)
        text = f"{error.filename or 'standard output, or a file'}: {error.strerror or ' '.join(str(error).split())}"
        return _end(text, STORAGE if of_storage(error) else WRONG_INPUT)
    except MemoryError as error:
        return _out_of_memory(error, memory_advice)
    except Exception as error:
        if _is_of_memory(error) and cause(error) is None:
            return _out_of_memory(error, memory_advice)
        reason = cause(error)
        if reason is None and (setting := _refused_setting(error)):
            return _end(setting, WRONG_INPUT)
        if isinstance(error, RuntimeError) and str(error).startswith("Could not determine home"):  # pathlib's words
            hint = "set HOME, or write the path from / on where its name begins with ~"
            return _end(f"a path begins with ~, but that user has no home folder; {hint}", WRONG_INPUT)
        if reason is None:
            raise
        return _end(f"a file cannot be read or written: {reason}", STORAGE)


def open_streams() -> None:
    """Gives streams that the command was started without somewhere to lead, for reading nothing or writing to nobody.

    Else the next file that is opened would take the number of a stream that is closed, and what a library prints.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115


def _refused_setting(error: BaseException) -> str:
    """What to say where JAX cannot be imported, as it does not take one of its environment variables; else nothing."""
    if "jax" in sys.modules:
        return ""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if not any(f"{os.sep}jax{os.sep}" in file for file in files):
        return ""
    names = ", ".join(sorted(name for name in os.environ if name.startswith("JAX_"))) or "none that it knows"
    return f"JAX cannot be imported: {' '.join(str(error).split())}; of its environment variables are set: {names}"


def _is_of_memory(error: BaseException) -> bool:
    return any(words in str(error) for words in _OF_MEMORY)


def _out_of_memory(error: BaseException, advice: str) -> int:
    words = " ".join(str(error).split()) or "on the host"
    library = re.search(r"\S+: failed to map segment from shared object", words)  # NumPy says much around it
    return _end(f"out of memory: {library[0] if library else words}; {advice}", FAILED)


def _end(line: str, code: int) -> int:
    """Says it, where anybody can still hear it."""
    for stream, text in ((sys.stdout, ""), (sys.stderr, f"error: {line}\n" if line else "")):
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            silence(stream)
    return code
