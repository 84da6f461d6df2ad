"""How far gradients of sampled batches are from that over all neighbours: plain, exact, stale, and literal.

The gradient of a batch's mean loss without dropout, at the same weights: over all neighbours (the whole graph), and
from several independent draws of the same targets. `cosine` and `norm` are means over draws of a single draw's gradient
against the exact one. `bias` is the norm of (mean over all draws - exact) over the exact norm; a part of it is what is
left of the noise after so many draws. Rows that stale and literal mode reuse are of weights as old as they are on the
mean, one and a half super-batches, and of one draw for each draw of a batch.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench.neutronorch.problems import modes, sampled
from bench.stepper import Stepper
from jhgnn.nn.block import Block
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.nn.inputs import GraphInputs
from jhgnn.sampling.compressed import with_edges
from jhgnn.stores.device import DeviceRows
from jhgnn.training.execution import as_host
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import Problem
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_step import Shard
from jhgnn.training.state import TrainState
from jhgnn.training.super_batches import SuperBatches
from jhgnn.training.whole_graph import WholeGraph

Vectors = dict[str, np.ndarray]


def trained(execution: Sampled, *steps: int) -> list[Any]:
    """Weights after some numbers of steps of plain sampling: at the first ones most gradients point the same way."""
    stepper, done, found = Stepper.begin(execution.compile()), 0, []
    for count in steps:
        while done < count:
            stepper.step()
            done += 1
        found.append(jax.tree.map(np.array, as_host(stepper.state.params)))
    stepper.close()
    return found


def compare(problem: Problem, shares: list[float], *, batches: int, draws: int, warm_up: int) -> list[dict[str, Any]]:
    """For plain sampling, and for each share each mode of `sampling.hot`: cosine, norm and bias by layer."""
    plain, age = sampled(problem, 0.0), problem.config.sampling.super_batch * 3 // 2
    before, params = trained(plain, max(0, warm_up - age), warm_up)
    own = plain.batches(0)
    order = own.order(1)
    targets = [own.batch(order, step) for step in range(min(batches, own.steps_per_epoch - 1))]
    exact = _exact(problem, params, targets)
    cases = [(plain, 0.0, "plain")]
    cases += [(sampled(problem, share, mode=way), share, way) for share in shares for way in modes(problem)]
    return [
        {"way": way, "share": share} | _figures(_draws(execution, params, targets, draws, before, age), exact)
        for execution, share, way in cases
    ]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OfBatch(GraphInputs):
    """The whole graph, of whose nodes some are the targets of a batch: HAN's fusion averages over those alone.

    Attributes:
        targets: bool `[num_nodes]` by type.
    """

    targets: dict[str, jax.Array] = dataclasses.field(default_factory=dict)

    def block(self, hop: int, num_nodes: Mapping[str, int]) -> Block:
        return dataclasses.replace(super().block(hop, num_nodes), targets=self.targets)


def _exact(problem: Problem, params: Any, targets: list[np.ndarray]) -> list[Vectors]:
    """Over the whole graph, of each batch."""
    config, fuses = problem.config, problem.model.fuses_over_targets
    config = dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, batch_size=0))
    if fuses:  # packed graphs have no targets
        config = dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, relations="apart"))
    whole = execution_of(dataclasses.replace(problem, config=config))
    assert isinstance(whole, WholeGraph)
    labels = jnp.asarray(whole.task.resident())

    @jax.jit
    def gradient(params: Any, inputs: Any, ids: Any) -> Any:
        def loss(params: Any) -> Any:
            model: Any = nnx.merge(whole.structure, params)
            (name,) = whole.task.targets
            mask = {name: jnp.zeros(whole.spec.num_nodes[name], bool).at[ids].set(True)} if fuses else {}
            given = {field.name: getattr(inputs, field.name) for field in dataclasses.fields(GraphInputs)}
            rows = model.encode(OfBatch(**given, targets=mask) if fuses else inputs)
            zero = jnp.zeros((), jnp.uint32)
            return whole.task.loss(model, [inputs.rows_of(rows[name], ids)], labels, ids, zero, zero).loss

        return jax.grad(loss)(params)

    return [_by_layer(gradient(params, whole.inputs, own)) for own in targets]


def _draws(
    execution: Sampled, params: Any, targets: list[np.ndarray], draws: int, before: Any, age: int
) -> list[list[Vectors]]:
    """Of each batch, from several draws; rows that are reused are of the weights `before`, `age` updates ago."""
    sampling, layout = execution.sampling, execution.layout
    resident = jax.tree.map(jnp.asarray, layout.resident)

    @functools.partial(jax.jit, static_argnums=3)
    def gradient(params: Any, resident: Any, shard: Shard, bucket: int) -> Any:
        program = execution.update_program(bucket, num_devices=1)
        inputs = program.reader.inputs(resident, shard)
        zero = jnp.zeros((), jnp.uint32)
        state = TrainState(jnp.int32(age), zero, params, ())
        tables = DeviceRows(tables_of(params))
        rows = {name: tables.gather(name, ids) for name, ids in program.reader.touched(params, inputs).items()}

        def loss(dense: Any) -> Any:
            return program.loss(with_tables(dense, rows), state, inputs, resident, shard, dropout=False).loss

        return jax.grad(loss)(params)

    helper = SuperBatches(execution) if sampling.reuse is not None else None
    found = []
    for number, ids in enumerate(targets):
        own = []
        for draw in range(draws):
            step = 10_000 + number * draws + draw
            seeds = execution.seeds_of(ids, 0, step)
            blocks, bucket = layout.sampler.sample(seeds, 0, step, layout.buckets)
            features = {} if sampling.features_on_device[0] else execution.features_of(blocks)
            blocks = with_edges(blocks, sampling.compressed)
            drawn = None
            if helper is not None:
                resident = dataclasses.replace(resident, kept=helper.of_all(before, step))
                drawn = np.array([0, step], np.uint32)
            own.append(_by_layer(gradient(params, resident, Shard(ids, blocks, features, drawn), layout.first(bucket))))
        found.append(own)
    return found


def _by_layer(gradients: Any) -> Vectors:
    """All dense weights, and those of the first layer alone, as vectors."""
    dense = with_tables(gradients, {})
    first = dense["layers"][0]

    def vector(tree: Any) -> np.ndarray:
        return np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(tree)])

    return {"first_layer": vector(first), "all": vector(dense)}


def _figures(draws: list[list[Vectors]], exact: list[Vectors]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in exact[0]:
        cosines, norms, biases = [], [], []
        for own, whole in zip(draws, exact, strict=True):
            target = whole[part]
            length = np.linalg.norm(target)
            for each in own:
                cosines.append(float(each[part] @ target / (np.linalg.norm(each[part]) * length)))
                norms.append(float(np.linalg.norm(each[part]) / length))
            biases.append(float(np.linalg.norm(np.mean([each[part] for each in own], axis=0) - target) / length))
        found[part] = {"cosine": np.mean(cosines), "norm": np.mean(norms), "bias": np.mean(biases)}
    return found
