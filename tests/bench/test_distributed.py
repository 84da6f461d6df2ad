"""What `bench.distributed` counts from the draws is what the compiled programs move."""

import jax
import numpy as np
import pytest

from bench.distributed import Counter
from jhgnn.nn.embeddings import tables_of
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from jhgnn.sampling.epoch import Cursor
from jhgnn.sampling.host import HostSampler
from jhgnn.training.mesh import SHARDED
from tests.training.agreement import execution

STEPS = 2


def moved(made, programs) -> list[dict[str, float]]:
    """Bytes by kind that all places send in each of the first steps, as counted inside the mapped program."""
    reader = made.reader(made.num_buckets - 1)  # whose requests hold those of any batch
    gathers = made.config.distributed.strategy == "leapgnn"

    def asked(params, resident, shard):
        read = reader.gathered(params, resident, shard)[0] if gathers else reader.read(params, resident, shard)
        return {name: (route.asked >= 0).sum() for name, route in read.routes.items()}

    params = programs.place(made.initial_state(0)).params
    learnt, fixed = tables_of(params), programs.resident.features.tables
    specs, found, compiled = (made.params_specs, made.resident_specs, SHARDED), [], {}
    for batch in programs.feed(0).iterate(Cursor(), Cursor(1)):
        arguments = (params, programs.resident, batch.arguments[0])
        if batch.bucket not in compiled:
            compiled[batch.bucket] = made.mesh.compile(asked, arguments, specs, results=SHARDED)
        rows = {name: int(np.sum(counts)) for name, counts in compiled[batch.bucket](*arguments).items()}
        of_rows = sum(count * row_bytes(learnt[name]) for name, count in rows.items() if name in learnt)
        found.append(
            {
                "remote_rows": sum(rows.values()),
                "request_bytes": 4 * sum(rows.values()),
                "feature_bytes": sum(count * row_bytes(fixed[name]) for name, count in rows.items() if name in fixed),
                "row_bytes": of_rows,
                "gradient_bytes": of_rows,
            }
        )
    return found


def row_bytes(table) -> int:
    """Of a row of a table that is cut, `[places, rows, ...]` leaves."""
    return sum(leaf.dtype.itemsize * int(np.prod(leaf.shape[2:])) for leaf in jax.tree.leaves(table))


@pytest.mark.parametrize("strategy", ["owner", *(pytest.param(n, marks=pytest.mark.slow) for n in ("data", "leapgnn"))])
def test_bytes_that_the_program_moves_are_those_of_the_bench(strategy):
    made = execution("rgcn", strategy, "random", 2)
    programs = made.compile()
    counter = Counter(made, HostSampler(made.sampling.sampled, made.plan, 1), made.parts.placement, strategy)
    expected = [counter.step(number) for number in range(STEPS)]
    found = moved(made, programs)
    assert [{kind: each[kind] for kind in found[0]} for each in expected] == found
    assert found[0]["feature_bytes"] > 0
    assert found[0]["row_bytes"] > 0
    exchanged = collectives(parse(programs.step.call.as_text()))
    places, tables = made.mesh.size, tables_of(made.abstract_params)
    beside = 4 * (3 + 2 + len(tables))  # loss, examples, overflows; votes; the squares of each table's gradient
    assert exchanged["all-reduce"].num_bytes == counter.dense_bytes + beside
    assert expected[0]["all_reduce_bytes"] == 2 * (places - 1) * counter.dense_bytes
    models = exchanged["collective-permute"].num_bytes if "collective-permute" in exchanged else 0
    assert expected[0]["model_bytes"] == places * models
    assert bool(models) == (strategy == "leapgnn")
