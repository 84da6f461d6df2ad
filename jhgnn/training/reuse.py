"""Which vertices' first-layer rows are reused (`sampling.hot = "stale"` or `"literal"`), and where they are kept."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.config import Config, SamplingConfig
from jhgnn.errors import InputError
from jhgnn.nn.model import Model
from jhgnn.nn.reuse import UNMADE, KeptRows
from jhgnn.runtime.memory_limit import default_memory_limit_bytes, readable_bytes
from jhgnn.sampling.reuse import Reuse, with_reuse
from jhgnn.training.sampled_choices import Sampling

REUSING = ("stale", "literal")
"""The values of `sampling.hot` that reuse rows of the first layer."""
LAYERS = 2
"""Layers at least: the rows of a last layer are the targets', of which no two batches of an epoch share any."""


def with_reused_rows(sampling: Sampling, settings: SamplingConfig, visits: Mapping[str, np.ndarray]) -> Sampling:
    """Leaves the neighbours of the vertices that the bottom hop meets most out of the batches.

    Args:
        sampling: without hot vertices.
        settings: the recipe's section.
        visits: of `count_receivers`, in whole batches, so that the choice does not depend on the number of devices.

    Raises:
        InputError: the model has one layer, or no vertex would save a draw.
    """
    named = f"sampling.hot = {settings.hot!r}"
    if sampling.num_layers < LAYERS:
        raise InputError(
            f"{named} reuses rows of the first layer, which is the last one here: its rows are the targets', which no"
            f" two batches share; set model.layers = {LAYERS}, or use 'none'"
        )
    reuse, plan = with_reuse(
        sampling.sampled,
        sampling.plan,
        visits,
        float(settings.hot_share),
        every=settings.super_batch,
        in_turn=settings.hot == "stale",
    )
    if not reuse.ids:
        raise InputError(
            f"{named} with sampling.hot_share = {settings.hot_share} finds no vertex that would save a draw; raise"
            " the share, or use 'none'"
        )
    return dataclasses.replace(sampling, sampled=reuse.graphs[0], plan=plan, reuse=reuse)


def empty_rows(reuse: Reuse, sampling: Sampling, config: Config, model: type[Model]) -> dict[str, KeptRows]:
    """Room for the rows of all hot vertices, none of which is made.

    A row is as wide as the layer, or, of a model that `reuses_parts`, as often as the vertex draws at the bottom hop.

    Raises:
        InputError: two sets of them and the weights' copy would need more than half of the available memory.
    """
    dtype = np.result_type(np.float32, np.dtype(jnp.dtype(config.model.dtype).name))
    parts = {name: sum(draw.target == name for draw in reuse.bottom.draws) for name in reuse.ids}
    widths = {name: config.model.hidden * (parts[name] if model.reuses_parts else 1) for name in reuse.ids}
    need = 2 * sum(len(ids) * widths[name] for name, ids in reuse.ids.items()) * dtype.itemsize
    if need > (limit := default_memory_limit_bytes()):
        raise InputError(
            f"sampling.hot_share = {config.sampling.hot_share} keeps {readable_bytes(need)} of rows, over half of the"
            f" available memory, {readable_bytes(limit)}; lower it"
        )
    found = {}
    for name, ids in reuse.ids.items():
        slots = np.full(sampling.plan.num_nodes[name], -1, np.int32)
        slots[ids] = np.arange(len(ids), dtype=np.int32)
        rows, versions = np.zeros((len(ids), widths[name]), dtype), np.full(len(ids), UNMADE, np.int32)
        found[name] = KeptRows(slots, rows, versions, reuse.every, reuse.in_turn)
    return found


def abstract_results(kept: dict[str, KeptRows]) -> dict[str, dict[str, jax.ShapeDtypeStruct]]:
    """Shapes of what a checkpoint holds of kept rows: rows and versions by type."""
    return {
        name: {
            "rows": jax.ShapeDtypeStruct(each.rows.shape, each.rows.dtype),
            "versions": jax.ShapeDtypeStruct(each.versions.shape, each.versions.dtype),
        }
        for name, each in kept.items()
    }


def check_copies(kept: Mapping[str, KeptRows], copies: int, share: float | str) -> None:
    """Refuses kept rows of which so many copies, in two sets each, need more than half of the available memory.

    Raises:
        InputError: they do.
    """
    need = 2 * copies * sum(each.rows.nbytes for each in kept.values())
    if need > (limit := default_memory_limit_bytes()):
        raise InputError(
            f"sampling.hot_share = {share} keeps {readable_bytes(need)} of rows on {copies} devices that share the"
            f" host's memory, over half of what is available, {readable_bytes(limit)}; lower it, or distributed.devices"
        )
