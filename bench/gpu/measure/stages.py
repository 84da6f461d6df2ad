"""A training step by stage, as `jhgnn.profile` reads it from XLA's trace of a GPU; traces are kept."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.measure.timing import measuring
from bench.gpu.measure.worker import Run
from bench.record import ROOT


def rows(run: Run, case: str) -> Iterator[dict[str, Any]]:
    """A row: seconds of a step, traced with kernels that start one by one and as it trains, and shares of stages."""
    folder = run.folder / "profiles" / case
    row: dict[str, Any] = {"kind": "stages", "case": case}
    try:
        with measuring(run.folder):
            row |= figures(profiled(run, case, folder, ""))
    except RuntimeError as error:  # the trace is kept, from which the reason can be seen
        row["failed"] = str(error)
    keep(folder, run.kept / f"profile-{case}.tar.gz")
    yield row


def figures(profile: Mapping[str, Any]) -> dict[str, Any]:
    """What of a profile goes into the results."""
    stages = [{key: each.get(key) for key in ("stage", "direction", "share")} for each in profile["stages"]]
    launches = sum(each["launches"] for each in (profile["gpu"] or {"kernels": []})["kernels"])
    kept = {key: profile[key] for key in ("step", "attribution", "warnings")}
    return kept | {"stages": stages, "launches": launches}


def profiled(run: Run, case: str, folder: Path, flags: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """What `jhgnn.profile` wrote of a case; `folder` is made.

    Raises:
        RuntimeError: it failed; the message is its last line.
    """
    model, _, dataset = case.partition("-")
    command = [sys.executable, "-m", "jhgnn.profile", "--config", str(ROOT / "configs" / f"{model}_{dataset}.toml")]
    command += ["--run.dir", str(folder), "--data.scale", str(run.sizes.scale), *options]
    variables = dict(os.environ) | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
    if run.rehearsal:
        variables["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"jhgnn.profile: {(done.stderr.strip().splitlines() or ['no message'])[-1][:300]}")
    found: dict[str, Any] = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
    return found


def keep(folder: Path, archive: Path) -> None:
    """Packs a profile's folder, from which `jhgnn.profile --trace` can read again; pictures are drawn anew."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    for drawn in folder.glob("*.png"):
        drawn.unlink()
    temporary = archive.with_suffix(".tmp")
    with tarfile.open(temporary, "w:gz") as file:
        file.add(folder, arcname=folder.name)
    temporary.replace(archive)
    shutil.rmtree(folder)
