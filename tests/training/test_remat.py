"""What the backward pass recomputes: gradients are those of keeping everything, wrong names are refused."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from jhgnn import native
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.config.remat import POLICIES
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.nn.recompute import compile_with_barriers
from tests.executions import built, configured, loss_of
from tests.models.heterographs import academic
from tests.training.minibatches import compiled, recipe, steps

ON_THE_CPU = [policy for policy in POLICIES if policy != "offload"]
LISTS = ["fp_out", "na_weights", "na_rows,sf_out", "fp_out,na_scores,na_stats,na_out"]
ULPS = 2e-6
"""Relative; of float32 sums of some dozens of terms, which the compiler may fuse in another order."""


def compiled_gradient(problem, config: Config, params):
    """Loss and gradient of one step, dropout on."""

    def objective(params, inputs, ids):
        return loss_of(problem, params, inputs, ids, jax.numpy.uint32(7), config.training.remat)

    arguments = (params, problem.inputs, problem.task.splits["train"])
    return compile_with_barriers(jax.jit(jax.value_and_grad(objective)).lower(*arguments)), arguments


def gradients(problem, config: Config, params):
    program, arguments = compiled_gradient(problem, config, params)
    return program(*arguments)


def assert_close(found, expected):
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    bounds = {"rtol": ULPS, "atol": ULPS * scale}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **bounds), found, expected)


NUM_PAPERS, NUM_EDGES, HEADS, WIDTH = 64, 3200, 2, 4
EDGE_ARRAY = NUM_EDGES * HEADS * 4
"""Bytes of one float32 `[num_edges, heads]` array: 100 times what all stages hand on together."""


def crowded() -> HeteroGraph:
    """Papers that cite each other so often that only what has the size of the edges counts."""
    rng = np.random.default_rng(0)
    cites = rng.permutation(NUM_PAPERS**2)[:NUM_EDGES]
    order = rng.permutation(NUM_PAPERS)
    return HeteroGraph.from_arrays(
        name="crowded",
        num_nodes={"paper": NUM_PAPERS},
        edges={("paper", "cites", "paper"): np.divmod(cites, NUM_PAPERS)},
        features={"paper": rng.normal(size=(NUM_PAPERS, 5))},
        target="paper",
        labels=rng.integers(0, 3, NUM_PAPERS),
        splits={"train": order[:40], "test": order[40:]},
    )


@functools.cache
def of_policy(policy: str):
    """HAN on the crowded graph with `segment` attention: its compiled gradient, and what that gives."""
    config = configured(
        name="han", metapaths=("cites",), heads=HEADS, hidden=HEADS * WIDTH, attention_dropout=0.3, feature_dropout=0.2
    )
    config = override(config, {"kernels": {"attention": "segment"}, "training": {"remat": policy}}, where="test")
    problem, params = built(crowded(), config)
    (graph,) = problem.inputs.graphs.values()
    assert graph.num_edges == NUM_EDGES
    program, arguments = compiled_gradient(problem, config, params)
    return program.memory_analysis().temp_size_in_bytes, program(*arguments)


KEPT = ["na", "dots", "stage", "full", "fp_out,na_weights"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [pytest.param("na", marks=pytest.mark.slow), *KEPT[1:]])
def test_gradients_are_those_of_keeping_everything(policy):
    expected = of_policy("none")[1]
    assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(expected[1]))
    assert_close(of_policy(policy)[1], expected)


PEAKS = {"none": 21.70, "na": 9.11, "dots": 9.11, "stage": 9.11, "full": 9.12, "fp_out,na_weights": 21.70}
"""Temporary memory in `EDGE_ARRAY`s, as JAX 0.10.2 compiles it; an array of one head alone would add half a unit."""


@pytest.mark.parametrize("policy", PEAKS)
def test_peak_memory_is_pinned(policy):
    assert of_policy(policy)[0] / EDGE_ARRAY < PEAKS[policy] + 0.4


NATIVE = pytest.mark.skipif(not native.available(), reason="native kernels are not built")


def check(name: str, kernels: dict, policies: list[str], **model) -> None:
    config = configured(name=name, feature_dropout=0.2, attention_dropout=0.3, **model)
    config = override(config, {"kernels": kernels}, where="test")
    problem, params = built(academic(), config)
    expected = gradients(problem, config, params)
    assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(expected[1]))
    for policy in policies:
        own = override(config, {"training": {"remat": policy}}, where="test")
        assert_close(gradients(problem, own, params), expected)


def scattered() -> HeteroGraph:
    """Many papers and few edges, so that only what has the size of the nodes counts."""
    count, rng = 2_000, np.random.default_rng(0)
    return HeteroGraph.from_arrays(
        name="scattered",
        num_nodes={"paper": count},
        edges={("paper", "cites", "paper"): (rng.integers(0, count, 50), rng.integers(0, count, 50))},
        features={"paper": rng.normal(size=(count, 8))},
        target="paper",
        labels=rng.integers(0, 3, count),
        splits={"train": np.arange(10), "test": np.arange(10, 20)},
    )


@pytest.mark.slow
@NATIVE
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_the_compiler_does_not_undo_recomputation(name):
    """XLA for the CPU would find the forward pass's values in the recomputation, and keep them."""
    peaks = {}
    for policy in ("none", "stage", "full"):
        config = configured(name=name, layers=4, hidden=32, heads=2)
        config = override(config, {"training": {"remat": policy}}, where="test")
        problem, params = built(scattered(), config)
        peaks[policy] = compiled_gradient(problem, config, params)[0].memory_analysis().temp_size_in_bytes
    assert peaks["full"] <= peaks["stage"] < peaks["none"]  # equal for R-GCN, whose sums have nothing to recompute
    assert peaks["full"] < 0.7 * peaks["none"]


