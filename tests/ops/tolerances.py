"""How far an implementation may be from the float64 reference, relative to the largest value that enters a sum."""

import numpy as np

FLOAT32 = 1e-5
"""Some dozens of float32 roundings (6e-8 each) in a sum whose terms largely cancel."""

FLOAT32_HUB = 2e-4
"""XLA's sequential segment sums over 20,000 terms lose up to sqrt(20,000) roundings, and more where signs agree."""

FLOAT64 = 1e-12
"""The reference implementation under 64 bits: only the order of sums differs."""

BFLOAT16 = 2.0**-7
"""The result is rounded to 8 bits once, its derivatives once more on the way."""

EXTREME = 2e-3
"""float32 logits of 1e4 are 1e-3 apart: their sum is off by up to half of that, and a weight by as much of itself."""


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float, size: float, what: str) -> None:
    """Fails unless every element is within `tolerance * max(size, 1)`; `size` is that of the terms of a sum."""
    actual = np.asarray(actual, np.float64)
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(size, 1.0), err_msg=what)
