"""What keeps an NVIDIA GPU from being used, in one line: its driver, or JAX's plugin."""

import ctypes
import importlib.util
from pathlib import Path

import jax

from jhgnn.errors import InputError

VENDOR, DISPLAYS = "0x10de", "0x03"
"""Of NVIDIA's devices on the PCI bus, and how the classes of its GPUs begin."""
DEVICE_FILES = ("dev/nvidia0", "dev/dxg")
"""That a driver makes; the second one for Linux inside of Windows."""
DRIVER = "libcuda.so.1"
PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
HOW_TO_GET_PLUGIN = "`pip install 'jhgnn[cuda13]'` (`cuda12` where `nvidia-smi` names CUDA 12)"


def unused_gpu() -> str:
    """Why JAX runs on the CPU of a machine with an NVIDIA GPU.

    Empty where JAX does not, where there is no GPU, and where `JAX_PLATFORMS` leaves GPUs out.
    """
    if not _allows_gpus(asked_platforms()) or jax.default_backend() != "cpu" or not has_gpu():
        return ""
    return f"an NVIDIA GPU is here, and JAX runs on the CPU: {what_is_missing()}"


def check_platforms() -> None:
    """Has JAX find its devices.

    Raises:
        InputError: a platform of `JAX_PLATFORMS` cannot be started; the line says what is missing.
    """
    try:
        jax.default_backend()
    except (
        RuntimeError,
        AssertionError,
        AttributeError,
    ) as error:  # the others where JAX has no plugin: with python -O
        asked = asked_platforms()
        if not _allows_gpus(asked):
            hint = "leave JAX_PLATFORMS out to run on what is here"
        else:
            hint = f"{what_is_missing()}; without JAX_PLATFORMS JAX runs on what is here"
        told = f" ({str(error)[:200]})" if str(error) else ""
        raise InputError(f"JAX_PLATFORMS={asked}: JAX cannot start it{told}: {hint}") from None


def asked_platforms() -> str:
    """What `JAX_PLATFORMS` says; empty where it is not set."""
    return str(jax.config.jax_platforms or "")  # type: ignore[attr-defined]


def has_gpu(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA GPU is in this machine, with a driver or without."""
    if any((root / name).exists() for name in DEVICE_FILES):
        return True
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _text(device / "vendor") == VENDOR and _text(device / "class").startswith(DISPLAYS):
            return True
    return False


def what_is_missing() -> str:
    """The first thing that JAX lacks to run on an NVIDIA GPU, and how to get it."""
    if not has_driver():
        return f"NVIDIA's driver is not installed ({DRIVER} is not found); install it, and try `nvidia-smi`"
    if not any(_is_installed(name) for name in PLUGINS):
        return f"JAX's CUDA plugin is not installed; {HOW_TO_GET_PLUGIN}"
    return "JAX's CUDA plugin does not start; what JAX says above tells whether the driver is too old for it"


def has_driver() -> bool:
    """Whether CUDA's driver can be loaded."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def _allows_gpus(asked: str) -> bool:
    return not asked or bool({"cuda", "gpu"} & set(asked.split(",")))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # no plugin at all
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
