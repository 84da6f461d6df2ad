"""Each model's forward pass against plain NumPy in float64, and what all models promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.models import han as han_module
from jhgnn.models import names, rgcn
from jhgnn.models import rgat as rgat_module
from jhgnn.nn.layer_plan import plan_layers
from jhgnn.nn.neighbor_aggregation import logits_follow
from jhgnn.training.state import param_names
from tests.executions import apply_model, built, configured, forward
from tests.models import reference
from tests.models.heterographs import academic, with_edge_features

TOLERANCE = 2e-5
"""Relative; float32 sums over at most a few dozen terms against float64."""

CONTROLS = ("gcn", "gat")
EVERY_MODEL = [pytest.param(name, marks=pytest.mark.slow) if name in CONTROLS else name for name in names()]


def as64(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def relational(graph: HeteroGraph, config: Config, raw_params) -> np.ndarray:
    """R-GCN and R-GAT, one relation at a time."""
    params, model = as64(raw_params), config.model
    num_layers = model.layers or 3
    relations = {str(relation): relation for relation in graph.schema.relations}
    rows = reference.features(graph, params, model.hidden)
    attends = model.name == "rgat"
    plans = plan_layers(relations, [graph.target], num_layers, reads_targets=attends or model.self_loop)
    for index, plan in enumerate(plans):
        layer, made = params["layers"][index], {}

        def weight(node_type, name, plan=plan, layer=layer):
            names = plan.out_of(node_type) + (["self"] if model.self_loop and node_type in plan.makes else [])
            own = layer["projections"][node_type]
            position = names.index(name)
            if model.bases:
                return np.tensordot(own["c_rb"][position], own["v_bio"], axes=1)
            if model.blocks:
                blocks = own["w_rbio"][position]
                full = np.zeros((blocks.shape[0] * blocks.shape[1], blocks.shape[0] * blocks.shape[2]))
                for b, block in enumerate(blocks):
                    full[b * len(block) : (b + 1) * len(block), b * block.shape[1] : (b + 1) * block.shape[1]] = block
                return full
            return own["w_rio"][position]

        for node_type in plan.makes:
            total = np.zeros((graph.num_nodes[node_type], model.hidden)) + layer["fusions"][node_type]["bias"]
            crossing = [name for name in plan.into(node_type) if plan.relations[name].source != node_type]
            for name in plan.into(node_type):
                relation = plan.relations[name]
                neighbours = [reference.in_edges(graph, relation, node) for node in range(graph.num_nodes[node_type])]
                z = rows[relation.source] @ weight(relation.source, name)
                edges, of_edges = graph.edges[relation], None
                if model.edge_features and edges.features is not None:
                    own = layer["edge_logits" if attends else "edge_projection"]["w_io"][name]
                    of_edges = np.asarray(edges.features, np.float64) @ own
                if not attends:
                    total += reference.mean_of_neighbours(neighbours, z)
                    if of_edges is not None:
                        places = np.split(np.arange(edges.num_edges), edges.indptr[1:-1])
                        total += reference.mean_of_neighbours(places, of_edges)
                    continue
                target_weight = (
                    layer["target_projections"][node_type]["w_rio"][crossing.index(name)]
                    if name in crossing
                    else weight(node_type, name)
                )
                z_dst = rows[node_type] @ target_weight
                position, width = list(plan.relations).index(name), model.hidden // model.heads
                for head in range(model.heads):
                    part = slice(head * width, (head + 1) * width)
                    total[:, part] += reference.attention(
                        neighbours,
                        z[:, part],
                        z_dst[:, part],
                        layer["attention"]["a_src_rhd"][position, head],
                        layer["attention"]["a_dst_rhd"][position, head],
                        model.negative_slope,
                        None if of_edges is None else np.split(of_edges[:, head], edges.indptr[1:-1]),
                    )
            if model.self_loop:
                total += rows[node_type] @ weight(node_type, "self")
            made[node_type] = reference.elu(total) if attends else reference.relu(total)
        rows = made
    return reference.classify(params, rows[graph.target])


def han(graph: HeteroGraph, config: Config, raw_params) -> np.ndarray:
    """HAN over PAP and PSP, one metapath, head and node at a time."""
    params, model = as64(raw_params), config.model
    layer, width = params["layers"][0], model.hidden // model.heads
    x = reference.features(graph, params, model.hidden)["paper"]
    adjacency = {}
    steps = {
        "PAP": ("paper:written_by:author", "author:writes:paper"),
        "PSP": ("paper:is_about:subject", "subject:covers:paper"),
    }
    for name, (into, out) in steps.items():
        by_name = {str(relation): edges for relation, edges in graph.edges.items()}
        first, second = by_name[into], by_name[out]
        one = np.zeros((first.num_targets, len(x)))
        one[first.receivers, first.senders] = 1
        two = np.zeros((len(x), first.num_targets))
        two[second.receivers, second.senders] = 1
        adjacency[name] = two @ one > 0
    parts = []
    for position, name in enumerate(("PAP", "PSP")):
        z = x @ layer["projection"]["w_rio"][0 if model.shared_projection else position]
        neighbours = [np.flatnonzero(row) for row in adjacency[name]]
        out = np.concatenate(
            [
                reference.attention(
                    neighbours,
                    z[:, head * width : (head + 1) * width],
                    z[:, head * width : (head + 1) * width],
                    layer["attention"]["a_src_rhd"][position, head],
                    layer["attention"]["a_dst_rhd"][position, head],
                    model.negative_slope,
                )
                for head in range(model.heads)
            ],
            axis=1,
        )
        parts.append(reference.elu(out + layer["bias_po"][position]))
    hidden, query = layer["fusion"]["hidden"], layer["fusion"]["query"]
    scores = np.array([(np.tanh(part @ hidden["kernel"] + hidden["bias"]) @ query).mean() for part in parts])
    betas = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    return reference.classify(params, sum(beta * part for beta, part in zip(betas, parts, strict=True)))


@pytest.mark.parametrize(
    "options",
    [
        {"name": "rgcn", "layers": 3},
        {"name": "rgcn", "self_loop": False},
        {"name": "rgcn", "bases": 2},
        {"name": "rgcn", "blocks": 4},
        {"name": "rgat", "layers": 3},
        {"name": "rgat", "layers": 2, "self_loop": False, "negative_slope": 0.1},
        {"name": "han", "metapaths": ("PAP", "PSP")},
        {"name": "han", "metapaths": ("PAP", "PSP"), "shared_projection": True},
        {"name": "rgcn", "layers": 2, "edge_features": True},
        {"name": "rgat", "layers": 2, "edge_features": True},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values() if not isinstance(value, tuple)),
)
def test_forward_is_the_definition(options):
    graph, config = academic(), configured(**options)
    if options.get("edge_features"):
        graph = with_edge_features(graph)
    problem, params = built(graph, config)
    expected = (han if options["name"] == "han" else relational)(graph, config, params)
    logits = forward(problem, params).logits
    np.testing.assert_allclose(logits, expected, rtol=TOLERANCE, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"blocks": 4}, *(pytest.param(each, marks=pytest.mark.slow) for each in ({"bases": 2}, {"self_loop": False}))],
    ids=str,
)
def test_rgcn_aggregates_and_projects_in_either_order(options, monkeypatch):
    graph, config = academic(), configured(name="rgcn", layers=3, **options)
    problem, params = built(graph, config)
    expected = relational(graph, config, params)
    structure = problem.structure
    gradients = []
    for operations in (-(10**12), 10**12):  # every relation with dense rows aggregated first; none
        monkeypatch.setattr(rgcn, "CALL_OPERATIONS", operations)

        def loss(params):
            logits = apply_model(structure, params, problem.inputs).logits
            return (logits * jnp.sin(jnp.arange(logits.size, dtype=jnp.float32)).reshape(logits.shape)).sum(), logits

        gradient, logits = jax.jit(jax.grad(loss, has_aux=True))(params)
        np.testing.assert_allclose(logits, expected, rtol=TOLERANCE, atol=TOLERANCE * np.abs(expected).max())
        gradients.append(gradient)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max() + 1e-12),
        *gradients,
    )


def citing(graph: HeteroGraph) -> HeteroGraph:
    """The same with papers that cite papers: a relation within a type."""
    senders, receivers = np.random.default_rng(5).integers(0, 39, (2, 80))
    return HeteroGraph.from_arrays(
        num_nodes=graph.num_nodes,
        edges={relation: (edges.senders, edges.receivers) for relation, edges in graph.edges.items()}
        | {("paper", "cites", "paper"): (senders, receivers)},
        features=graph.features,
        target=graph.target,
        labels=graph.labels,
        splits=graph.splits,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"name": "rgat", "layers": 2},
        pytest.param({"name": "rgat", "layers": 2, "self_loop": False}, marks=pytest.mark.slow),
        {"name": "han", "metapaths": ("PAP", "PSP")},
        {"name": "han", "metapaths": ("PAP", "PSP"), "shared_projection": True},
        pytest.param({"name": "han", "metapaths": ("PAP", "PSP"), "projection_bias": True}, marks=pytest.mark.slow),
        {"name": "han", "metapaths": ("PAP", "PSP"), "projection_bias": True, "shared_projection": True},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values() if not isinstance(value, tuple)),
)
def test_logits_follow_the_projection_or_are_columns_of_it(options, monkeypatch):
    graph, config = citing(academic()) if options["name"] == "rgat" else academic(), configured(**options)
    problem, params = built(graph, config)
    structure = problem.structure
    results, sparse_inputs = [], []
    for follow in (False, True):

        def follows(x, dtype, follow=follow):
            sparse_inputs.append(isinstance(x, SparseFeatures))
            return follow and sparse_inputs[-1]

        monkeypatch.setattr(han_module, "logits_follow", follows)
        monkeypatch.setattr(rgat_module, "logits_follow", follows)

        def loss(params):
            logits = apply_model(structure, params, problem.inputs).logits
            return (logits * jnp.sin(jnp.arange(logits.size, dtype=jnp.float32)).reshape(logits.shape)).sum(), logits

        results.append(jax.jit(jax.grad(loss, has_aux=True))(params))
    assert any(sparse_inputs)
    if not config.model.projection_bias:
        expected = (han if options["name"] == "han" else relational)(graph, config, params)
        for _, logits in results:
            np.testing.assert_allclose(logits, expected, rtol=TOLERANCE, atol=TOLERANCE * np.abs(expected).max())
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max() + 1e-6),
        *results,
    )


def test_logits_follow_where_sparse_rows_are_few():
    narrow = SparseFeatures.from_scipy(sparse.csr_array((21, 10), dtype=np.float32))
    wide = SparseFeatures.from_scipy(sparse.csr_array((20, 10), dtype=np.float32))
    assert logits_follow(wide, jnp.float32)
    assert not logits_follow(narrow, jnp.float32)
    assert not logits_follow(wide, jnp.bfloat16)
    assert not logits_follow(jnp.zeros((20, 10)), jnp.float32)


def test_rgcn_aggregates_first_where_that_is_less_work():
    wide = jnp.zeros((10_000, 64))
    few, many = (
        SemanticGraph.from_pairs(np.arange(100), np.arange(100), 10_000, targets, "r") for targets in (100, 10_000)
    )
    assert rgcn.aggregates_first(few, wide, 64)
    assert not rgcn.aggregates_first(many, wide, 64)
    heavy = SemanticGraph.from_pairs(np.zeros(10**6, int), np.arange(10**6) % 100, 10_000, 100, "r")
    assert rgcn.aggregates_first(heavy, wide, 64)
    assert not rgcn.aggregates_first(heavy, jnp.zeros((10_000, 128)), 64)  # would gather twice as much
    small = SemanticGraph.from_pairs(np.arange(10), np.arange(10), 100, 10, "r")
    assert not rgcn.aggregates_first(small, jnp.zeros((100, 64)), 64)


def test_gcn_is_the_symmetrically_normalised_sum():
    graph, config = academic(), configured(name="gcn")
    problem, raw = built(graph, config)
    params, offset = as64(raw), {"paper": 0, "author": 40, "subject": 65}
    adjacency = np.eye(69)
    for relation, edges in graph.edges.items():
        senders, receivers = edges.senders + offset[relation.source], edges.receivers + offset[relation.target]
        adjacency[receivers, senders] = adjacency[senders, receivers] = 1
    rows = reference.features(graph, params, 8)
    x = np.concatenate([rows[t] @ params["projections"][t]["w_rio"][0] for t in graph.num_nodes])
    scale = adjacency.sum(axis=1) ** -0.5
    layer = params["layers"][0]
    out = scale[:, None] * adjacency * scale @ (x @ layer["projection"]["w_rio"][0]) + layer["fusion"]["bias"]
    expected = reference.classify(params, reference.relu(out)[:40])
    logits = forward(problem, raw).logits
    np.testing.assert_allclose(logits, expected, rtol=TOLERANCE, atol=TOLERANCE * np.abs(expected).max())


def permuted(graph: HeteroGraph, order: np.ndarray) -> HeteroGraph:
    """The same graph with its papers renumbered: new id i is old id order[i]."""
    new_of = np.argsort(order)
    edges = {}
    for relation, edge_set in graph.edges.items():
        senders, receivers = edge_set.senders, edge_set.receivers
        edges[relation] = (
            new_of[senders] if relation.source == "paper" else senders,
            new_of[receivers] if relation.target == "paper" else receivers,
        )
    return HeteroGraph.from_arrays(
        num_nodes=graph.num_nodes,
        edges=edges,
        features=dict(graph.features) | {"paper": graph.features["paper"][order]},
        target="paper",
        labels=graph.labels[order],
        splits={split: new_of[ids] for split, ids in graph.splits.items()},
    )


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_relabelling_nodes_permutes_the_output(name):
    graph, config = academic(), configured(name=name)
    order = np.random.default_rng(3).permutation(40)
    problem, params = built(graph, config)
    renamed, _ = built(permuted(graph, order), config)
    expected = np.asarray(forward(problem, params).logits)[order]
    np.testing.assert_allclose(forward(renamed, params).logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_MODEL)
def test_dropout_needs_a_seed_and_repeats_with_it(name):
    config = configured(name=name, layers=2, feature_dropout=0.3, attention_dropout=0.3, dropout=0.3)
    problem, params = built(academic(), config)
    plain = forward(problem, params).logits
    structure = problem.structure
    dropped = jax.jit(lambda seed: apply_model(structure, params, problem.inputs, seed).logits)
    first, again, other = (dropped(jnp.uint32(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert not np.allclose(first, plain)


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_bfloat16_stays_close_and_finite(name):
    problem, params = built(academic(), configured(name=name))
    expected = np.asarray(forward(problem, params).logits)
    out = forward(built(academic(), configured(name=name, dtype="bfloat16"))[0], params)
    assert out.logits.dtype == jnp.float32
    # bfloat16 has 8 bits of mantissa; one layer of it.
    np.testing.assert_allclose(out.logits, expected, atol=0.06 * np.abs(expected).max())


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_options_run_and_every_parameter_gets_a_gradient(name):
    config = configured(name=name, residual=True, layer_norm=True, layers=2, activation="gelu", heads=1)
    problem, params = built(academic(), config)
    structure = problem.structure
    gradients = jax.jit(jax.grad(lambda p: (apply_model(structure, p, problem.inputs).logits ** 2).sum()))(params)
    # The attention vectors of a relation whose targets all have one in-edge have no gradient: a softmax over one.
    dead = [
        path
        for path, leaf in param_names(gradients).items()
        if not np.asarray(leaf).any() and "a_dst" not in path and "target_projections" not in path
    ]
    assert dead == []


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_named_scopes_carry_the_stages_forward_and_backward(name):
    config = configured(name=name)
    problem, params = built(academic(), config)
    structure = problem.structure
    compiled = (
        jax.jit(jax.grad(lambda p, x: apply_model(structure, p, x).logits.sum()))
        .lower(params, problem.inputs)
        .compile()
        .as_text()
    )
    for stage in ("FP", "NA", "SF"):
        assert any(f"/{stage}" in line and "transpose(" in line for line in compiled.splitlines()), stage
        assert any(f"/{stage}" in line and "transpose(" not in line for line in compiled.splitlines()), stage


def test_layers_compute_only_what_the_target_needs():
    graph, config = academic(), configured(name="rgcn", self_loop=False)
    problem, params = built(graph, config)
    assert set(problem.inputs.graphs) == {"author:writes:paper", "subject:covers:paper"}
    assert "paper" not in problem.inputs.features
    assert set(params["layers"][0]["projections"]) == {"author", "subject"}
