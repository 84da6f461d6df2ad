"""What programs are made for: the devices here, or a platform that is named."""

import jax
import jax.numpy as jnp
import pytest

from jhgnn.runtime.platform import compiling_for, target_platform


def test_the_devices_here_unless_another_is_named() -> None:
    assert target_platform() == "cpu"
    with compiling_for("cuda"):
        assert target_platform() == "cuda"
        with compiling_for("tpu"):
            assert target_platform() == "tpu"
        assert target_platform() == "cuda"
    assert target_platform() == "cpu"


def test_an_unknown_platform_is_refused() -> None:
    with pytest.raises(ValueError, match="cpu, cuda, rocm, tpu, not for 'gpu'"), compiling_for("gpu"):
        pass


def test_a_function_is_traced_again_for_another_platform() -> None:
    @jax.jit
    def doubled_on_cpu(x: jax.Array) -> jax.Array:
        return x * (2 if target_platform() == "cpu" else 3)

    assert doubled_on_cpu(jnp.float32(1)) == 2
    with compiling_for("cuda"):
        assert "3.0" in doubled_on_cpu.lower(jnp.float32(1)).as_text()
    assert doubled_on_cpu(jnp.float32(1)) == 2
