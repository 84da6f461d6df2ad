"""From a wheel in an environment of its own and another folder: the commands and the shipped recipes work."""

import os
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.distributions import Distributions

KERNELS = "jhgnn/native/libjhgnn_kernels.so"


def installed(wheel: Path, folder: Path) -> Path:
    """The bin folder of a new environment that holds the wheel; what it depends on is this one's, jhgnn is not."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    own = [path for path in sys.path + site.getsitepackages() if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text(
        "\n".join(dict.fromkeys(own))
    )  # without its .pth files: no editable jhgnn
    command = ["install", "--no-deps", "--no-index", "--ignore-installed", "--prefix", str(folder), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, capture_output=True)
    script = folder / "bin" / "jhgnn"
    python = folder / "bin" / "python"
    script.write_text(f"#!{python}\n" + script.read_text().partition("\n")[2])
    return folder / "bin"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [True, False], ids=["compiler", "no compiler"])
def test_the_commands_work_from_a_wheel_in_another_folder(compiler: bool, built: Distributions, tmp_path: Path) -> None:
    wheel = built.wheel if compiler else built.wheel_without_compilers(tmp_path)
    names = zipfile.ZipFile(wheel).namelist()
    assert (KERNELS in names) == compiler
    assert "jhgnn/configs/han_acm.toml" in names
    bin_folder = installed(wheel, tmp_path / "environment")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: str) -> str:
        command = [str(bin_folder / "jhgnn"), *arguments]
        done = subprocess.run(
            command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    python = [str(bin_folder / "python"), "-c", "import jhgnn; print(jhgnn.__file__)"]
    found = subprocess.run(python, cwd=elsewhere, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(tmp_path / "environment"))
    assert all(
        f"  {name} " in run("--help") for name in ("train", "predict", "serve", "profile", "partition", "describe")
    )
    small = ("--data.scale", "0.2", "--run.tensorboard", "false", "--sgb.cache_dir", "")
    run("train", "--config", "han_acm", "--training.epochs", "2", *small)
    assert (elsewhere / "runs" / "han_acm" / "summary.json").exists()
    assert "paper" in run("describe", "acm", "--scale", "0.1")
    run("predict", "--run", "runs/han_acm")
    assert (elsewhere / "runs" / "han_acm" / "predictions" / "predictions.csv").exists()
    profiled = ("--config", "han_acm", "--warm-up", "1", "--steps", "1", "--run.dir", "profile")
    run("profile", *profiled, *small)
    assert (elsewhere / "profile" / "report.html").exists()
