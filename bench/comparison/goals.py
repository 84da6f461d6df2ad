"""The performance goals of kernels and mini-batches beside what was measured, met or not.

Epochs, memory and waiting come from the comparison; kernels and the sampler alone from the stored results of
`python -m bench.ops` and `python -m bench.sampling`, which may be of another machine and commit: every row says whence.
"""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.comparison.cases import CASES, MINIBATCH_CASES
from bench.comparison.measure import PEERS
from bench.comparison.results import FileError

NINE = tuple(case.name for case in CASES if case.dataset != "aifb")
Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Goal:
    """A bound and the figure that has to keep it; no figure where it was not measured."""

    what: str
    bound: float
    figure: float | None
    source: str
    at_most: bool = False
    form: str = "{:.1f}"

    @property
    def met(self) -> bool | None:
        """None where nothing was measured."""
        if self.figure is None:
            return None
        return self.figure <= self.bound if self.at_most else self.figure >= self.bound

    def row(self) -> list[str]:
        """What, the bound, the figure, whether it is met, and where the figure comes from."""
        bound = f"{'at most' if self.at_most else 'at least'} {self.form.format(self.bound)}"
        figure = "not measured" if self.figure is None else self.form.format(self.figure)
        return [self.what, bound, figure, {True: "yes", False: "**no**", None: "-"}[self.met], self.source]


def goals(cells: Cells, source: str, results: Path) -> list[Goal]:
    """Every goal; `source` names the comparison's cells, `results` is the folder of the other studies.

    Raises:
        FileError: a stored study is there and is none.
    """
    ratios = {case: better_peer(cells.get(case, {})) for case in NINE}
    ops, ops_source = _study(results / "ops-cpu.json", "bench.ops")
    sampling, sampling_source = _study(results / "sampling.json", "bench.sampling")
    attention = {
        case: _least(_over_native(ops, "neighbor_attention", case, "forward + backward"))
        for case in ("acm_PSP", "dblp_APTPA")
    }
    return [
        Goal("epoch, better peer / jhgnn, mean of the nine", 15, _of_all(ratios, statistics.geometric_mean), source),
        Goal("the same, HAN on ACM", 25, ratios["han-acm"], source),
        Goal("the same, HAN on DBLP", 25, ratios["han-dblp"], source),
        Goal("the same, least of the nine", 5, _of_all(ratios, min), source),
        Goal("memory of HAN on DBLP, jhgnn / DGL", 0.2, _memory(cells), source, at_most=True, form="{:.2f}"),
        Goal("attention, forward + backward, ACM PSP, DGL / native", 20, attention["acm_PSP"], ops_source),
        Goal("the same, DBLP APTPA", 20, attention["dblp_APTPA"], ops_source),
        Goal("mean, DGL / native, least of all cases", 1, _least(_over_native(ops, "neighbor_mean")), ops_source),
        Goal("mean, MAG-size, of the bandwidth bound", 0.6, _share_of_bound(ops), ops_source, form="{:.0%}"),
        Goal("sampling, better peer / jhgnn, least of all settings", 2, _sampler(sampling), sampling_source),
        Goal(
            "waiting for batches made ahead, most of three models",
            0.05,
            _waiting(cells),
            source,
            at_most=True,
            form="{:.0%}",
        ),
    ]


def _study(path: Path, module: str) -> tuple[list[Mapping[str, Any]], str]:
    """Rows of a stored study, none where the file is missing; and the command that writes it, of which machine."""
    command = f"`python -m {module}`"
    if not path.exists():
        return [], command
    try:
        study = json.loads(path.read_text(encoding="utf-8"))
        return list(study["rows"]), f"{command}: {study['machine']}; commit {study['commit']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise FileError(f"{path}: not a stored study ({what}); restore it, or run python -m {module}") from error


def better_peer(frameworks: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The better peer's epoch over ours; None where either is missing."""
    theirs = [frameworks[peer]["epoch_ms"] for peer in PEERS if "epoch_ms" in frameworks.get(peer, {})]
    ours = frameworks.get("jhgnn", {}).get("epoch_ms")
    return min(theirs) / ours if ours and theirs else None


def _of_all(ratios: Mapping[str, float | None], of: Callable[[Iterable[float]], float]) -> float | None:
    """Of a part of the nine no figure: another part would give another one."""
    known = [ratio for ratio in ratios.values() if ratio is not None]
    return of(known) if len(known) == len(ratios) else None


def _memory(cells: Cells) -> float | None:
    ours, theirs = (cells.get("han-dblp", {}).get(name, {}).get("process_peak_bytes", 0) for name in ("jhgnn", "dgl"))
    return ours / theirs if ours and theirs else None


def _waiting(cells: Cells) -> float | None:
    """The largest share, with batches prepared ahead."""
    found = [cells.get(case.name, {}).get("jhgnn", {}).get("modes", {}).get("ahead", {}) for case in MINIBATCH_CASES]
    return max(float(mode["wait_share"]) for mode in found) if all("wait_share" in mode for mode in found) else None


def _over_native(rows: list[Mapping[str, Any]], op: str, case: str = "", part: str = "") -> list[float]:
    """DGL's time over the native kernel's, of one case and pass or of all."""
    return [
        row["results"]["dgl"]["over_native"]
        for row in rows
        if row["op"] == op and case in ("", row["case"]) and part in ("", row["pass"]) and "dgl" in row["results"]
    ]


def _share_of_bound(rows: list[Mapping[str, Any]]) -> float | None:
    wanted = ("mag_writes", "neighbor_mean", "forward")
    return _least([row["native_share_of_bound"] for row in rows if (row["case"], row["op"], row["pass"]) == wanted])


def _sampler(rows: list[Mapping[str, Any]]) -> float | None:
    """Of neighbors and of random walks, on both cores."""
    return _least([row["best_peer_over_ours_mean_ms"] for row in rows if row["threads"] == 2])


def _least(values: list[float]) -> float | None:
    return min(values, default=None)
