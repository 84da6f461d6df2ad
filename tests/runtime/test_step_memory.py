"""A step's memory stays with the process, unless the environment says otherwise."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource
from jhgnn.runtime.step_memory import keep_step_memory
keep_step_memory()
import jax, jax.numpy as jnp
from jhgnn.nn.recompute import compile_with_barriers

def step(x):
    once = jax.lax.optimization_barrier(jnp.sin(x))
    return jnp.sum(jnp.flip(once) * once)

x = jnp.ones(25_000_000)
step = compile_with_barriers(jax.jit(step).lower(x))
assert step.memory_analysis().temp_size_in_bytes >= 100_000_000
jax.block_until_ready(step(x))
faults = []
for _ in range(9):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    jax.block_until_ready(step(x))
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(faults)[4])  # now and then something small takes the place between two steps, and the heap grows once
"""
FAULTS = 100_000_000 / 4096
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
@pytest.mark.skipif(
    HUGE.is_file() and "[always]" in HUGE.read_text(), reason="all pages are huge: too few faults to count"
)
@pytest.mark.slow
@pytest.mark.parametrize("switch", ["", "0"])
def test_most_steps_fault_no_memory_in(switch: str) -> None:
    environment = os.environ | {"JHGNN_KEEP_STEP_MEMORY": switch, "GLIBC_TUNABLES": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    faults = int(done.stdout)
    if switch == "0":
        assert faults > FAULTS / 2  # what the setting is for: without it, this test would mean nothing
    else:
        assert faults < FAULTS / 20


GIVEN_BACK = """
import sys
from pathlib import Path
import numpy as np
from jhgnn.runtime.step_memory import give_back_unused, keep_step_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

keep_step_memory()
freed, kept = np.ones(int(sys.argv[1])), np.ones(1_000)  # what is kept stands behind, so that the heap cannot shrink
del freed
before = resident()
give_back_unused()
print(before - resident(), kept.sum())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
@pytest.mark.slow
@pytest.mark.parametrize(("mebibytes", "given_back"), [(400, True), (100, False)])
def test_much_of_what_was_freed_goes_back_to_the_system_and_little_does_not(mebibytes: int, given_back: bool) -> None:
    environment = os.environ | {"JHGNN_KEEP_STEP_MEMORY": "", "GLIBC_TUNABLES": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", GIVEN_BACK, str(mebibytes << 17)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    less, kept = done.stdout.split()
    assert int(less) > 0.9 * (mebibytes << 20) if given_back else int(less) < (1 << 20)
    assert float(kept) == 1_000
