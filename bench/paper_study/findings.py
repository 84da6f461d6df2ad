"""The paper's 22 findings, each judged by the figures of this machine's runs; nothing here is written by hand."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.paper_study.modelled import modelled_findings
from bench.paper_study.runs import LENGTHS, NUMBERS, geometric_mean, total

Row = dict[str, Any]
HOLDS, FAILS, PARTLY, ABSENT = "holds", "does not hold", "holds in part", "not measurable here"
OPEN = "not measured yet"


class Finding(NamedTuple):
    """One row: the paper's number, what it says and measured, what we measured, and the verdict."""

    number: str
    claim: str
    paper: str
    ours: str
    verdict: str


def all_findings(rows: Sequence[Row]) -> list[Finding]:
    """The 22 findings in order, and the comparisons of section 6."""
    pairs = [row for row in rows if row["group"] == "pairs"]
    measured: dict[str, Callable[[], Finding]] = {
        "1": lambda: _forward_or_backward(pairs),
        "2": lambda: _dominant_stage(pairs, [row for row in rows if row["group"] == "segment"]),
        "3": lambda: _kernel_types(pairs),
        "4": lambda: _additions(pairs),
        "5": lambda: _bounds_forward(pairs),
        "6": lambda: _bounds_backward(pairs),
        "7": lambda: _traffic(pairs),
        "8": lambda: _traffic_stage(pairs),
        "9": lambda: _memory(pairs, [row for row in rows if row["group"] == "segment"]),
        "13": lambda: _length([row for row in rows if row["group"] == "length"]),
        "14": lambda: _number([row for row in rows if row["group"] == "number"]),
    }
    groups = {row["group"] for row in rows}
    if "sampled" in groups:
        measured["15"] = lambda: _sampling_share([row for row in rows if row["group"] == "sampled"])
    if "sample length" in groups:
        measured["17"] = lambda: _sample_length([row for row in rows if row["group"] == "sample length"])
    if "sample number" in groups:
        measured["18"] = lambda: _sample_number([row for row in rows if row["group"] == "sample number"])
    if "contention" in groups:
        measured["21"] = lambda: _contention([row for row in rows if row["group"] == "contention"])
    result = []
    modelled = modelled_findings()
    for number in map(str, range(1, 23)):
        if number in measured:
            result.append(measured[number]())
        elif number in modelled:
            claim, paper, _ = _NOT_HERE[number]
            result.append(Finding(number, claim, paper, *modelled[number]))
        else:
            claim, paper, why = _NOT_HERE[number]
            result.append(Finding(number, claim, paper, why, OPEN if why in (_MINI_BATCH, _CONTENTION) else ABSENT))
    homogeneous = [row for row in rows if row["group"] == "homogeneous"]
    return [*result, _sgb(pairs), _fusion_overhead(pairs), _against_homogeneous(pairs, homogeneous)]


_COUNTERS = "needs hardware counters of a GPU (Nsight Compute)"
_MINI_BATCH = "to be measured by `python -m bench.paper --groups sampled 'sample length' 'sample number'`"
_CONTENTION = "to be measured by `python -m bench.contention`, then `python -m bench.paper --write`"
_SEVERAL = "needs several GPUs"
_NOT_HERE = {
    "10": ("data locality is lower in the backward pass", "L2 hit rate 23.71 / 3.57 / 4.34 % lower", _COUNTERS),
    "11": ("stalls come from memory dependency, except for sgemm", "74.11 % of stalls; 15.51 % for sgemm", _COUNTERS),
    "12": ("memory stalls weigh more in the backward pass", "2.26x the forward share", _COUNTERS),
    "15": ("sampling takes most of a mini-batch epoch", "51.01 %, up to 88.92 %", _MINI_BATCH),
    "16": ("sampling on the GPU is faster", "1.21x to 8.62x", "needs a GPU"),
    "17": ("sampling time: length matters on large data alone", "ratio about 1 on DBLP", _MINI_BATCH),
    "18": ("sampling time grows with the number of metapaths", "Fig. 11(c), (d)", _MINI_BATCH),
    "19": ("several GPUs scale less than linearly", "1.66x on 2, 2.13x on 4 (MAG)", _SEVERAL),
    "20": ("sampling dominates distributed training", "Fig. 12(b)", _SEVERAL),
    "21": ("parallel samplers compete for the CPU", "1.29x on 2, 6.49x on 4", _CONTENTION),
    "22": ("loading and synchronisation compete for bandwidth", "PCIe -8.37 %, NVLink -26.07 % on 2", _SEVERAL),
}


