"""A study as a table, a CSV file and a plot."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jhgnn.runtime.console import Say
from jhgnn.runtime.files import write_text
from jhgnn.searching.study import Study, Tried, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 10


def show(study: Study, say: Say) -> None:
    """Prints the best trials, best first."""
    done = _ranked(study)[:SHOWN]
    fields = [each.field for each in study.space]
    rows = [
        [
            str(tried.number + 1),
            f"{tried.value:.4f}",
            str(tried.epochs),
            *(short(tried.settings[name]) for name in fields),
        ]
        for tried in done
    ]
    counts = ", ".join(
        f"{sum(tried.state == state for tried in study.trials)} {state}" for state in ("done", "pruned", "refused")
    )
    say.table(
        f"the best of {len(study.trials)} trials ({counts}), by validation {study.figure}",
        ["trial", study.figure, "epochs", *fields],
        rows,
    )


def write_trials(study: Study) -> Path:
    """Writes all trials as CSV into the study's folder."""
    text, fields = io.StringIO(), [each.field for each in study.space]
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["trial", "state", f"validation {study.figure}", "epochs", "seconds", *fields, "reason"])
    for tried in study.trials:
        settings = [tried.settings[name] for name in fields]
        row = [
            tried.number + 1,
            tried.state,
            tried.value,
            tried.epochs,
            f"{tried.seconds:.1f}",
            *settings,
            tried.reason,
        ]
        table.writerow(row)
    path = study.folder / "trials.csv"
    write_text(path, text.getvalue())
    return path


def draw(study: Study) -> Path:
    """Draws the figure by trial with the best so far, and over each field, into the study's folder."""
    figure = plot(study)
    path = study.folder / "search.png"
    temporary = study.folder / ".search.tmp.png"
    figure.savefig(temporary, dpi=120)
    temporary.replace(path)
    return path


def plot(study: Study) -> "Figure":
    """The plot of `draw`; a panel for the order of trials, and one a field."""
    from matplotlib.figure import Figure

    done = [tried for tried in study.trials if tried.state == "done"]
    pruned = [tried for tried in study.trials if tried.state == "pruned"]
    figure = Figure(figsize=(3.6 * (1 + len(study.space)), 3.4), layout="constrained")
    panels = figure.subplots(1, 1 + len(study.space), sharey=True, squeeze=False)[0]
    better = np.minimum if study.figure == "loss" else np.maximum
    panels[0].set_title("in order of trials")
    panels[0].set_ylabel(f"validation {study.figure}")
    for tried, marker, label in ((done, "o", "done"), (pruned, "x", "pruned")):
        panels[0].scatter(
            [each.number + 1 for each in tried], [each.value for each in tried], marker=marker, label=label
        )
    if done:
        best = better.accumulate([each.value for each in done])
        panels[0].step([each.number + 1 for each in done], best, where="post", label="best so far")
    panels[0].xaxis.get_major_locator().set_params(integer=True)
    panels[0].legend()
    for panel, dimension in zip(panels[1:], study.space, strict=True):
        panel.set_title(dimension.field)
        if dimension.log:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter("{x:g}")  # in plain text: powers would ask for fonts that may be missing
            panel.xaxis.set_minor_formatter("")
        for tried, marker in ((done, "o"), (pruned, "x")):
            values = [each.settings[dimension.field] for each in tried]
            places = [dimension.choices.index(value) for value in values] if dimension.choices else values
            panel.scatter(places, [each.value for each in tried], marker=marker)
        if dimension.choices:
            panel.set_xticks(range(len(dimension.choices)), list(map(str, dimension.choices)))
    return figure


def _ranked(study: Study) -> list[Tried]:
    sign = 1 if study.figure == "loss" else -1
    done = [tried for tried in study.trials if tried.state == "done"]
    return sorted(done, key=lambda tried: (sign * tried.value, tried.number))
