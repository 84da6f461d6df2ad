"""How the environment that compiles for GPUs is called."""

from bench.gpu.environment import FLAGS, variables
from tests.compile_flags import QUICK_TO_COMPILE


def test_programs_for_gpus_are_not_compiled_as_quickly_as_those_of_tests(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"{QUICK_TO_COMPILE} --xla_dump_to=/tmp/dump")
    assert variables()["XLA_FLAGS"].split() == ["--xla_dump_to=/tmp/dump", FLAGS]
