"""Whether this machine can do what `training.remat` asks for."""

import jax

from jhgnn.errors import InputError

HOST = "pinned_host"


def can_offload() -> bool:
    """Whether JAX's default backend can keep arrays in the host's memory, apart from its own."""
    device = jax.local_devices()[0]
    return device.platform != "cpu" and HOST in {memory.kind for memory in device.addressable_memories()}


def check_supported(remat: str) -> None:
    """Refuses what the backend cannot do, before anything is compiled.

    Raises:
        InputError: `offload` where there is no host memory beside the device's; on a CPU the two are one.
    """
    if remat == "offload" and not can_offload():
        platform = jax.default_backend()
        why = "the host's memory is the device's" if platform == "cpu" else f"it has no {HOST!r} memory"
        raise InputError(
            f"training.remat = 'offload' does not work on the backend {platform!r}: {why}; 'stage' recomputes what"
            " offload would move"
        )