def _verdict(shares: Sequence[bool]) -> str:
    return HOLDS if all(shares) else PARTLY if any(shares) else FAILS


def _forward_or_backward(pairs: Sequence[Row]) -> Finding:
    forward = [total(row, direction="forward") / total(row) for row in pairs]
    backward = [total(row, direction="backward") / total(row) for row in pairs]
    more = sum(a > b for a, b in zip(forward, backward, strict=True))
    ours = (
        f"forward {statistics.mean(forward):.1%}, backward {statistics.mean(backward):.1%} of op time;"
        f" forward is longer on {more} of {len(pairs)} pairs"
    )
    verdict = _verdict([statistics.mean(forward) > statistics.mean(backward), more > len(pairs) / 2])
    return Finding("1", "forward takes longer than backward", "48.33 % against 42.37 %", ours, verdict)


def _na_shares(pairs: Sequence[Row], direction: str) -> list[float]:
    main = ("FP", "NA", "SF")
    sums = [sum(total(row, stage=stage, direction=direction) for stage in main) for row in pairs]
    return [total(row, stage="NA", direction=direction) / whole for row, whole in zip(pairs, sums, strict=True)]


def _dominant_stage(pairs: Sequence[Row], segment: Sequence[Row]) -> Finding:
    forward, backward = _na_shares(pairs, "forward"), _na_shares(pairs, "backward")
    names = {row["name"] for row in segment}
    same = [row for row in pairs if row["name"] in names]
    plain = statistics.mean(_na_shares(segment, "forward")), statistics.mean(_na_shares(segment, "backward"))
    fused = statistics.mean(_na_shares(same, "forward")), statistics.mean(_na_shares(same, "backward"))
    ours = (
        f"{statistics.mean(forward):.1%} of forward and {statistics.mean(backward):.1%} of backward (of FP, NA and SF);"
        f" most on {sum(share > 0.5 for share in forward)} of {len(pairs)} pairs; on the {len(segment)} pairs run with"
        f" both, segment sums {plain[0]:.1%} / {plain[1]:.1%}, fused kernels {fused[0]:.1%} / {fused[1]:.1%}"
    )
    verdict = _verdict([statistics.mean(forward) > 0.5, statistics.mean(backward) > 0.5])
    return Finding("2", "NA dominates forward and backward", "77.80 % and 77.53 %", ours, verdict)


def _main_type(row: Row, stage: str, direction: str) -> str:
    found = [each for each in row["kernel_types"] if (each["stage"], each["direction"]) == (stage, direction)]
    return max(found, key=lambda each: each["seconds"])["type"] if found else ""


def _kernel_types(pairs: Sequence[Row]) -> Finding:
    cases = [(row, stage) for row in pairs for stage in ("FP", "NA", "SF")]
    same = sum(_main_type(row, stage, "forward") == _main_type(row, stage, "backward") for row, stage in cases)
    ours = f"the main kernel type is the same in {same} of {len(cases)} (pair, stage) cases"
    verdict = HOLDS if same > 0.8 * len(cases) else PARTLY if same > 0.5 * len(cases) else FAILS
    return Finding("3", "a stage runs the same kernel types forward and backward", "Fig. 4", ours, verdict)


