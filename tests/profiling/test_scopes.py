"""Which stage an op belongs to, from names, from what is fused, and from the data flow."""

import contextlib
import re
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from jhgnn.errors import InputError
from jhgnn.nn.stage import stage
from jhgnn.profiling import hlo
from jhgnn.profiling.scopes import Scope, attribute, parse_scope

PARTS = ("PAP", "paper", "paper:cites:paper", "http://x.org/a:to:b")


@pytest.mark.parametrize(
    ("op_name", "expected"),
    [
        ("jit(step)/jvp(layer0/NA/PAP)/gather", Scope("NA", "forward", 0, "PAP")),
        ("jit(step)/transpose(jvp(layer12/NA/PAP))/mul", Scope("NA", "backward", 12, "PAP")),
        ("jit(step)/jvp(layer0/NA/http://x.org/a:to:b)/add", Scope("NA", "forward", 0, "http://x.org/a:to:b")),
        ("jit(step)/jvp(layer1/FP/paper:cites:paper)/dot_general", Scope("FP", "forward", 1, "paper:cites:paper")),
        ("jit(evaluate)/layer0/SF/tanh", Scope("SF", "forward", 0)),
        ("jit(step)/jvp(layer0/SF)/jit(elu)", Scope("SF", "forward", 0)),
        ("jit(step)/PU/jit(_where)/select_n", Scope("PU", "update")),
        (
            "jit(step)/transpose(jvp(jvp()))/checkpoint/rematted_computation/layer0/FP/add",
            Scope("FP", "recompute", 0),
        ),
        ("jit(step)/jvp()/squeeze;jit(step)/jvp(layer0/FP/paper)/dot", Scope("FP", "forward", 0, "paper")),
        ("jit(step)/jvp()/xor", None),
        ("jit(step)/jvp(LCA/NAME)/xor", None),
        ("", None),
    ],
)
def test_names(op_name, expected):
    assert parse_scope(op_name, PARTS) == expected


PROGRAM = """HloModule jit_step, is_scheduled=true

%inside (p0: f32[8,4], p1: f32[8,4]) -> f32[8,4] {
  %p0 = f32[8,4]{1,0} parameter(0)
  %p1 = f32[8,4]{1,0} parameter(1)
  %a = f32[8,4]{1,0} add(%p0, %p1), metadata={op_name="jit(step)/jvp(layer0/FP/paper)/add"}
  %b = f32[8,4]{1,0} multiply(%a, %p1), metadata={op_name="jit(step)/jvp(layer0/NA/PAP)/mul"}
  %c = f32[8,4]{1,0} multiply(%b, %p1), metadata={op_name="jit(step)/jvp(layer0/NA/PAP)/mul"}
  ROOT %d = f32[8,4]{1,0} negate(%c), metadata={op_name="jit(step)/jvp(layer0/NA/PAP)/neg"}
}

ENTRY %main (x: f32[8,4]) -> (f32[8,4], s32[]) {
  %x = f32[8,4]{1,0} parameter(0)
  %dropout = f32[8,4]{1,0} negate(%x), metadata={op_name="jit(step)/jvp()/neg"}
  %fused = f32[8,4]{1,0} fusion(%x, %dropout), kind=kLoop, calls=%inside, metadata={op_name="jit(step)/jvp()/neg"}
  %copy.1 = f32[8,4]{0,1} copy(%fused)
  %counter = s32[] constant(3)
  %next = s32[] add(%counter, %counter), metadata={op_name="jit(step)/add"}
  ROOT %out = (f32[8,4]{0,1}, s32[]) tuple(%copy.1, %next)
}
"""


def test_a_fusion_is_split_by_the_elements_that_it_computes():
    found = attribute(hlo.parse(PROGRAM), PARTS)["fused"]
    assert found.shares == {Scope("FP", "forward", 0, "paper"): 0.25, Scope("NA", "forward", 0, "PAP"): 0.75}
    assert found.crosses
    assert found.source == "named"


def test_ops_without_a_stage_follow_the_data():
    found = attribute(hlo.parse(PROGRAM), PARTS)
    assert found["copy.1"].shares == found["fused"].shares
    assert found["dropout"].main == Scope("NA", "forward", 0, "PAP")
    assert found["dropout"].source == "inferred"
    assert found["next"].source == "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "not HLO text"), ("{}", "not HLO text"), (PROGRAM[:-200], "truncated HLO text")],
)
def test_broken_programs_give_one_line(text, message):
    with pytest.raises(InputError, match=message):
        hlo.parse(text, "step.hlo.txt")


def test_named_scopes_cost_nothing():
    def step(x):
        with stage("FP", 0, "paper"):
            y = jnp.tanh(x @ x)
        with stage("SF", 0):
            return (y * 2).sum()

    def program():
        text = jax.jit(jax.grad(step)).lower(jnp.ones((4, 4))).compile().as_text()
        return re.sub(r", metadata=\{[^}]*\}", "", text.partition("\nENTRY")[2])

    named = jax.jit(jax.grad(step)).lower(jnp.ones((4, 4))).compile().as_text()
    assert "layer0/FP/paper" in named
    with_scopes = program()
    with mock.patch("jax.named_scope", return_value=contextlib.nullcontext()):
        jax.clear_caches()
        without = program()
    assert with_scopes == without
