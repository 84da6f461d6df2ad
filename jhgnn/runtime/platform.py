"""The platform that programs are made for: that of JAX's devices here, or another that they are only compiled for.

Everything below that decides by platform asks here, so that a step can be lowered for a GPU on a machine without one.
"""

import contextlib
from collections.abc import Iterator

import jax

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""The names that `lowering_platforms` of JAX has."""

GPUS = ("cuda", "rocm")

WITHOUT_KERNELS = "tpu"
"""A platform for which the package has no kernels of its own: what is traced for it calls none, and has derivatives of
any order."""

_named = jax.make_user_context(None)
"""A context of JAX's own, which keys its caches: a function traced for one platform is traced again for another."""


def target_platform() -> str:
    """The platform that what is traced now will run on: one of `PLATFORMS`."""
    return _named.value or _default_platform()


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Programs traced inside are for this platform.

    Raises:
        ValueError: it is none of `PLATFORMS`.
    """
    if platform not in PLATFORMS:
        raise ValueError(f"programs are compiled for {', '.join(PLATFORMS)}, not for {platform!r}")
    with _named(platform):
        yield


def _default_platform() -> str:
    platform = jax.default_backend()
    if platform != "gpu":
        return platform
    return "rocm" if "rocm" in jax.devices()[0].client.platform_version.lower() else "cuda"