def _additions(pairs: Sequence[Row]) -> Finding:
    sums = [row for row in pairs if not row["name"].startswith("han")]
    shares = [
        total(row, stage="SF", direction="backward") / total(row, stage="SF", direction="forward") for row in sums
    ]
    ours = f"SF backward takes {geometric_mean(shares):.2f}x SF forward in R-GCN and R-GAT (activation and bias remain)"
    verdict = HOLDS if geometric_mean(shares) < 0.5 else FAILS
    claim = "additions cost nothing in the backward pass"
    return Finding("4", claim, "no kernel in SF backward of R-GCN and R-GAT", ours, verdict)


def _stage_row(row: Row, stage: str, direction: str) -> Row:
    return next(each for each in row["stages"] if (each["stage"], each["direction"]) == (stage, direction))


def _bounds_forward(pairs: Sequence[Row]) -> Finding:
    dblp = next(row for row in pairs if row["name"] == "han dblp")
    found = {stage: _stage_row(dblp, stage, "forward") for stage in ("FP", "NA", "SF")}
    ours = "HAN on DBLP: " + ", ".join(
        f"{stage} {each['intensity']:.2f} FLOP/byte ({each['bound']})" for stage, each in found.items()
    )
    ours += "; FP multiplies sparse features, so it is no dense product"
    verdict = HOLDS if len({each["bound"] for each in found.values()}) > 1 else FAILS
    paper = "FP 111.75, NA 2.19, SF 51.10 FLOP/byte"
    return Finding("5", "stages are bound by different resources", paper, ours, verdict)


def _bounds_backward(pairs: Sequence[Row]) -> Finding:
    cases = [(row, stage) for row in pairs for stage in ("FP", "NA", "SF")]
    same = sum(
        _stage_row(row, stage, "forward")["bound"] == _stage_row(row, stage, "backward")["bound"]
        for row, stage in cases
    )
    ours = f"the bound is the same in {same} of {len(cases)} (pair, stage) cases"
    verdict = HOLDS if same > 0.8 * len(cases) else PARTLY if same > 0.5 * len(cases) else FAILS
    return Finding("6", "bounds are alike in both passes", "Table 4", ours, verdict)


def _traffic(pairs: Sequence[Row]) -> Finding:
    forward = [total(row, "bytes", direction="forward") / total(row, "bytes") for row in pairs]
    backward = [total(row, "bytes", direction="backward") / total(row, "bytes") for row in pairs]
    ours = (
        f"backward {statistics.mean(backward):.1%}, forward {statistics.mean(forward):.1%} of bytes by the cost model"
    )
    verdict = HOLDS if statistics.mean(backward) > statistics.mean(forward) else FAILS
    return Finding("7", "backward moves more memory", "55.38 % against 42.87 %", ours, verdict)


def _traffic_stage(pairs: Sequence[Row]) -> Finding:
    def main(row: Row, direction: str) -> str:
        return max(("FP", "NA", "SF"), key=lambda stage: total(row, "bytes", stage, direction))

    same = sum(main(row, "forward") == main(row, "backward") for row in pairs)
    ours = f"the stage with most traffic is the same on {same} of {len(pairs)} pairs: " + ", ".join(
        f"{row['name']} {main(row, 'forward')}" for row in pairs
    )
    verdict = HOLDS if same == len(pairs) else PARTLY if same > len(pairs) / 2 else FAILS
    return Finding("8", "the same stage dominates traffic in both passes", "HAN: NA; R-GCN, R-GAT: FP", ours, verdict)


def _memory_ratio(row: Row) -> float:
    return row["memory"]["training"]["total_bytes"] / row["memory"]["inference"]["total_bytes"]


def _na_of_peak(row: Row) -> float:
    peak = row["memory"]["training"]["peak_by_stage"]
    return sum(size for key, size in peak.items() if key.startswith("NA.")) / sum(peak.values())


