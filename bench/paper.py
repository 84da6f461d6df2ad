"""`python -m bench.paper`: the characterization paper's experiments, as far as this machine allows, as a page."""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from bench.paper_study.figures import draw_all
from bench.paper_study.findings import all_findings
from bench.paper_study.guidelines import guidelines
from bench.paper_study.runs import TRACED_STEPS, planned, take
from bench.record import RESULTS as STORED
from bench.record import ROOT, commit, store
from jhgnn.runtime.files import write_text

RESULTS = STORED / "paper.json"
CONTENTION = STORED / "contention.json"
PARTIAL = STORED / ".paper.partial.json"
DOCUMENT = ROOT / "docs" / "findings.md"
IMAGES = ROOT / "docs" / "images"


def measure(groups: list[str], quick: bool) -> dict[str, Any]:
    """Takes every planned profile; progress goes to stderr, and what was taken survives an interruption."""
    runs = [run for run in planned(quick) if not groups or run.group in groups or f"{run.group} {run.name}" in groups]
    rows = json.loads(PARTIAL.read_text(encoding="utf-8")) if PARTIAL.exists() and not quick else []
    taken = {(row["group"], row["name"]) for row in rows}
    for number, run in enumerate(runs, 1):
        if (run.group, run.name) in taken:
            continue
        start = time.perf_counter()
        rows.append(take(run))
        if not quick:
            PARTIAL.write_text(json.dumps(rows), encoding="utf-8")
        print(f"{number}/{len(runs)} {run.group} {run.name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    PARTIAL.unlink(missing_ok=True)
    return {"machine": _machine(), "quick": quick, "traced_steps": TRACED_STEPS, "rows": rows}


def contention_rows() -> list[dict[str, Any]]:
    """What `python -m bench.contention` measured with a process a share; empty before it has run."""
    if not CONTENTION.exists():
        return []
    found = []
    for row in json.loads(CONTENTION.read_text(encoding="utf-8"))["rows"]:
        each = row["processes"]
        found.append(
            {
                "group": "contention",
                "name": str(row["shares"]),
                "sample_s": each["ms"] / 1e3,
                "edges": each["edges_per_share"],
                "switches": each["voluntary_switches"] + each["involuntary_switches"],
                "one_process_s": row["one_process"]["ms"] / 1e3,
            }
        )
    return found


CAPTIONS = {
    "paper_fig3_time.png": "Time by stage (Fig. 3)",
    "paper_fig4_kernels.png": "Time by kernel type (Fig. 4)",
    "paper_fig5_roofline.png": "Roofline with measured ceilings, HAN on DBLP (Fig. 5)",
    "paper_fig6_traffic.png": "Memory traffic by stage (Fig. 6)",
    "paper_fig7_memory.png": "Memory over a step, HAN (Fig. 7a)",
    "paper_fig9_metapaths.png": "Metapath length and number, HAN on IMDB (Fig. 9)",
    "paper_fig10_minibatch.png": "Time of a mini-batch step, batches prepared in turn (Fig. 10a)",
    "paper_fig11_sampling.png": "Sampling time by metapath length and number, HAN (Fig. 11)",
    "paper_fig13_contention.png": "Processes that sample at the same time (Fig. 13, without the cache's hit rate)",
}


def document(results: dict[str, Any]) -> str:
    """The findings as a page."""
    rows = results["rows"]
    machine = results["machine"]
    lines = [
        "# Findings of the characterization paper, measured here",
        "",
        "Han et al., *Characterizing and Understanding HGNN Training on GPUs* (2024), ran DGL on an A100; this page"
        " runs jhgnn on the machine below. Verdicts are computed from the measured figures"
        " (`bench/paper_study/findings.py`), and `python -m bench.paper` writes the page again:"
        " `bench/results/paper.json` holds every figure.",
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}; JAX {machine['jax']}, float32,"
        f" synthetic graphs of Table 3's sizes; the fastest of {results['traced_steps']} traced steps."
        f" The machine was shared (load {machine['load']:.1f} at the end): read times as shares and ratios.",
        "",
        "| # | finding | paper | here | verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    for finding in all_findings(rows):
        lines.append(
            f"| {finding.number} | {finding.claim} | {finding.paper} | {finding.ours} | **{finding.verdict}** |"
        )
    pairs = [row for row in rows if row["group"] == "pairs"]
    lines += [
        "",
        "## How well the profiles add up",
        "",
        "| pair | attributed | in ops that cross a border | parts / measured step | step, ms |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in pairs:
        lines.append(
            f"| {row['name']} | {row['attributed']:.2%} | {row['crossing']:.1%} | {row['parts_over_measured']:.3f} |"
            f" {row['step_s'] * 1e3:.1f} |"
        )
    lines += tables(rows)
    lines += guidelines(rows)[:-1]
    lines += ["", "## Figures"]
    for name, caption in CAPTIONS.items():
        if (IMAGES / name).exists():
            lines += ["", f"![{caption}](images/{name})", "", caption]
    lines += [
        "",
        "Not measurable here, so without a figure: Fig. 7b and Fig. 8 (stall reasons, L2 hits: counters of a GPU),"
        " Fig. 10b and c (sampling on a GPU), Fig. 12 (several GPUs), the hit rate in Fig. 13b (counters), Fig. 14"
        ' (PCIe and NVLink). Verdicts that begin with "modelled" come from reuse distances ([locality](locality.md))'
        " and from programs compiled for A100 (constants: `bench/several_gpus.py`); nothing was run on a GPU.",
        "",
    ]
    return "\n".join(lines)


def tables(rows: list[dict[str, Any]]) -> list[str]:
    """Tables 4 and 5 as far as they can be measured; a dash stands for a counter of a GPU."""
    lines: list[str] = []
    dblp = next((row for row in rows if row["group"] == "pairs" and row["name"] == "han dblp"), None)
    if dblp is not None and dblp.get("kernels"):
        ceiling = dblp["ceilings"]["copy_bytes_per_s"]
        lines += [
            "",
            "## Main kernels, HAN on DBLP (Table 4)",
            "",
            "| stage | kernel | type | % of the stage | % of copy bandwidth | FLOP/byte | L2 hit rate | stalls |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for stage in ("FP", "NA", "SF"):
            for direction in ("forward", "backward"):
                found = [each for each in dblp["kernels"] if (each["stage"], each["direction"]) == (stage, direction)]
                whole = sum(each["seconds"] for each in found)
                for each in sorted(found, key=lambda each: -each["seconds"])[:3]:
                    if each["seconds"] < 0.05 * whole:
                        continue
                    reach = f"{each['bytes_per_s'] / ceiling:.1%}" if each["bytes_per_s"] is not None else "-"
                    intensity = f"{each['intensity']:.2f}" if each["intensity"] is not None else "-"
                    lines.append(
                        f"| {stage} {direction} | `{each['kernel']}` | {each['type']} | {each['seconds'] / whole:.1%} |"
                        f" {reach} | {intensity} | - | - |"
                    )
        lines += ["", "Bytes are the cost model's, so rows that stay in a cache can exceed the copy bandwidth."]
    sampled = [row for row in rows if row["group"] == "sampled"]
    if sampled:
        lines += [
            "",
            "## Sampling (Table 5)",
            "",
            "| pair | sampling, ms a batch | gathering, ms | placing, ms | step, ms | sampling / step | counters |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in sampled:
            parts = [1e3 * row["host"].get(name, 0.0) for name in ("SAMPLE", "GATHER", "LOAD")]
            wall = 1e3 * row["traced_s"]
            cells = " | ".join(f"{part:.2f}" for part in parts)
            lines.append(f"| {row['name']} | {cells} | {wall:.1f} | {parts[0] / wall:.1%} | - |")
        lines += [
            "",
            "Sampling is one native call on the host, not GPU kernels; MAG is a tenth of its size. Batches are prepared"
            " in turn here; training prepares them ahead, which hides what other cores can do meanwhile.",
        ]
    return lines


def _machine() -> dict[str, Any]:
    import jax

    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "jax": jax.__version__,
        "commit": commit(),
        "load": os.getloadavg()[0],
    }


def main() -> int:
    """Measures, or with --write writes the page from measured results."""
    parser = argparse.ArgumentParser(prog="python -m bench.paper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs, to try the study out; writes no page")
    parser.add_argument(
        "--write", action="store_true", help="only write docs/findings.md from bench/results/paper.json"
    )
    parser.add_argument("--groups", nargs="*", default=[], help="experiments to repeat; the others keep their results")
    options = parser.parse_args()
    if options.write:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        results["rows"] = [row for row in results["rows"] if row["group"] != "contention"]
    else:
        results = measure(options.groups, options.quick)
        if options.quick:
            for finding in all_findings(results["rows"]) if not options.groups else []:
                print(f"{finding.number:>6} {finding.verdict:20} {finding.ours}")
            return 0
        if options.groups:
            kept = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
            taken = {(row["group"], row["name"]) for row in results["rows"]}
            rows = [row for row in kept if (row["group"], row["name"]) not in taken and row["group"] != "contention"]
            rows += results["rows"]
            order = [(run.group, run.name) for run in planned()]
            results["rows"] = sorted(rows, key=lambda row: order.index((row["group"], row["name"])))
    results["rows"] += contention_rows()
    store(RESULTS, results)
    draw_all(results["rows"], IMAGES)
    write_text(DOCUMENT, document(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
