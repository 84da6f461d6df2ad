"""A model of an epoch's seconds on the cluster of Heta's paper, from what was counted; nothing of it is measured.

    step = max over machines(draws x draw_s + bytes from the host x host_byte_s + FLOPs x flop_s)
         + bytes that a machine sends x network_byte_s + meetings x rendezvous_s

Heta's scripts are for machines of eight GPUs; that they were g4dn.metal, with T4 GPUs and a network of 100 Gb/s, is
the reference's recollection. No stage overlaps another one, in any way that is compared, and all draw with one sampler.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Machine:
    """What work costs on one of the machines, in seconds.

    Attributes:
        draw_s: a neighbour drawn: 1e-8 on one thread (`WorkCosts`), by 16 threads.
        host_byte_s: a byte of a row gathered in the host's memory and copied to a GPU: 20 GB/s for all of them.
        flop_s: eight T4 at a quarter of their peak of 8.1 TFLOP/s.
        network_byte_s: a byte that a machine sends, at 100 Gb/s.
        rendezvous_s: a meeting of all machines, however little they send.
    """

    draw_s: float = 1e-8 / 16
    host_byte_s: float = 1 / 20e9
    flop_s: float = 1 / (8 * 8.1e12 / 4)
    network_byte_s: float = 8 / 100e9
    rendezvous_s: float = 1e-4


def step_s(entry: Mapping[str, Any], moved: Mapping[str, Any], machine: Machine) -> float:
    """Modelled seconds of a step of a way, for what it moves without or with caches; of an entry of `traffic`."""
    from_host = np.add(moved["fixed_from_host"], moved["learnable_from_host"])
    work = (
        np.array(entry["draws"]) * machine.draw_s
        + from_host * machine.host_byte_s
        + np.array(entry["flops"]) * machine.flop_s
    )
    sent = sum(moved[name] for name in ("partials", "frontiers", "fixed_rows", "learnable_rows", "weights"))
    meetings = (entry["meetings"] + 1) * machine.rendezvous_s  # one is for the gradients of weights
    return float(work.max()) + sent / entry["shards"] * machine.network_byte_s + meetings


NETWORKS = {"100 Gb/s": 8 / 100e9, "10 Gb/s": 8 / 10e9}
HEADINGS = [
    *("machines", "way"),
    *(f"{what}, {network}" for network in NETWORKS for what in ("epoch, s", "METIS / this way")),
    *(f"{what} with caches, {network}" for network in NETWORKS for what in ("epoch, s,", "METIS / this way")),
]


def table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Of the entries of `traffic`; an epoch on METIS' cut, or without METIS on random parts, over one of each way."""
    rows, steps = [], result["steps_per_epoch"]
    for shards in dict.fromkeys(entry["shards"] for entry in result["entries"]):
        entries = {entry["way"]: entry for entry in result["entries"] if entry["shards"] == shards}
        cut = entries.get("data, metis", entries["data, random"])
        for way, entry in entries.items():
            cells = []
            for kind in ("moved", "moved_with_caches"):
                for byte_s in NETWORKS.values():
                    machine = dataclasses.replace(Machine(), network_byte_s=byte_s)
                    own, other = (steps * step_s(each, each[kind], machine) for each in (entry, cut))
                    cells += [f"{own:.2f}", f"{other / own:.1f}"]
            rows.append([str(shards), way, *cells])
    return HEADINGS, rows
