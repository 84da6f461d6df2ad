"""summary.json and the tables that a run ends with."""

import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax

from jhgnn.runtime.console import Say
from jhgnn.training.execution import Programs
from jhgnn.training.loop import Outcome
from jhgnn.training.state import num_params

PACKAGES = ("jhgnn", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy")


def summarize(programs: Programs, outcome: Outcome, seed: int) -> dict[str, Any]:
    """One run's `summary.json`; `_s` are seconds, `_ms` milliseconds, F1, accuracy, hits and waste are shares of 1."""
    execution = programs.execution
    config, by_split = execution.config, outcome.scores
    scores = {
        f"{split}_{name}": by_split[split][name] if split in by_split else None
        for split, names in execution.task.summarized.items()
        for name in names
    }
    return {
        "model": config.model.name,
        "dataset": execution.graph.name,
        **scores,
        "best_epoch": outcome.progress.best_epoch,
        "epochs": outcome.progress.epoch,
        "stopped_by": outcome.stopped_by,
        "epoch_ms": outcome.epoch_ms,
        "compile_s": programs.compile_s,
        "read_s": execution.read_s,
        "sgb_s": execution.sgb_s,
        "remat": config.training.remat,
        "peak_temp_bytes": programs.step.peak_temp_bytes,
        "params": num_params(execution.abstract_params),
        "metapaths": [metapath.name for metapath in execution.metapaths],
        "implementations": {choice.subject: choice.implementation for choice in execution.choices},
        "implementation_reasons": {choice.subject: choice.reason for choice in execution.choices},
        "seed": seed,
        "device": jax.devices()[0].device_kind,
        "versions": versions(),
        **outcome.extra,
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def combine(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of several seeds: means under the same names, sample standard deviations as `*_std`, all runs."""
    combined: dict[str, Any] = {name: summaries[0][name] for name in ("model", "dataset")}
    numeric = [
        name
        for name, value in summaries[0].items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("seed", "params")
    ]
    for name in numeric:
        values = [summary[name] for summary in summaries]
        combined[name] = statistics.fmean(values)
        combined[f"{name}_std"] = statistics.stdev(values) if len(values) > 1 else 0.0
    for name in ("params", "metapaths", "implementations", "implementation_reasons", "device", "versions"):
        combined[name] = summaries[0][name]
    combined |= {name: summaries[0][name] for name in ("rows", "rows_reason") if name in summaries[0]}
    combined["seed"] = [summary["seed"] for summary in summaries]
    combined["runs"] = list(summaries)
    return combined


def print_summary(say: Say, summary: Mapping[str, Any]) -> None:
    """The table at the end of a run, or of several seeds."""

    def shown(name: str, scale: float, digits: int, unit: str = "") -> str:
        if summary.get(name) is None:
            return "-"
        text = f"{summary[name] * scale:,.{digits}f}"
        if f"{name}_std" in summary:
            text += f" +- {summary[f'{name}_std'] * scale:,.{digits}f}"
        return text + unit

    implementations = sorted(set(summary["implementations"].values()))
    seeds = summary["seed"] if isinstance(summary["seed"], list) else [summary["seed"]]
    if "test_mrr" in summary:
        scores = [
            ("test MRR, filtered", shown("test_mrr", 1, 4)),
            *((f"test hits@{k}", shown(f"test_hits@{k}", 100, 2, " %")) for k in (1, 3, 10)),
            ("test ROC-AUC", shown("test_auc", 100, 2, " %")),
            ("validation MRR", shown("val_mrr", 1, 4)),
        ]
    elif "test_micro_f1" in summary:
        scores = [
            ("test micro-F1", shown("test_micro_f1", 100, 2, " %")),
            ("test macro-F1", shown("test_macro_f1", 100, 2, " %")),
            ("validation micro-F1", shown("val_micro_f1", 100, 2, " %")),
        ]
    else:  # of a task of one's own
        figures = [name for name in summary if name.startswith(("test_", "val_")) and not name.endswith("_std")]
        scores = [(name.replace("_", " ", 1), shown(name, 1, 4)) for name in figures]
    rows = [
        *scores,
        ("best epoch / epochs", f"{shown('best_epoch', 1, 0)} / {shown('epochs', 1, 0)}"),
        ("epoch", shown("epoch_ms", 1, 2, " ms")),
        ("compile", shown("compile_s", 1, 2, " s")),
        ("read, semantic graph build", f"{shown('read_s', 1, 2, ' s')}, {shown('sgb_s', 1, 2, ' s')}"),
        ("step's temporary memory", shown("peak_temp_bytes", 2**-20, 1, " MiB")),
        ("parameters", f"{summary['params']:,}"),
        ("implementations", ", ".join(implementations)),
        *([("rows of a step", f"{summary['rows']}: {summary['rows_reason']}")] if "rows" in summary else []),
        ("seeds", ", ".join(map(str, seeds))),
    ]
    say.table(f"{summary['model']} on {summary['dataset']}", ("", "value"), rows)
