"""What a GPU lacks is said in a line: its driver, or JAX's plugin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jhgnn.runtime import nvidia

ROOT = Path(__file__).parents[2]


def on_the_bus(root: Path, vendor: str, kind: str) -> Path:
    """A machine's root with one device on its PCI bus."""
    device = root / "sys" / "bus" / "pci" / "devices" / "0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    return root


@pytest.mark.parametrize(
    ("vendor", "kind", "found"),
    [("0x10de", "0x030200", True), ("0x10de", "0x040300", False), ("0x1002", "0x030000", False)],
)
def test_a_gpu_is_seen_on_the_bus_without_its_driver(tmp_path: Path, vendor: str, kind: str, found: bool) -> None:
    assert nvidia.has_gpu(on_the_bus(tmp_path, vendor, kind)) is found


def test_a_gpu_is_seen_by_the_file_of_its_driver(tmp_path: Path) -> None:
    assert not nvidia.has_gpu(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert nvidia.has_gpu(tmp_path)


@pytest.mark.parametrize(
    ("driver", "plugin", "line"),
    [
        (
            False,
            False,
            "NVIDIA's driver is not installed (libcuda.so.1 is not found); install it, and try `nvidia-smi`",
        ),
        (True, False, f"JAX's CUDA plugin is not installed; {nvidia.HOW_TO_GET_PLUGIN}"),
        (
            True,
            True,
            "JAX's CUDA plugin does not start; what JAX says above tells whether the driver is too old for it",
        ),
    ],
)
def test_the_first_thing_that_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, driver: bool, plugin: bool, line: str
) -> None:
    monkeypatch.setattr(nvidia, "has_gpu", lambda: True)
    monkeypatch.setattr(nvidia, "has_driver", lambda: driver)
    monkeypatch.setattr(nvidia, "PLUGINS", ("json",) if plugin else ("no_such_package.plugin",))
    assert nvidia.what_is_missing() == line
    for asked in ("", "cuda,cpu"):
        monkeypatch.setattr(nvidia, "asked_platforms", lambda asked=asked: asked)
        assert nvidia.unused_gpu() == f"an NVIDIA GPU is here, and JAX runs on the CPU: {line}"
    monkeypatch.setattr(nvidia, "asked_platforms", lambda: "cpu")
    assert nvidia.unused_gpu() == ""


def test_nothing_is_said_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "has_gpu", lambda: False)
    monkeypatch.setattr(nvidia, "asked_platforms", lambda: "")
    assert nvidia.unused_gpu() == ""


@pytest.mark.slow
@pytest.mark.skipif(nvidia.has_gpu(), reason="an NVIDIA GPU is here")
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("cuda", "NVIDIA's driver is not installed"),
        ("nonsense", "leave JAX_PLATFORMS out"),
    ],
)
def test_a_command_says_in_a_line_why_a_platform_cannot_be_had(tmp_path: Path, asked: str, line: str) -> None:
    command = [sys.executable, "-m", "jhgnn.train", "--config", str(ROOT / "configs" / "han_acm.toml")]
    done = subprocess.run(
        [*command, "--run.dir", str(tmp_path / "run")],
        env=os.environ | {"JAX_PLATFORMS": asked},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    (said,) = [text for text in done.stderr.splitlines() if text.startswith("error: ")]
    assert said.startswith(f"error: JAX_PLATFORMS={asked}: JAX cannot start it")
    assert line in said
    assert "Traceback" not in done.stderr
