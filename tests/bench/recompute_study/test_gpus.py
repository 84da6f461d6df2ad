"""Compiling the study's programs for GPUs: shares in processes of their own, and how a failure is told."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from bench.recompute_study import gpus
from jhgnn.config import Config
from jhgnn.errors import InputError


@pytest.fixture
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there was one that compiles for GPUs."""
    monkeypatch.setattr(gpus, "create_gpu", lambda: "")
    monkeypatch.setattr(gpus, "missing", lambda: "")


@pytest.mark.usefixtures("_environment")
def test_rows_come_in_the_order_of_the_shares_however_those_end(monkeypatch: pytest.MonkeyPatch) -> None:
    later = threading.Event()

    def compiled(gpu: str, config: Config, implementation: str, dtype: str) -> list[gpus.Row]:
        assert gpu == "a100"
        if (implementation, dtype) == ("native", "float32"):
            assert later.wait(60)  # for a share that starts after it, so they do not wait for each other
        later.set()
        if implementation == "dense":
            limit = {"float32": "9.7", "bfloat16": "9.8"}[dtype]
            return [{"implementation": "dense", "refused": f"over the limit of {limit} GiB"}]
        return [{"implementation": implementation, "dtype": dtype, "remat": remat} for remat in ("none", "full")]

    monkeypatch.setattr(gpus.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(gpus, "_compiled", compiled)
    rows = gpus.compile_for("a100", Config())
    assert [(row["implementation"], row.get("dtype"), row.get("remat")) for row in rows] == [
        *(("native", dtype, remat) for dtype in ("float32", "bfloat16") for remat in ("none", "full")),
        ("dense", None, None),
        *(("segment", dtype, remat) for dtype in ("float32", "bfloat16") for remat in ("none", "full")),
    ]
    assert [row["refused"] for row in rows if "refused" in row] == ["over the limit of 9.8 GiB"]


@pytest.mark.usefixtures("_environment")
def test_a_compiler_that_fails_is_told_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "gpu_python", lambda: Path(sys.executable))
    monkeypatch.setattr(gpus, "to_toml", lambda _: "[nonsense]\nkey = 1\n")
    monkeypatch.setattr(gpus, "implementations", lambda _: ("native",))
    with pytest.raises(InputError, match=r"compiling for h100 ended with status 1: .*nonsense"):
        gpus.compile_for("h100", Config())


@pytest.mark.usefixtures("_environment")
@pytest.mark.parametrize("alone", [True, False])
def test_what_was_killed_is_compiled_alone(monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    tries: list[str] = []

    def compiled(gpu: str, config: Config, implementation: str, dtype: str) -> list[gpus.Row] | None:
        tries.append(dtype)
        if dtype == "bfloat16" and (tries.count(dtype) == 1 or not alone):
            return None
        return [{"implementation": implementation, "dtype": dtype}]

    monkeypatch.setattr(gpus, "implementations", lambda _: ("dense",))
    monkeypatch.setattr(gpus, "_compiled", compiled)
    if alone:
        assert [row["dtype"] for row in gpus.compile_for("h100", Config())] == ["float32", "bfloat16"]
    else:
        compiled_alone, refused = gpus.compile_for("h100", Config())
        assert compiled_alone["dtype"] == "float32"
        assert refused["implementation"] == "dense"
        assert "killed, also alone" in refused["refused"]
    assert (tries[-1], len(tries)) == ("bfloat16", 3)


def test_a_killed_process_is_told_apart_from_one_that_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "killed"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(gpus, "gpu_python", lambda: script)
    assert gpus._compiled("h100", Config(), "native", "float32") is None


@pytest.mark.usefixtures("_environment")
def test_an_interrupt_ends_the_compilers_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began, script = tmp_path / "began", tmp_path / "compiler"
    script.write_text(f"#!/bin/sh\ntrap '' INT\necho $$ >> {began}\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setattr(gpus, "gpu_python", lambda: script)
    monkeypatch.setattr(gpus, "implementations", lambda _: ("native",))
    monkeypatch.setattr(gpus, "variables", lambda: dict(os.environ))

    def interrupt() -> None:
        while not began.exists() or len(began.read_text().split()) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            gpus.compile_for("h100", Config())
    finally:
        signal.signal(signal.SIGINT, before)
    for process in began.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


def test_without_an_environment_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "create_gpu", lambda: "pip install: no network")
    with pytest.raises(InputError, match="nothing can be compiled for h200 here: pip install: no network"):
        gpus.compile_for("h200", Config())
