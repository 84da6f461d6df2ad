"""Programs compiled side by side."""

import jax
import jax.numpy as jnp
import pytest

from jhgnn.runtime.platform import compiling_for
from jhgnn.training import programs
from jhgnn.training.programs import compile_lowered, compile_together, lower_ahead

SHAPE = (jax.ShapeDtypeStruct((3,), jnp.float32),)


def lowers(*factors):
    return [lambda factor=factor: lower_ahead(lambda x: factor * x, SHAPE) for factor in factors]


@pytest.mark.parametrize("cores", [1, 4])
def test_each_is_where_its_trace_was(cores, monkeypatch):
    monkeypatch.setattr(programs.os, "sched_getaffinity", lambda _: range(cores))
    made = compile_together(lowers(1.0, 2.0, 3.0))
    assert [program(jnp.ones(3)).tolist() for program in made] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]
    assert all(program.compile_s > 0 for program in made)
    assert compile_together([]) == []


def test_what_a_trace_raises_is_raised():
    def wrong():
        raise ArithmeticError("no such weight")

    with pytest.raises(ArithmeticError, match="no such weight"):
        compile_together([*lowers(1.0), wrong])


def test_it_is_compiled_for_the_platform_of_the_caller(monkeypatch):
    asked = []
    compile_now = programs.recompute.compile_with_barriers

    def compile_and_ask(lowered):
        asked.append(programs.target_platform())
        return compile_now(lowered)

    monkeypatch.setattr(programs.recompute, "compile_with_barriers", compile_and_ask)
    with compiling_for("cuda"):
        compile_lowered(*lowers(1.0))
    compile_lowered(*lowers(1.0))
    assert asked == ["cuda", "cpu"]
