"""What the device is, and how fast it copies its own memory: what the ops' traffic is compared with."""

import json
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bench.gpu.devices import GPUS
from bench.gpu.measure.timing import timed
from bench.gpu.measure.worker import Run

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")
SMALLER = (4096, 64, 8)
"""The largest copy is followed by ones of this many times less, which the cache may hold."""


def rows(run: Run) -> Iterator[dict[str, Any]]:
    """The device first, then copies from the largest on; bytes are those read and those written."""
    device = jax.devices()[0]
    told = {"kind": "device", "platform": device.platform, "device": device.device_kind, "devices": jax.device_count()}
    told |= {"python": platform.python_version(), "versions": {name: _version(name) for name in PACKAGES}}
    yield told | {"cache_bytes": cache_bytes(device.device_kind), "driver": _driver()}
    if device.platform == "cpu" and not run.rehearsal:
        raise SystemExit("error: JAX sees no GPU: it needs a driver (`nvidia-smi`) and its plugin, `jax[cuda13]`")
    for smaller in (1, *reversed(SMALLER)):
        x = jnp.zeros(max(1, run.sizes.copy_bytes // 4 // smaller), jnp.float32)
        copy = jax.jit(lambda x: x + 1.0)
        found = timed(lambda copy=copy, x=x: copy(x), run.sizes)  # type: ignore[misc]
        rate = 2 * x.nbytes / (found["ms"] / 1e3)
        yield {"kind": "copy", "array_bytes": x.nbytes, "bytes_per_s": rate} | found
        if smaller == 1:
            (run.folder / "copy.json").write_text(json.dumps({"bytes_per_s": rate}))


def measured_rate(folder: Path) -> float | None:
    """Bytes per second of the largest copy, if an item before told them."""
    path = folder / "copy.json"
    return float(json.loads(path.read_text())["bytes_per_s"]) if path.exists() else None


def cache_bytes(device_kind: str) -> int:
    """Of the second level, by the makers' figures; an H100's where the device is none of those known."""
    known = {gpu.name: gpu.cache_bytes for gpu in GPUS.values()}
    return known.get(device_kind, GPUS["h100"].cache_bytes)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _driver() -> str:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
