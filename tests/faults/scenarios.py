"""The commands that are made to fail: what lies there before, what is done afterwards, and what must then be there."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TIMES = ("epoch_ms", "compile_s", "read_s", "sgb_s", "step_ms")
MODEL = ("--model.name", "han", "--model.hidden", "4", "--model.heads", "2", "--model.dropout", "0.4")
EPOCHS = 3

Result = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command on files below a folder: `data` is read, `out` is written.

    Attributes:
        name: of the command.
        before: commands that make what lies in `out` before, from the folder.
        command: its module and arguments, from the folder.
        again: what a user does after a failure, likewise.
        result: what is in `out` afterwards, as digests that do not differ from one run to the next.
        old: whether what was there before may stay as the result of a failure.
    """

    name: str
    before: Callable[[Path], Sequence[list[str]]]
    command: Callable[[Path], list[str]]
    again: Callable[[Path], list[str]]
    result: Callable[[Path], Result]
    old: bool = False


def _data(place: Path) -> tuple[str, ...]:
    return ("--data.format", "jhgnn", "--data.path", str(place / "data"))


def _train(place: Path, epochs: int) -> list[str]:
    own = ("--run.dir", str(place / "out/run"), "--sgb.cache_dir", str(place / "out/cache"))
    often = ("--training.checkpoint_every_s", "0", "--training.patience", "0", "--training.epochs", str(epochs))
    return ["train", *_data(place), *MODEL, *own, *often]


def _train_again(place: Path, epochs: int) -> list[str]:
    started = (place / "out/run/recipe.toml").exists()
    return [*_train(place, epochs), *(("--resume",) if started else ())]


def _trained(place: Path) -> Result:
    """The digits of a run: arrays of its newest checkpoint, metrics and summary without times."""
    import jax
    import numpy as np
    import orbax.checkpoint

    run = place / "out/run"
    newest = max(path.parent for path in run.glob("checkpoints/epoch-*/digests.json"))
    arrays = hashlib.sha256()
    tree = orbax.checkpoint.v1.load_checkpointables(newest)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        arrays.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode() + array.tobytes())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "checkpoint": f"{newest.name} {arrays.hexdigest()}",
        "metrics": json.dumps([_without_times(line) for line in lines]),
        "summary": json.dumps(_without_times(json.loads((run / "summary.json").read_text()))),
        "recipe": (run / "recipe.toml").read_text(),
        "curves": str((run / "curves.png").stat().st_size > 1000),
    }


def _without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in TIMES}


def _files(folder: Path) -> Result:
    """Digests of all files below a folder; what is left under a temporary name does not count."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def _predict(place: Path) -> list[str]:
    return ["predict", "--run", str(place / "out/run")]


def _profile(place: Path) -> list[str]:
    own = ("--run.dir", str(place / "out/profile"), "--sgb.cache_dir", "", "--warm-up", "1", "--steps", "1")
    return ["profile", *_data(place), *MODEL, *own]


def _profiled(place: Path) -> Result:
    profile = json.loads((place / "out/profile/profile.json").read_text())
    page = (place / "out/profile/report.html").read_text()
    return {"schema": str(profile["schema"]), "keys": ",".join(sorted(profile)), "page": str("</html>" in page)}


def _partition(place: Path, seed: int, *more: str) -> list[str]:
    own = ("--parts", "2", "--method", "random", "--seed", str(seed), "--out", str(place / "out/parts"))
    return ["partition", str(place / "data"), "--format", "jhgnn", *own, *more]


def _parts(place: Path) -> Result:
    from jhgnn.distributed.part import check_partition

    check_partition(place / "out/parts")
    return {name: digest for name, digest in _files(place / "out/parts").items() if not name.endswith(".png")}


def _partition_again(place: Path) -> list[str]:
    if (place / "out/parts").exists():
        return ["partition", "--check", str(place / "out/parts")]
    return _partition(place, 1)


SCENARIOS = (
    Scenario(
        "train",
        lambda _: (),
        lambda place: _train(place, EPOCHS),
        lambda place: _train_again(place, EPOCHS),
        _trained,
    ),
    Scenario(
        "resume",
        lambda place: (_train(place, EPOCHS - 1),),
        lambda place: [*_train(place, EPOCHS), "--resume"],
        lambda place: _train_again(place, EPOCHS),
        _trained,
    ),
    Scenario(
        "predict",
        lambda place: (_train(place, EPOCHS - 1),),
        _predict,
        _predict,
        lambda place: _files(place / "out/run/predictions"),
    ),
    Scenario("profile", lambda _: (), _profile, _profile, _profiled),
    Scenario("partition", lambda _: (), lambda place: _partition(place, 1), _partition_again, _parts),
    Scenario(
        "partition --overwrite",
        lambda place: (_partition(place, 0),),
        lambda place: _partition(place, 1, "--overwrite"),
        lambda place: _partition(place, 1, "--overwrite"),
        _parts,
        old=True,
    ),
)
