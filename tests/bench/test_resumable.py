"""The end of a command that keeps what it measures."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.resumable import end

ROOT = Path(__file__).parents[2]
CUT = "import os, signal; from bench.resumable import end; signal.signal(signal.SIGINT, signal.default_int_handler);"


def test_a_cut_command_says_in_one_line_how_to_go_on():
    script = f"{CUT} end(lambda: os.kill(os.getpid(), signal.SIGINT))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == "interrupted: what was measured is kept; run the same command to go on\n"


@pytest.mark.parametrize("code", [0, 2])
def test_another_end_is_the_commands_own(code):
    with pytest.raises(SystemExit) as ended:
        end(lambda: code)
    assert ended.value.code == code
