"""Where the library comes from, which instruction set runs, and what happens without it; in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jhgnn import native

ROOT = Path(__file__).parents[2]

# A hash of forward and backward of three ops, dropout on, of rows of combined bases, and of a gradient of dense_matmul.
RESULTS = """
import os, sys, hashlib
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, numpy as np
jax.config.update("jax_num_cpu_devices", 1)
from jhgnn import native
from tests.ops.cases import GRAPHS, placed
from tests.ops.test_basis_rows import check as check_bases, inputs_of_many_slots, many_slots, run as combine
from tests.ops.test_dense_matmul import arrays as matrices, check, products
from tests.ops.test_neighbor_attention import inputs, run
from tests.ops.test_neighbor_reduce import OPS, run as reduce
assert native.instruction_set() == sys.argv[1], native.instruction_set()
digest = hashlib.sha256()
for name in ("hub_in", "hub_out", "bipartite", "tiled"):
    arrays = inputs(GRAPHS[name], 8, 8)
    results = list(run(placed(GRAPHS[name]), arrays, np.uint32(3), implementation="native", rate=0.5))
    for op in ("mean", "max"):
        z, cotangent = arrays[0].reshape(len(arrays[0]), -1), arrays[3].reshape(len(arrays[3]), -1)
        results += reduce(OPS[op][0], placed(GRAPHS[name]), z, cotangent, implementation="native")
    for result in results:
        digest.update(np.asarray(result).tobytes())
check_bases(*many_slots(3_000), bases=8, width=16)
for result in combine(*inputs_of_many_slots(30_000)):
    digest.update(np.asarray(result).tobytes())
check(*matrices(1500, 33, 70), np.float32)
digest.update(np.asarray(products(*matrices(5000, 64, 64))[2]).tobytes())
print(digest.hexdigest())
"""

WITHOUT = """
import logging, os
os.environ["JAX_PLATFORMS"] = "cpu"
logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
import jax, pathlib, numpy as np
pathlib.Path.glob = lambda self, pattern: iter(())  # as where no compiler was found
from jhgnn import native
from jhgnn.ops.neighbor_mean import OP, neighbor_mean
from tests.ops.cases import GRAPHS
graph = GRAPHS["bipartite"]
print(*OP.choose(graph))
try:
    neighbor_mean(graph.place(()), np.ones((37, 2), np.float32), implementation="native")
except RuntimeError as error:
    print(error)
"""


def run_python(
    code: str, *arguments: str, threads: int | None = None, **environment: str
) -> subprocess.CompletedProcess:
    # XLA makes as many threads as the process may run on. (A preexec_fn would fork, which JAX warns of.)
    pinned = f"import os; os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[:threads]})\n"
    return subprocess.run(
        [sys.executable, "-c", pinned + code, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    instruction_set = native.instruction_set()
    digests = set()
    for threads in (1, 2):
        finished = run_python(RESULTS, instruction_set, threads=threads)
        assert finished.returncode == 0, finished.stderr
        digests.add(finished.stdout)
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("instruction_set", ["avx2", "baseline"])
def test_other_instruction_sets_conform(instruction_set: str) -> None:
    supported = {"avx512": ("avx2", "baseline"), "avx2": ("avx2", "baseline"), "baseline": ("baseline",)}
    if instruction_set not in supported[native.instruction_set()]:
        pytest.skip(f"this processor has no {instruction_set}")
    finished = run_python(
        "import sys, pytest; sys.exit(pytest.main(['-q', 'tests/ops', '-p', 'no:cacheprovider', '-k', 'native']))",
        JHGNN_INSTRUCTION_SET=instruction_set,
    )
    assert finished.returncode == 0, finished.stdout[-3000:]


def test_an_unknown_instruction_set_is_an_error() -> None:
    code = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
import numpy as np
from jhgnn.ops.neighbor_mean import neighbor_mean
from tests.ops.cases import GRAPHS
neighbor_mean(GRAPHS["bipartite"].place(()), np.ones((37, 2), np.float32), implementation="native")
"""
    finished = run_python(code, JHGNN_INSTRUCTION_SET="sse9")
    assert finished.returncode != 0
    assert "JHGNN_INSTRUCTION_SET" in finished.stderr


def test_without_the_library() -> None:
    finished = run_python(WITHOUT)
    assert finished.returncode == 0, finished.stderr
    chosen, error = finished.stdout.splitlines()
    assert chosen.startswith(("dense native kernels not built", "segment native kernels not built"))
    assert "install a C++17 compiler" in error
    assert finished.stderr.count("native CPU kernels are not built") == 1  # said once
