"""Registers, spills and shared memory of the kernels stay within what the recorded ones had room for."""

import shutil

import pytest

from bench.gpu.kernel_resources import MOST_REGISTERS, MOST_SPILLS_BYTES, broken, compiled, parsed

SAID = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'jhgnn_row_sum_tiles' for 'sm_90'
ptxas info    : Function properties for jhgnn_row_sum_tiles
    16 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 32.876 ms
ptxas info    : Compiling entry function 'jhgnn_write_rows_2' for 'sm_100a'
ptxas info    : Function properties for jhgnn_write_rows_2
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
"""


def test_what_ptxas_says_is_read() -> None:
    first, second = parsed(SAID)
    assert first == {
        "kernel": "row_sum_tiles",
        "architecture": "90",
        "stack_bytes": 16,
        "spill_bytes": 44,
        "registers": 80,
        "shared_bytes": 1024,
    }
    assert (second["kernel"], second["architecture"], second["shared_bytes"]) == ("write_rows_2", "100", 0)


def test_a_limit_that_is_broken_is_said() -> None:
    (row, _) = parsed(SAID)
    assert list(broken([row])) == []
    over = row | {"registers": MOST_REGISTERS["90"] + 1, "spill_bytes": MOST_SPILLS_BYTES["90"] + 1}
    assert list(broken([over])) == [
        "row_sum_tiles for sm_90: registers 129, over 128",
        "row_sum_tiles for sm_90: spill_bytes 65, over 64",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs CUDA's compiler, nvcc")
def test_no_kernel_breaks_a_limit() -> None:
    rows = compiled("90")
    assert {"attention_forward", "attention_backward", "row_sum", "gather_rows"} <= {
        name for row in rows for name in ("attention_forward", "attention_backward", "row_sum", "gather_rows")
        if row["kernel"].startswith(name)
    }  # fmt: skip
    assert list(broken(rows)) == []
