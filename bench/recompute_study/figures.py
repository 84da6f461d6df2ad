"""docs/recompute_figures.md: every figure of the study, case by case."""

from collections.abc import Iterator, Sequence

from bench.recompute_study import answers
from bench.recompute_study.budgets import alike, name_of, out_of_order
from bench.recompute_study.fit import Result, cpu_rows
from bench.recompute_study.formatting import GIB, MIB, NAMES, mib, ms, noise_of, table
from bench.recompute_study.gpus import STUDIED
from bench.recompute_study.rounds import NOISE
from bench.recompute_study.variants import Variant

INTRODUCTION = f"""# Recompute against memory: all figures

These are the figures behind [recompute against memory](recompute.md), which says what they mean and how they were
taken. `python -m bench.recompute --tables` writes both pages from `bench/results/recompute/*.json`.

Of this CPU: *needs* is the smallest `training.memory_budget`; *grew* is by how much the process's high-water mark rose
over its steps; *kept* is what is kept for the backward pass, by stage. A noise in bold stayed at or over {NOISE:.0%}
until the rounds' time was up. Of GPUs: programs are compiled for devices that are not here, and **times are predicted,
never measured**. Policies in one row compile to the same program."""


def figures(results: Sequence[Result]) -> str:
    """The page's text."""
    lines = [INTRODUCTION]
    for result in results:
        lines += ["", f"## {result['case']}"]
        if "cpu" in result["parts"]:
            lines += ["", *_on_cpu(result)]
        lines += _on_gpus(result)
    return "\n".join(lines) + "\n"


def _on_cpu(result: Result) -> Iterator[str]:
    """Programs of this machine, those out of order in memory, and what was refused."""
    part = result["parts"]["cpu"]
    about = f"{part['machine']}, JAX {part['jax']}, commit {part['commit']}"
    yield f"{about}, load average {part['load_average']:.1f}.\n"
    every, rows = cpu_rows(result), []
    for group in alike([row for row in every if "temp_bytes" in row], "program"):
        row = group[0]
        ran = bool(row.get("steps_s"))
        kept = {stage: num for stage, num in row["kept"].items() if num >= MIB / 20}
        rows.append(
            [
                *(row["implementation"], row["dtype"], ", ".join(name_of(each) for each in group)),
                *(mib(row["needed_bytes"]), mib(row["temp_bytes"])),
                mib(answers.growth_bytes(row)) if "steps_peak_bytes" in row else "-",
                f"{row['flops'] / 1e9:,.2f}",
                ms(row) if ran else f"not run: {row.get('not_run', 'its process ended')}",
                (noise_of(row) if ran else "-"),
                ", ".join(f"{stage} {num / MIB:,.1f}" for stage, num in sorted(kept.items())) or "-",
            ]
        )
    header = ["implementation", "dtype", "policy", "needs, MiB", "temporaries, MiB", "grew, MiB", "GFLOP", "step, ms"]
    yield from table([*header, "noise", "kept, MiB"], rows)
    for row in every:
        if "refused" in row:
            yield f"\n{row['implementation']}: {row['refused']}"
    yield from _order(result)
    peers = result["parts"].get("peers", {}).get("rows", ())
    for row in peers:
        if "refused" in row:
            why = row["refused"].partition("; see ")[0]  # a log that is gone
            yield f"\n{NAMES[row['implementation']]}, {row['variant']}, recomputing {row['recompute']}: {why}"


def _order(result: Result) -> Iterator[str]:
    reasons = {
        (*(row[field] for field in Variant._fields), row["keeps_more"]): row["tensors"]
        for row in result["parts"].get("peaks", {}).get("rows", ())
    }
    over: dict[tuple[str, ...], list[str]] = {}
    for keeps_more, keeps_less in out_of_order(cpu_rows(result)):
        tensors = reasons.get((*(keeps_less[field] for field in Variant._fields), keeps_more["remat"]))
        shown = [f"{mib(num)} `{name}`" for name, num in tensors or () if num >= MIB / 20]
        told = "not looked at" if tensors is None else "; ".join(shown)
        variant = (keeps_less["implementation"], keeps_less["dtype"], f"`{name_of(keeps_less)}`")
        memory = (mib(keeps_less["temp_bytes"]), mib(keeps_more["temp_bytes"]))
        over.setdefault((*variant, *memory, told), []).append(f"`{keeps_more['remat']}`")
    if over:
        yield "\nOut of order in memory, and the tensors of which the peak has more, in MiB:\n"
        rows = [[*cells[:4], ", ".join(policies), *cells[4:]] for cells, policies in over.items()]
        yield from table(["implementation", "dtype", "policy", "MiB", "over that of", "MiB", "tensors"], rows)


def _on_gpus(result: Result) -> Iterator[str]:
    rows = []
    for gpu in STUDIED:
        for group in alike(answers.gpu_rows(result, gpu), "program"):
            row = group[0]
            work = row["work"]
            flops = work["dot_flops"] + work["flops"] + work["native_flops"] + work["transcendentals"]
            moved = work["num_bytes"] + work["native_bytes"]
            rows.append(
                [
                    *(NAMES[gpu], row["implementation"], row["dtype"], ", ".join(name_of(each) for each in group)),
                    *(mib(row["temp_bytes"]), f"{flops / 1e9:,.2f}", f"{moved / GIB:,.3f}"),
                    *(f"{row['launches']:,}", str(row["float_scatters"]), f"{row['predicted_s'] * 1e3:,.2f}"),
                ]
            )
    if rows:
        header = ["GPU", "implementation", "dtype", "policy", "temporaries, MiB", "GFLOP", "GiB moved", "launches"]
        yield ""
        yield from table([*header, "float scatters", "predicted, ms"], rows)
    for gpu in STUDIED:
        for row in result["parts"].get(gpu, {}).get("rows", ()):
            if "refused" in row:
                variant = ", ".join(str(row[field]) for field in Variant._fields if field in row)
                yield f"\n{NAMES[gpu]}, {variant}: {row['refused']}"
