"""Finals: the best trials, and the recipe that the search began from, over several seeds.

A trial's figure is that of one seed and the best of many, so it flatters. The finals take other seeds than the trials.
"""

import dataclasses
import json
import statistics
from collections.abc import Sequence
from typing import Any

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.runtime.console import Say
from jhgnn.runtime.files import write_json
from jhgnn.runtime.interrupt import StopRequest
from jhgnn.searching.study import Study, trained
from jhgnn.training.loop import NonFiniteLossError
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose

FINALS_FILE = "finals.json"


@dataclasses.dataclass(frozen=True)
class Finalist:
    """Settings that were trained with several seeds.

    Attributes:
        name: `trial 3`, or `the recipe`.
        config: the recipe with the settings.
        values: the best validation figure of each seed, signed as it is shown.
    """

    name: str
    config: Config
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """The sample standard deviation; 0 of a single seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def play(
    study: Study, graph: HeteroGraph, num_seeds: int, num_finalists: int, say: Say, stop: StopRequest
) -> list[Finalist]:
    """Trains the finalists and gives them, best first; what an earlier call trained is read from the folder.

    Args:
        num_seeds: of each; they follow the seed of the trials.
        num_finalists: trials at most, the best ones by their own figure; the recipe comes on top.
        stop: asks to leave; those that are whole by then are given.

    Raises:
        InputError: the file of an earlier call cannot be read.
    """
    sign = 1 if study.figure == "loss" else -1
    done = sorted((each for each in study.trials if each.state == "done"), key=lambda each: sign * each.value)
    entries = [("the recipe", study.config)]
    entries += [(f"trial {each.number + 1}", study.config_of(each)) for each in done[:num_finalists]]
    known = _read(study)
    finalists = []
    for name, config in entries:
        values = dict(known.get(name, {}))
        try:
            _train(study, graph, config, num_seeds, values, stop)
        except (InputError, NonFiniteLossError) as error:
            say(f"{name}: left out ({error})")
            continue
        known[name] = values
        write_json(study.folder / FINALS_FILE, known)
        if stop:
            break
        seeds = _seeds(config, num_seeds)
        finalists.append(Finalist(name, config, tuple(sign * values[str(seed)] for seed in seeds)))
        say(f"{name}: {finalists[-1].mean:.4f} +- {finalists[-1].deviation:.4f} over {num_seeds} seeds")
    return sorted(finalists, key=lambda each: sign * each.mean)


def show(finalists: Sequence[Finalist], figure: str, say: Say) -> None:
    """Prints the finalists, best first."""
    rows = [[each.name, f"{each.mean:.4f} +- {each.deviation:.4f}"] for each in finalists]
    say.table(f"finals over {len(finalists[0].values)} seeds, by mean validation {figure}", ["settings", figure], rows)


def _train(
    study: Study, graph: HeteroGraph, config: Config, num_seeds: int, values: dict[str, float], stop: StopRequest
) -> None:
    """Adds to `values` the best figure of each seed that is not there yet; less is better."""
    import jax

    missing = [seed for seed in _seeds(config, num_seeds) if str(seed) not in values]
    if not missing:
        return
    programs = execution_of(pose(graph, config)).compile()
    for seed in missing:
        outcome = trained(programs, study.folder, config, seed, stop)
        if stop:
            break
        values[str(seed)] = outcome.progress.best_value
    del programs
    jax.clear_caches()


def _seeds(config: Config, num_seeds: int) -> list[int]:
    return [(config.run.seed + number) % 2**32 for number in range(1, num_seeds + 1)]


def _read(study: Study) -> dict[str, Any]:
    path = study.folder / FINALS_FILE
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): {str(seed): float(value) for seed, value in own.items()} for name, own in found.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}); delete it to train the finalists anew") from None
