"""Memory by stage, read from a compiled program."""

import jax
import jax.numpy as jnp

from jhgnn.nn.stage import stage
from jhgnn.profiling.program_memory import assigned_rows, stage_memory

ROWS, WIDTH = 512, 64


def compiled():
    def loss(weight, x):
        with stage("FP", 0):
            projected = x @ weight
        with stage("NA", 0):
            return jnp.sum(jnp.sin(projected) @ projected.T)

    return jax.jit(jax.grad(loss)).lower(jnp.ones((WIDTH, WIDTH)), jnp.ones((ROWS, WIDTH))).compile()


def test_what_a_stage_makes_and_keeps_is_its_own():
    program = compiled()
    found = stage_memory(program)
    assert found.kept["FP"] >= 4 * ROWS * WIDTH
    assert found.peak_bytes >= 4 * ROWS * WIDTH
    assert sum(found.at_peak.values()) == found.peak_bytes
    assert found.at_peak.keys() <= {"FP", "NA", "other"}
    assert found.peak_bytes <= program.memory_analysis().temp_size_in_bytes + 4 * WIDTH * WIDTH


def test_the_assignment_names_the_places_of_temporary_values():
    rows = assigned_rows(compiled())
    assert rows is not None
    assert any(num_bytes == 4 * ROWS * WIDTH for *_, num_bytes in rows)
