"""JAX as the commands set it up."""

import errno
import os
import sys
from pathlib import Path

import jax

from jhgnn.errors import InputError
from jhgnn.runtime.nvidia import check_platforms
from jhgnn.runtime.step_memory import keep_step_memory
from jhgnn.runtime.xla_flags import check_xla_flags

CACHE_DIR = Path("~/.cache/jhgnn/xla")


def configure_jax() -> None:
    """Keeps a step's memory for the next one, and compiled programs on disk between runs, unless the environment says
    where or that it should not.

    Raises:
        InputError: `JAX_PLATFORMS` names a platform that JAX cannot start here, `XLA_FLAGS` a flag that XLA
            refuses, or JAX is in a mode that training does not work in.
    """
    _check_modes()
    keep_step_memory()
    check_xla_flags()
    check_platforms()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _keep_programs(CACHE_DIR.expanduser())
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _keep_programs(folder: Path) -> None:
    """Has JAX keep compiled programs in a folder; where it cannot be written, says in one line that none are kept.

    JAX itself would warn, with a line of its source, of each program that it does not find there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        told = f"compiled programs are not kept, since {folder} cannot be written: {error.strerror}"
        print(f"{told}; set JAX_COMPILATION_CACHE_DIR to a folder that can", file=sys.stderr)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))


def _check_modes() -> None:
    for name, why in (
        ("jax_enable_x64", "weights and sums are float32, and dropout draws 32 bits at most"),
        ("jax_disable_jit", "training runs compiled programs"),
    ):
        if getattr(jax.config, name):
            raise InputError(f"{name.upper()} is set, but {why}; leave it out")