def _memory(pairs: Sequence[Row], segment: Sequence[Row]) -> Finding:
    dblp = next(row for row in pairs if row["name"] == "han dblp")
    shares = [_na_of_peak(row) for row in pairs]
    temporary = {row["name"]: row["memory"]["training"]["temp_bytes"] for row in pairs}
    grown = geometric_mean([row["memory"]["training"]["temp_bytes"] / temporary[row["name"]] for row in segment])
    ours = (
        f"HAN on DBLP {_memory_ratio(dblp):.2f}x inference, NA {_na_of_peak(dblp):.1%} of live temporaries at the peak;"
        f" all pairs {geometric_mean([_memory_ratio(row) for row in pairs]):.2f}x and {statistics.mean(shares):.1%};"
        f" segment sums take {grown:.2f}x the temporary memory of the fused kernels"
    )
    verdict = _verdict([all(_memory_ratio(row) > 1 for row in pairs), statistics.mean(shares) > 0.5])
    paper = "1.92x, 66.63 % in NA (HAN on DBLP)"
    return Finding("9", "training needs more memory than inference, most in NA", paper, ours, verdict)


def _stage_ratios(first: Row, last: Row) -> dict[str, float]:
    return {stage: total(last, stage=stage) / total(first, stage=stage) for stage in ("FP", "NA", "SF")}


def _length(rows: Sequence[Row]) -> Finding:
    ratios = _stage_ratios(rows[0], rows[-1])
    ours = f"length {min(LENGTHS)} to {max(LENGTHS)}: " + ", ".join(f"{key} {x:.2f}x" for key, x in ratios.items())
    ours += f"; edges {rows[-1]['edges'] / rows[0]['edges']:.1f}x"
    verdict = _verdict([ratios["NA"] > 1.5, ratios["FP"] < 1.5 and ratios["SF"] < 1.5])
    return Finding("13", "longer metapaths slow down NA alone", "NA 4.12x, FP and SF unchanged", ours, verdict)


def _number(rows: Sequence[Row]) -> Finding:
    ratios = _stage_ratios(rows[0], rows[-1])
    ours = f"1 to {len(NUMBERS)} metapaths: " + ", ".join(f"{key} {x:.2f}x" for key, x in ratios.items())
    verdict = _verdict([min(ratios.values()) > 1.1, ratios["NA"] == max(ratios.values())])
    return Finding("14", "more metapaths slow down every stage, NA most", "FP 4.71x, NA 9.34x, SF 1.40x", ours, verdict)


def sampling_shares(row: Row) -> dict[str, float]:
    """Shares of a mini-batch step's wall time: host parts, stages, idle; they sum to 1."""
    seconds = dict(row["host"]) | {"idle": row["idle_s"]}
    for each in row["stages"]:
        seconds[each["stage"]] = seconds.get(each["stage"], 0.0) + each["seconds"]
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()}


def _sampling_share(rows: Sequence[Row]) -> Finding:
    shares = {row["name"]: sampling_shares(row) for row in rows}
    sample = {name: each.get("SAMPLE", 0.0) for name, each in shares.items()}
    highest = max(sample, key=lambda name: sample[name])
    ours = (
        f"{statistics.mean(sample.values()):.1%} on average of {len(rows)} pairs, up to {sample[highest]:.1%}"
        f" ({highest}); the batch is prepared before the step, on {rows[0]['sampling']['threads']} threads"
    )
    verdict = _verdict([statistics.mean(sample.values()) > 0.5, max(sample.values()) > 0.5])
    paper = "51.01 %, up to 88.92 % (HAN on MAG)"
    return Finding("15", "sampling takes most of a mini-batch epoch", paper, ours, verdict)


def _sample_ms(rows: Sequence[Row], dataset: str) -> dict[int, float]:
    """Number or length -> ms of sampling a batch."""
    found = [row for row in rows if row["name"].startswith(dataset)]
    return {int(row["name"].split()[1]): 1e3 * row["host"].get("SAMPLE", 0.0) for row in found}


def sample_series(rows: Sequence[Row], group: str) -> dict[str, dict[int, float]]:
    """Data set -> number or length of metapaths -> ms of sampling a batch."""
    found = [row for row in rows if row["group"] == group]
    return {name: _sample_ms(found, name) for name in dict.fromkeys(row["name"].split()[0] for row in found)}


def _grown(series: dict[int, float]) -> float:
    return series[max(series)] / series[min(series)]


