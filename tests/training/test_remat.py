"""What the backward pass recomputes: gradients are those of keeping everything, wrong names are refused."""

import dataclasses

import jax
import numpy as np
import pytest

from jhgnn import native, remat_text
from jhgnn.config import Config, override
from jhgnn.errors import InputError
from jhgnn.training.objective import mean_loss
from jhgnn.training.state import model_structure
from jhgnn.training.step import apply_model
from tests.models.heterographs import academic
from tests.models.test_models import built, configured
from tests.training.minibatches import compiled, recipe, steps

ON_THE_CPU = [policy for policy in remat_text.POLICIES if policy != "offload"]
LISTS = ["fp_out", "na_weights", "na_rows,sf_out", "fp_out,na_scores,na_stats,na_out"]
ULPS = {"rtol": 2e-6, "atol": 2e-8}
"""Of float32 sums of some dozens of terms, which the compiler may fuse in another order."""


def gradients(problem, config: Config, params):
    """Loss and gradient of one step, dropout on."""
    structure = model_structure(config.model, problem.spec)

    def objective(params, inputs, labels, ids):
        output = apply_model(structure, params, inputs, jax.numpy.uint32(7), config.training.remat)
        return mean_loss(output.logits, labels, ids)

    return jax.jit(jax.value_and_grad(objective))(params, problem.inputs, problem.labels, problem.splits["train"])


def assert_close(found, expected):
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    bounds = {"rtol": ULPS["rtol"], "atol": ULPS["rtol"] * scale}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **bounds), found, expected)


def check(name: str, kernels: dict, policies: list[str], **model) -> None:
    config = configured(name=name, feature_dropout=0.2, attention_dropout=0.3, **model)
    config = override(config, {"kernels": kernels}, where="test")
    problem, params = built(academic(), config)
    expected = gradients(problem, config, params)
    assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(expected[1]))
    for policy in policies:
        own = override(config, {"training": {"remat": policy}}, where="test")
        assert_close(gradients(problem, own, params), expected)


@pytest.mark.parametrize("policy", [*ON_THE_CPU[1:], *LISTS])
def test_gradients_are_those_of_keeping_everything(policy):
    check("han", {"attention": "segment"}, [policy], metapaths=("PAP",))


NATIVE = pytest.mark.skipif(not native.available(), reason="native kernels are not built")


@pytest.mark.parametrize(
    ("name", "kernels", "policies"),
    [
        pytest.param("gat", {"attention": "native"}, ["stage", "fp_out,na_stats,na_out"], marks=NATIVE),
        ("gcn", {"mean": "segment"}, ["full"]),
    ],
)
def test_the_controls_and_other_kernels_as_well(name, kernels, policies):
    check(name, kernels, policies)


ALL = [
    (name, implementation)
    for name in ("han", "rgcn", "rgat", "gcn", "gat")
    for implementation in ("segment", "dense", "native")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "implementation"), ALL)
def test_every_model_with_every_implementation(name, implementation):
    if implementation == "native" and not native.available():
        pytest.skip("native kernels are not built")
    options = {"metapaths": ("PAP", "PSP")} if name == "han" else {"layers": 2, "residual": name == "rgat"}
    check(name, {"attention": implementation, "mean": implementation}, [*ON_THE_CPU[1:], *LISTS], **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["han", "rgcn", "rgat"])
def test_mini_batches_on_two_devices_train_the_same(name):
    graph, config = academic(), recipe(name, training={"optimizer": "sgd"})
    expected, _ = steps(*compiled(graph, config, devices=2), config, 3)
    for policy in ON_THE_CPU[1:]:
        own = dataclasses.replace(config, training=dataclasses.replace(config.training, remat=policy))
        found, _ = steps(*compiled(graph, own, devices=2), own, 3)
        assert_close(found.params, expected.params)


def test_a_mini_batch_trains_the_same():
    graph, config = academic(), recipe("rgat", training={"optimizer": "sgd", "remat": "stage"}, layers=1)
    config = override(config, {"sampling": {"fan_out": "3"}}, where="test")
    found, _ = steps(*compiled(graph, config, devices=2), config, 2)
    config = override(config, {"training": {"remat": "none"}}, where="test")
    expected, _ = steps(*compiled(graph, config, devices=2), config, 2)
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
