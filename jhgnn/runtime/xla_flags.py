"""Whether XLA takes what `XLA_FLAGS` says; with an unknown flag it aborts the process, with a native stack."""

import os
import subprocess
import sys

from jax._src import xla_bridge

from jhgnn.errors import InputError

VARIABLE = "XLA_FLAGS"
_PROBE = "from jaxlib import xla_client; xla_client.CompileOptions().executable_build_options.debug_options"
"""What has XLA parse its flags, in a process of its own."""


def check_xla_flags() -> None:
    """Has another process parse `XLA_FLAGS`; costs nothing where it is empty, or where JAX runs here already.

    Raises:
        InputError: XLA refuses them.
    """
    flags = os.environ.get(VARIABLE, "")
    if not flags.strip() or xla_bridge.backends_are_initialized():
        return
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return
    words = [line.split("] ", 1)[-1] for line in done.stderr.splitlines() if VARIABLE in line or "flag" in line]
    told = f": {' '.join(words[0].split())[:200]}" if words else ""
    raise InputError(f"{VARIABLE}={flags!r}: XLA does not take it{told}; mend it, or leave it out")
