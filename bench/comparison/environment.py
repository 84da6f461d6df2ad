"""The peers' environment, and what the machine is."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.record import ROOT

REQUIREMENTS = ROOT / "bench" / "requirements-peers.txt"
INSTALL_OPTIONS = ["--quiet", "--disable-pip-version-check", "--no-compile"]
"""Python compiles what it imports at its first import; compiling all that is installed took 63 s more."""
IMPORTS = {"dgl": "dgl", "pyg": "torch_geometric"}


def peers_python() -> Path:
    """The interpreter of the peers' environment, whether it exists or not."""
    return Path(os.environ.get("JHGNN_PEERS_PYTHON", ROOT / ".venv-peers" / "bin" / "python"))


def create_peers() -> list[str]:
    """Creates `.venv-peers` where there is none, and installs line by line what can be; what could not, in words."""
    python = peers_python()
    if python.exists():
        return []
    problems = []
    done = subprocess.run([sys.executable, "-m", "venv", python.parents[1]], capture_output=True, text=True)
    if done.returncode:
        return [f"python -m venv: {_last_line(done.stderr)}"]
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        print(f"installing {line}", flush=True)
        command = [str(python), "-m", "pip", "install", *INSTALL_OPTIONS, *line.split()]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            problems.append(f"pip install {line}: {_last_line(done.stderr)}")
    return problems


def missing(framework: str) -> str:
    """Why a peer cannot run; empty where it can."""
    python = peers_python()
    if not python.exists():
        return f"no interpreter at {python.name} of .venv-peers"
    environment = dict(os.environ) | {"DGLBACKEND": "pytorch", "PYTHONPATH": ""}
    command = [str(python), "-W", "ignore", "-c", f"import {IMPORTS[framework]}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return _last_line(done.stderr) if done.returncode else ""


def machine() -> dict[str, Any]:
    """Processor, cores, memory and load, as the results record them."""
    processor = platform.processor() or platform.machine()
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        processor = found.group(1).strip() if found else processor
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "load_average_at_start": round(os.getloadavg()[0], 2),
    }


def slug(described: dict[str, Any]) -> str:
    """A file name part for a machine."""
    words = re.sub(r"\((?:R|TM|r|tm)\)|CPU|Processor|@.*", " ", described["processor"]).lower()
    return "-".join(re.findall(r"[a-z0-9.]+", words)) + f"-{described['cores']}cores"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"
