"""The paper's 22 findings and the comparisons of section 6, judged by figures; no verdict is written by hand.

Each is judged twice where the kernels of aggregation matter: with `segment` (gathers and sums of segments, as the
paper's stack runs) and with the fused kernels, which are this stack's default.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.paper_study import full_batch, sampled
from bench.paper_study.modelled import modelled_findings
from bench.paper_study.runs import AGGREGATIONS, planned
from bench.paper_study.verdicts import ABSENT, FAILS, OPEN, PARTLY, Judged

Row = Mapping[str, Any]


class Finding(NamedTuple):
    """One row: the paper's number, what it says and measured, what each kind of kernels gives, and why they differ.

    Attributes:
        judged: by kind of kernels, or by "" alone where aggregation takes no part.
        why: a sentence on what differs from the paper; empty where no verdict says that it does not hold, or in part.
    """

    number: str
    claim: str
    paper: str
    judged: dict[str, Judged]
    why: str


def all_findings(rows: Sequence[Row]) -> list[Finding]:
    """The 22 findings in order, and the comparisons of section 6; one whose runs are not all there is open."""
    modelled, runs = modelled_findings(), planned()
    findings = []
    for number, (claim, paper, why) in _CLAIMS.items():
        judged: dict[str, Judged] = {}
        if number in _BY_AGGREGATIONS:
            group, judge = _BY_AGGREGATIONS[number]
            for aggregation in AGGREGATIONS:
                own = [row for row in rows if row["aggregation"] == aggregation]
                found = [row for row in own if row["group"] == group]
                whole = {run.name for run in runs if (run.group, run.aggregation) == (group, aggregation)}
                judged[aggregation] = judge(found, own) if whole <= {row["name"] for row in found} else _open(group)
        elif number in _ONCE:
            group, once = _ONCE[number]
            found = [row for row in rows if row["group"] == group]
            judged[""] = once(found) if found else _open(group)
        elif number in modelled:
            judged[""] = modelled[number]
        else:
            judged[""] = Judged(_NOT_HERE[number], ABSENT)
        differs = any(each.verdict.endswith((FAILS, PARTLY)) for each in judged.values())
        findings.append(Finding(number, claim, paper, judged, why if differs else ""))
    return findings


def _open(group: str) -> Judged:
    command = "bench.contention" if group == "contention" else "bench.paper"
    return Judged(f"to be measured by `python -m {command}`", OPEN)


_BY_AGGREGATIONS: dict[str, tuple[str, Callable[[Sequence[Row], Sequence[Row]], Judged]]] = {
    "1": ("pairs", lambda rows, _: full_batch.forward_or_backward(rows)),
    "2": ("pairs", lambda rows, _: full_batch.dominant_stage(rows)),
    "3": ("pairs", lambda rows, _: full_batch.kernel_types(rows)),
    "4": ("pairs", lambda rows, _: full_batch.additions(rows)),
    "5": ("pairs", lambda rows, _: full_batch.bounds_forward(rows)),
    "6": ("pairs", lambda rows, _: full_batch.bounds_backward(rows)),
    "7": ("pairs", lambda rows, _: full_batch.traffic(rows)),
    "8": ("pairs", lambda rows, _: full_batch.traffic_stage(rows)),
    "9": ("pairs", lambda rows, _: full_batch.memory(rows)),
    "13": ("length", lambda rows, _: full_batch.length(rows)),
    "14": ("number", lambda rows, _: full_batch.number(rows)),
    "15": ("sampled", lambda rows, _: sampled.sampling_share(rows)),
    "6.1.1": ("pairs", lambda rows, _: full_batch.semantic_graph_build(rows)),
    "6.1.3": ("pairs", lambda rows, _: full_batch.fusion_overhead(rows)),
    "6.2.1": ("homogeneous", lambda rows, own: full_batch.against_homogeneous(rows, own)),
}
"""Number -> the group of runs that it needs, and what judges those of one kind of kernels (and all of that kind)."""

_ONCE: dict[str, tuple[str, Callable[[Sequence[Row]], Judged]]] = {
    "17": ("sample length", sampled.sample_length),
    "18": ("sample number", sampled.sample_number),
    "21": ("contention", sampled.contention),
}

_COUNTERS = "needs hardware counters of a GPU (Nsight Compute)"
_NOT_HERE = {
    "10": "to be modelled by `python -m bench.locality model`",
    "11": _COUNTERS,
    "12": _COUNTERS,
    **dict.fromkeys(("16", "19", "20", "22"), "to be modelled by `python -m bench.several_gpus`"),
}

_CLAIMS = {
    "1": (
        "forward takes longer than backward",
        "48.33 % against 42.37 %",
        "a dense product of the forward pass is two in the backward pass where its input needs a gradient too, and with"
        " a message an edge both messages and scores are summed again there",
    ),
    "2": (
        "NA dominates forward and backward",
        "77.80 % and 77.53 %",
        "the fused kernel neither writes nor reads a message for each edge, so that projections are most of"
        " what is left",
    ),
    "3": (
        "a stage runs the same kernel types forward and backward",
        "Fig. 4",
        "XLA fuses each pass in its own way, so that copies and element-wise work change places",
    ),
    "4": (
        "additions cost nothing in the backward pass",
        "no kernel in SF backward of R-GCN and R-GAT",
        "the sums themselves have no kernel in the backward pass, but activation and bias stand in the same stage",
    ),
    "5": (
        "stages are bound by different resources",
        "FP 111.75, NA 2.19, SF 51.10 FLOP/byte",
        "sparse features make FP a product that memory bounds, and SF's intensity lies at this processor's ridge",
    ),
    "6": (
        "bounds are alike in both passes",
        "Table 4",
        "stages near the ridge of the roofline fall on either side of it",
    ),
    "7": (
        "backward moves more memory",
        "55.38 % against 42.87 %",
        "XLA fuses much of what DGL's backward pass writes and reads again, and features, which are given, need no"
        " gradient",
    ),
    "8": (
        "the same stage dominates traffic in both passes",
        "HAN: NA; R-GCN, R-GAT: FP",
        "where two stages move about as much, either may move more in one of the passes",
    ),
    "9": (
        "training needs more memory than inference, most in NA",
        "1.92x, 66.63 % in NA (HAN on DBLP)",
        "a fused kernel keeps no array of a message for each edge, which is what fills NA's memory in DGL; the rest is"
        " features and weights, the same in both",
    ),
    "10": (
        "data locality is lower in the backward pass",
        "L2 hit rate 23.71 / 3.57 / 4.34 % lower",
        "the gathers' order alone does not lower it; counters may see the scatters' atomics, which these kernels do"
        " without",
    ),
    "11": ("stalls come from memory dependency, except for sgemm", "74.11 % of stalls; 15.51 % for sgemm", ""),
    "12": ("memory stalls weigh more in the backward pass", "2.26x the forward share", ""),
    "13": (
        "longer metapaths slow down NA alone",
        "NA 4.12x, FP and SF unchanged",
        "FP and SF do the same work at every length; what changes in their times is noise and the state of the caches",
    ),
    "14": (
        "more metapaths slow down every stage, NA most",
        "FP 4.71x, NA 9.34x, SF 1.40x",
        "each metapath has a projection of its own here, so that the work of FP grows with their number as NA's does",
    ),
    "15": (
        "sampling takes most of a mini-batch epoch",
        "51.01 %, up to 88.92 % (HAN on MAG)",
        "sampling is one native call here, and a step takes longer on a CPU than on a GPU",
    ),
    "16": ("sampling on the GPU is faster", "1.21x to 8.62x", "the host has 2 cores"),
    "17": (
        "sampling time: length matters on large data alone",
        "ratio about 1 on DBLP; grows on MAG",
        "a call takes so little on small data that each further hop shows",
    ),
    "18": (
        "sampling time grows with the number of metapaths",
        "Fig. 11(c), (d)",
        "walks of several metapaths share a call and its threads",
    ),
    "19": ("several GPUs scale less than linearly", "1.66x on 2, 2.13x on 4 (MAG)", "the model has no other load"),
    "20": (
        "sampling dominates distributed training",
        "Fig. 12(b)",
        "sampling is a small share where the device's own work is large",
    ),
    "21": (
        "parallel samplers compete for the CPU",
        "1.29x on 2, 6.49x on 4",
        "a share shrinks with their number here, which hides a part of what they lose to each other",
    ),
    "22": (
        "loading and synchronisation compete for bandwidth",
        "PCIe -8.37 %, NVLink -26.07 % on 2",
        "transfers are few",
    ),
    "6.1.1": (
        "SGB takes many epochs' time (HAN)",
        "11.46x",
        "metapaths are joined by a native sparse product on all cores, and an epoch takes longer on a CPU than on"
        " an A100",
    ),
    "6.1.3": (
        "the second level of aggregation (SF) costs time",
        "about 15 % an epoch",
        "SF of R-GCN and R-GAT is a sum that XLA fuses into its neighbours, and beside sums of messages, which fill"
        " most of a step, it is little",
    ),
    "6.2.1": (
        "aggregation weighs more than in homogeneous GNNs",
        "section 6.2 (no figure)",
        "attention over one large graph costs as much as over its relations",
    ),
}
"""In order: what the paper says, what it measured, and what makes a difference where there is one."""