@pytest.mark.slow
@NATIVE
def test_native_attention_keeps_what_is_named():
    check("gat", {"attention": "native"}, ["fp_out,na_stats,na_out"])


MOST_TO_COMPILE = {("rgat", "segment"), ("gat", "segment")}
ALL = [
    pytest.param(
        name,
        implementation,
        marks=[pytest.mark.long] if implementation == "dense" or (name, implementation) in MOST_TO_COMPILE else [],
    )
    for name in ("han", "rgcn", "rgat", "gcn", "gat")
    for implementation in ("segment", "dense", "native")
]


def lists(name: str, implementation: str) -> list[str]:
    """Those that name something this model has: tensors on edges are `segment` attention's alone."""
    if name in ("rgcn", "gcn"):
        return ["fp_out", "na_rows,sf_out"]
    return LISTS if implementation == "segment" else LISTS[-1:]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "implementation"), ALL)
def test_every_model_with_every_implementation(name, implementation):
    if implementation == "native" and not native.available():
        pytest.skip("native kernels are not built")
    options = {"metapaths": ("PAP", "PSP")} if name == "han" else {"layers": 2, "residual": name == "rgat"}
    policies = [*ON_THE_CPU[1:], *lists(name, implementation)]
    check(name, {"attention": implementation, "mean": implementation}, policies, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["han", "rgcn", pytest.param("rgat", marks=pytest.mark.long)])
def test_mini_batches_on_two_devices_train_the_same(name):
    graph, config = academic(), recipe(name, training={"optimizer": "sgd"})
    expected, _ = steps(compiled(graph, config, devices=2), 3)
    for policy in ON_THE_CPU[1:]:
        own = dataclasses.replace(config, training=dataclasses.replace(config.training, remat=policy))
        found, _ = steps(compiled(graph, own, devices=2), 3)
        assert_close(found.params, expected.params)


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ("stage", "stage"),
        ("na_out, fp_out", "fp_out,na_out"),
        (["sf_out", "fp_out", "sf_out"], "fp_out,sf_out"),
        (["full"], "full"),
    ],
)
def test_policies_and_lists_have_one_spelling(value, canonical):
    config = override(Config(), {"training": {"remat": value}}, where="test")
    assert config.training.remat == canonical


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("stages", "did you mean stage?"),
        ("na_outt", "did you mean na_out?"),
        ("fp_out,full", "mixes the policy 'full'"),
        ([], "an empty list"),
        (3, "must be one of none, na"),
        ("", "neither a policy"),
    ],
)
def test_wrong_names_are_one_line(value, message):
    with pytest.raises(InputError) as caught:
        override(Config(), {"training": {"remat": value}}, where="recipe x")
    assert message in str(caught.value)
    assert str(caught.value).startswith("recipe x: training.remat")
    assert "\n" not in str(caught.value)
