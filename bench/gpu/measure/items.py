"""What a run measures, most valuable first, and how large it is on a device and in a rehearsal."""

import dataclasses
from collections.abc import Mapping
from typing import Any

EPOCH_CASES = (
    *("han-dblp", "rgcn-dblp", "rgat-dblp"),
    *("han-acm", "rgcn-acm", "rgat-acm"),
    *("han-imdb", "rgcn-imdb", "rgat-imdb"),
)
"""The nine pairs of a model and a synthetic data set whose epochs are timed beside PyG's."""

PROFILED = ("han-imdb", "rgcn-imdb", "rgat-imdb")
"""The pairs that are profiled with hardware counters: those of the fewest kernels a step, since each is replayed."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes:
        scale: of the synthetic graphs whose epochs are timed.
        mag_scale: of the synthetic graph of ogbn-mag's size.
        op_scale: of the graphs of single ops.
        copy_bytes: of the array whose copy is timed.
        samples: timed samples of which the median is taken.
        sample_s: a sample repeats what it times until it is as long as this.
        batch_size, fan_out: of mini-batches; 0 and nothing: the recipes' own.
        widths: (heads, width) of attention in the conformance checks.
        few_graphs: conformance on the small graphs that find most, and not on the others.
        in_pairs: items start by twos, for a machine of two cores.
        epoch_cases: pairs of a model and a synthetic data set whose epochs are timed.
        trained: pairs that are trained from the command, resumed and predicted with.
        staged: pairs whose steps are traced and told by stage.
        recomputed: pairs whose policies of recomputation are timed.
        profiled: pairs that are profiled with hardware counters.
        densities: how many of the sweep from which thresholds are derived, the highest ones.
        minibatch_models: whose mini-batches are timed.
        minibatch_ways: names of `bench.gpu.measure.minibatches.WAYS`.
        warm_up, steps: of mini-batches, updates before those that are timed, and the most that are.
        patience: what limits of time are multiplied by: a rehearsal may run on a busy machine.
    """

    scale: float
    mag_scale: float
    op_scale: float
    copy_bytes: int
    samples: int
    sample_s: float
    batch_size: int
    fan_out: str
    widths: tuple[tuple[int, int], ...]
    few_graphs: bool
    in_pairs: bool
    epoch_cases: tuple[str, ...]
    trained: tuple[str, ...]
    staged: tuple[str, ...]
    recomputed: tuple[str, ...]
    profiled: tuple[str, ...]
    densities: int
    minibatch_models: tuple[str, ...]
    minibatch_ways: tuple[str, ...]
    warm_up: int
    steps: int
    patience: float


ON_DEVICE = Sizes(
    scale=1.0,
    mag_scale=0.1,
    op_scale=1.0,
    copy_bytes=2**30,
    samples=9,
    sample_s=0.02,
    batch_size=0,
    fan_out="",
    widths=((8, 8), (1, 64), (3, 5), (17, 3)),
    few_graphs=False,
    in_pairs=False,
    epoch_cases=EPOCH_CASES,
    trained=("han-acm",),
    staged=("han-dblp", "rgat-dblp", "rgcn-dblp"),
    recomputed=("han-dblp", "rgat-dblp", "rgcn-dblp"),
    profiled=PROFILED,
    densities=4,
    minibatch_models=("rgcn", "han", "rgat"),
    minibatch_ways=("host", "device", "device, native"),
    warm_up=6,
    steps=60,
    patience=1.0,
)
IN_REHEARSAL = Sizes(
    scale=0.01,
    mag_scale=0.0005,
    op_scale=0.0005,
    copy_bytes=2**16,
    samples=1,
    sample_s=0.0,
    batch_size=16,
    fan_out="3,2",
    widths=((3, 5),),
    few_graphs=True,
    in_pairs=True,
    epoch_cases=("han-dblp", "rgcn-imdb"),
    trained=("rgcn-imdb",),
    staged=("rgcn-imdb",),
    recomputed=("rgcn-imdb",),
    profiled=("rgcn-imdb",),
    densities=2,
    minibatch_models=("rgcn",),
    minibatch_ways=("host", "device, native"),
    warm_up=1,
    steps=1,
    patience=8.0,
)


@dataclasses.dataclass(frozen=True)
class Item:
    """One part of a run, measured by a process of its own.

    Attributes:
        name: as the results have it.
        module: the module of `bench.gpu.measure` whose function `rows` yields what it measures.
        limit_s: after which its process is ended; what it had told until then stays.
        arguments: of `rows`.
        built: whether it waits for the kernels to be built.
    """

    name: str
    module: str
    limit_s: float
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    built: bool = True


def groups(sizes: Sizes) -> list[list[Item]]:
    """All items; those of a group compile side by side and take turns at the device.

    None is measured before all of its group are compiled: of a group of ten that was cut on an H200, one was measured.
    """
    ways = {name: {"part": "first", "implementations": [name]} for name in ("native", "bucketed")}
    found = [
        [Item("copy", "copy_rate", 60.0, built=False)],
        [
            Item("conformance of native", "conformance", 75.0, ways["native"]),
            Item("ops beyond the cache", "op_times", 240.0, {"names": ["mag_writes"]}),
            *(Item(f"epochs {case}", "epochs", 240.0, {"case": case}) for case in sizes.epoch_cases),
        ],
        [Item(f"training {case}", "training", 150.0, {"case": case}) for case in sizes.trained],
        [
            *(Item(f"stages {case}", "stages", 180.0, {"case": case}) for case in sizes.staged),
            Item("counters of kernels", "kernel_counters", 180.0),
        ],
        [
            Item("rows of tables", "table_rows", 240.0),
            Item("ops in the cache", "op_times", 240.0, {"names": ["metapath", "star", "chain"]}),
            Item("ops by density", "op_times", 240.0, {"names": ["density"]}),
        ],
        [
            Item("sampling", "sampling_sides", 240.0),
            *(Item(f"mini-batches {each}", "minibatches", 240.0, {"model": each}) for each in sizes.minibatch_models),
        ],
        [Item(f"recompute {case}", "recompute", 240.0, {"case": case}) for case in sizes.recomputed],
        [
            Item("conformance of bucketed", "conformance", 90.0, ways["bucketed"]),
            Item("conformance of the rest", "conformance", 90.0, {"part": "rest"}),
        ],
        [Item(f"counters {case}", "counters", 180.0, {"case": case}) for case in sizes.profiled],
    ]
    if not sizes.in_pairs:
        return [group for group in found if group]
    rest = [item for group in found[1:] for item in group]
    return [found[0], *(rest[i : i + 2] for i in range(0, len(rest), 2))]
