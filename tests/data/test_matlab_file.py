"""MATLAB files: what SciPy writes comes back, and damage never gets past an `InputError`."""

import io
import random

import numpy as np
import pytest
import scipy.io
from scipy import sparse

from jhgnn.data.matlab_file import read_matlab
from jhgnn.errors import InputError
from tests.data import layouts


def saved(compress: bool, **variables: object) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=compress)
    return file.getvalue()


@pytest.mark.parametrize("compress", [False, True])
def test_what_scipy_writes_comes_back(compress):
    rng = np.random.default_rng(0)
    dense = {
        kind: rng.integers(0, 100, (3, 5)).astype(kind)
        for kind in ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
    }
    matrix = sparse.random_array((4, 7), density=0.4, rng=rng)
    read = read_matlab(
        saved(compress, **dense, one=np.array([[1]]), none=np.zeros((0, 0)), sp=sparse.csc_array(matrix),
              text="left out", cell=np.array([1, "a"], object), a_name_of_some_length=np.arange(3.0)), "x"
    )  # fmt: skip
    for kind, array in dense.items():
        assert read[kind].dtype == kind
        np.testing.assert_array_equal(read[kind], array)
    np.testing.assert_array_equal(read["one"], [[1]])
    np.testing.assert_array_equal(read["a_name_of_some_length"], [[0, 1, 2]])
    assert read["none"].shape == (0, 0)
    assert (read["sp"] != sparse.csr_array(matrix)).nnz == 0
    assert "text" not in read
    assert "cell" not in read


def test_complex_numbers_are_refused():
    with pytest.raises(InputError, match="'z' holds complex"):
        read_matlab(saved(False, z=np.array([1j])), "x")


@pytest.mark.slow
def test_damage_never_gets_past_an_input_error():
    """SciPy's own reader crashed the interpreter on such files."""
    whole = saved(False, sp=sparse.csc_array(np.eye(4))) + layouts.acm_mat()["ACM3025.mat"][128:]
    assert set(read_matlab(whole, "x")) >= {"sp", "PAP", "label"}
    draw = random.Random(0)
    refused = 0
    for _ in range(1000):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            position = draw.randrange(100, len(data))
            if draw.random() < 0.5:
                data[position] = draw.randrange(256)
            else:
                del data[position : position + draw.randint(1, 9)]
        try:
            read_matlab(bytes(data), "x")
        except InputError:
            refused += 1
    assert refused > 500
