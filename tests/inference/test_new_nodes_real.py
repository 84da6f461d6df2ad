"""ACM: trained with a fifth of the papers removed, which are predicted afterwards."""

import numpy as np
import pytest

import jhgnn
from jhgnn.data import load
from tests.inference.test_new_nodes import forward, part

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_cache")]


@pytest.mark.parametrize("model", ["han", "rgcn", "rgat"])
def test_papers_of_acm_left_out_of_training_are_predicted(model, data_root):
    graph = load("arrays", data_root / "acm_gtn", progress=False)
    papers = graph.num_nodes[graph.target]
    gone = np.random.default_rng(0).choice(papers, papers // 5, replace=False)
    kept = np.setdiff1d(np.arange(papers), gone)
    settings = {"hidden": 32, "epochs": 20, "cache_dir": "", "tensorboard": False, "progress": False}
    run = jhgnn.fit(part(graph, {graph.target: kept}), model=model, layers=2, **settings)
    wanted = forward(run, graph)
    np.testing.assert_allclose(run.predict(graph), wanted, atol=1e-6)
    asked = gone[:200]
    found = run.predict(graph, nodes=asked)
    np.testing.assert_allclose(found, wanted[asked], atol=1e-6)
    labelled = gone[graph.labels[gone] >= 0]
    right = (run.predict(graph)[labelled].argmax(axis=1) == graph.labels[labelled]).mean()
    assert right > 0.75  # a third by chance
