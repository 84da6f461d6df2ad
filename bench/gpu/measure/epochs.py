"""Epochs of one recipe on its synthetic data set: what `auto` takes and `native`, beside PyG's ways of writing it."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from bench.comparison.cases import Case, export, problem_of, recipe, settings
from bench.comparison.measure import DEFAULT_VARIANTS, QUICKER_VARIANTS
from bench.comparison.protocol import WorkerError
from bench.gpu.measure.timing import measuring, preparing, timed
from bench.gpu.measure.torch_process import TorchProcess
from bench.gpu.measure.worker import Run
from jhgnn.config.recipe import override
from jhgnn.data import load
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.native import cuda
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.programs import Compiled, compile_lowered
from jhgnn.training.whole_graph import WholeGraph
from jhgnn.training.whole_graph_programs import WholeGraphPrograms

KERNELS: dict[str, dict[str, dict[str, str]]] = {
    model: {"auto": {}} | {name: {key: name, "projection": name} for name in names}
    for model, key, names in (
        ("han", "attention", ("bucketed",)),
        ("rgat", "attention", ("bucketed",)),
        ("rgcn", "mean", ("bucketed", "native")),
    )
}
"""Ours by model and by what they are told of the kernels; `auto` is native but for means over few edges."""
MORE_OF_PYG = {
    "han": ("HANConv, edge_index", "GATConv, EdgeIndex"),
    "rgcn": ("HeteroConv(SAGEConv), edge_index", "HeteroConv(Linear + SimpleConv), EdgeIndex"),
    "rgat": ("HeteroConv(GATConv), edge_index",),
}
"""What is tried beside the ways that were the quickest on CPUs; the quickest on the device counts."""


def rows(run: Run, case: str) -> Iterator[dict[str, Any]]:
    """A row for each of ours and each of PyG's; programs compile beside other cases, and are timed alone."""
    model, _, dataset = case.partition("-")
    which = Case(model, dataset)
    graph = load("synthetic", dataset, scale=run.sizes.scale, progress=False)
    with TorchProcess(run.folder, rehearsal=run.rehearsal) as torch:
        with preparing(run.folder):
            programs = {name: _prepared(graph, which, tables) for name, tables in KERNELS[model].items()}
        with measuring(run.folder):
            for name, program in programs.items():
                shared = {"kind": "epoch", "case": case, "implementation": name}
                yield shared | ({"skipped": program} if isinstance(program, str) else _timed(*program, run))
            yield from _pyg(torch, graph, which, run)


def _prepared(graph: HeteroGraph, case: Case, kernels: dict[str, str]) -> tuple[WholeGraph, Compiled] | str:
    """The execution and its compiled update, or why there is none."""
    if kernels and not cuda.available():
        return cuda.HOW_TO_GET_IT
    config = override(recipe(case), {"kernels": kernels, "sgb": {"cache_dir": ""}}, where="bench.gpu")
    execution = execution_of(problem_of(graph, config))
    assert isinstance(execution, WholeGraph)
    return execution, compile_lowered(execution.lower_update)


def _timed(execution: WholeGraph, program: Compiled, run: Run) -> dict[str, Any]:
    programs = WholeGraphPrograms(execution, [program], [])
    state = programs.place(execution.initial_state(0))
    batches = programs.feed(0).iterate(Cursor())
    losses: list[Any] = []

    def epoch() -> Any:
        nonlocal state
        state, report = programs.update(state, next(batches))
        losses.append(report.loss)
        return state, report

    in_a_row = timed(epoch, run.sizes)
    alone = timed(epoch, dataclasses.replace(run.sizes, sample_s=0.0))
    batches.close()
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "waiting": alone,
        "in_a_row": in_a_row,
        "implementations": sorted({choice.implementation for choice in execution.choices}),
        "losses": [float(np.asarray(local(loss))) for loss in losses[:3]],
        "compile_s": program.compile_s,
        "temp_bytes": program.peak_temp_bytes,
        "peak_bytes": int(stats.get("peak_bytes_in_use", 0)),
    }


def _pyg(torch: TorchProcess, graph: HeteroGraph, case: Case, run: Run) -> Iterator[dict[str, Any]]:
    shared = {"kind": "epoch", "case": case.name}
    if torch.missing:
        yield shared | {"implementation": "pyg", "skipped": torch.missing}
        return
    config = recipe(case)
    folder = export(graph, config, run.folder / "graphs" / case.name)
    told = folder / "settings.json"
    told.write_text(json.dumps(settings(graph, config)), encoding="utf-8")
    usual = (
        QUICKER_VARIANTS.get(("pyg", case.model, case.dataset)),
        DEFAULT_VARIANTS["pyg", case.model],
        *MORE_OF_PYG[case.model],
    )
    for variant in dict.fromkeys(filter(None, usual)):
        row = shared | {"implementation": "pyg", "variant": variant}
        if torch.missing:
            yield row | {"skipped": torch.missing}
            return
        try:
            timing = {"samples": run.sizes.samples, "sample_s": run.sizes.sample_s}
            yield row | torch.ask("epochs", folder=str(folder), settings=str(told), variant=variant, **timing)
        except WorkerError as error:
            yield row | {"failed": str(error)}
