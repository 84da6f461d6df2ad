"""Arrays of several types as one buffer of words, and back to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.ops.words import from_words, num_words, to_words

DTYPES = st.sampled_from([jnp.bfloat16, jnp.float16, jnp.float32, jnp.int32, jnp.uint32])
LEAVES = st.lists(st.tuples(DTYPES, st.lists(st.integers(0, 5), max_size=2)), min_size=1, max_size=4)


@given(rows=st.integers(0, 4), leaves=LEAVES, seed=st.integers(0, 2**16))
def test_splitting_undoes_joining(rows, leaves, seed):
    rng = np.random.default_rng(seed)
    made = [
        rng.integers(0, 256, (rows, *shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]
        for dtype, shape in leaves
    ]
    words = to_words([jnp.asarray(leaf) for leaf in made])
    like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in made]
    assert words.dtype == jnp.int32
    assert words.shape == (rows, sum(map(num_words, like)))
    for leaf, got in zip(made, from_words(words, like), strict=True):
        assert (leaf.dtype, leaf.shape) == (got.dtype, got.shape)
        assert leaf.tobytes() == np.asarray(got).tobytes()