def _sample_length(rows: Sequence[Row]) -> Finding:
    series = sample_series(rows, "sample length")
    ours = "; ".join(
        f"{name} length {min(each)} to {max(each)}: {_grown(each):.2f}x ({each[min(each)]:.2f} to"
        f" {each[max(each)]:.2f} ms a batch)"
        for name, each in series.items()
    )
    verdict = _verdict([_grown(series["imdb"]) < 1.5, _grown(series["mag"]) > 1.1])
    return Finding(
        "17", "sampling time: length matters on large data alone", "ratio about 1 on DBLP; grows on MAG", ours, verdict
    )


def _sample_number(rows: Sequence[Row]) -> Finding:
    series = sample_series(rows, "sample number")
    ours = "; ".join(
        f"{name} {min(each)} to {max(each)} metapaths: {_grown(each):.2f}x" for name, each in series.items()
    )
    verdict = _verdict([_grown(each) > 1.5 for each in series.values()])
    return Finding("18", "sampling time grows with the number of metapaths", "Fig. 11(c), (d)", ours, verdict)


def _contention(rows: Sequence[Row]) -> Finding:
    first, *others = rows
    times = ", ".join(f"{row['sample_s'] / first['sample_s']:.2f}x on {row['name']}" for row in others)
    switches = ", ".join(f"{row['switches']:.1f} on {row['name']}" for row in rows)
    ours = (
        f"time of a process's share of a batch, though the share shrinks: {times}; context switches a batch {switches};"
        " processes on this CPU for as many devices (`python -m bench.contention`); cache hit rates need counters"
    )
    slower = [row["sample_s"] * int(row["name"]) / first["sample_s"] > 1.1 for row in others]
    verdict = _verdict([all(slower), others[-1]["sample_s"] > first["sample_s"]])
    return Finding("21", "parallel samplers compete for the CPU", "1.29x on 2, 6.49x on 4", ours, verdict)


def _sgb(pairs: Sequence[Row]) -> Finding:
    han = [row for row in pairs if row["name"].startswith("han")]
    ratios = [row["sgb_s"] / row["step_s"] for row in han]
    ours = f"{geometric_mean(ratios):.2f}x (" + ", ".join(
        f"{row['name']} {ratio:.1f}x" for row, ratio in zip(han, ratios, strict=True)
    )
    verdict = HOLDS if geometric_mean(ratios) > 1 else FAILS
    return Finding("6.1.1", "SGB takes many epochs' time (HAN)", "11.46x", ours + ")", verdict)


def _fusion_overhead(pairs: Sequence[Row]) -> Finding:
    shares = [total(row, stage="SF") / total(row) for row in pairs]
    ours = f"{statistics.mean(shares):.1%} of op time on average"
    verdict = HOLDS if statistics.mean(shares) > 0.05 else FAILS
    return Finding("6.1.3", "the second level of aggregation (SF) costs time", "about 15 % an epoch", ours, verdict)


def _against_homogeneous(pairs: Sequence[Row], homogeneous: Sequence[Row]) -> Finding:
    def shares(rows: Sequence[Row]) -> str:
        parts = {stage: statistics.mean([total(row, stage=stage) / total(row) for row in rows]) for stage in _MAIN}
        return ", ".join(f"{stage} {share:.1%}" for stage, share in parts.items())

    gcn = [row for row in homogeneous if row["name"].startswith("gcn")]
    gat = [row for row in homogeneous if row["name"].startswith("gat")]
    na = statistics.mean([total(row, stage="NA") / total(row) for row in pairs])
    control = statistics.mean([total(row, stage="NA") / total(row) for row in homogeneous])
    ours = f"shares of op time: HGNNs {shares(pairs)}; GCN {shares(gcn)}; GAT {shares(gat)}"
    verdict = HOLDS if na > control else FAILS
    return Finding(
        "6.2.1", "aggregation weighs more than in homogeneous GNNs", "section 6.2 (no figure)", ours, verdict
    )


_MAIN = ("FP", "NA", "SF")
