"""Hot vertices in training: which they are, and the sampling that keeps means for them (`sampling.hot`)."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jhgnn.config import Config, SamplingConfig
from jhgnn.distributed.placement import Placement
from jhgnn.errors import InputError
from jhgnn.runtime.memory_limit import default_memory_limit_bytes, readable_bytes
from jhgnn.sampling.hot import HotVertices, bottom_draws, choose_hot, with_hot
from jhgnn.stores.hot import HotRows, neighbor_means
from jhgnn.training.sampled_choices import Sampling

COUNTED_BATCHES = 256
"""Batches of the first epoch, at most, whose receivers are counted to find the hot ones."""


def with_hot_vertices(sampling: Sampling, settings: SamplingConfig, visits: Mapping[str, np.ndarray]) -> Sampling:
    """Keeps means over all fixed neighbours for the vertices that the bottom hop meets most.

    Args:
        sampling: without hot vertices.
        settings: the recipe's section.
        visits: of `count_receivers`, in whole batches, so that the choice does not depend on the number of devices.

    Raises:
        InputError: no relation of the bottom hop leads from dense features, no vertex would save a draw, or the means
            need more than half of the available memory.
    """
    named, tables = f"sampling.hot = {settings.hot!r}", sampling.features.tables
    draws = bottom_draws(sampling.plan, tables)
    if not draws:
        raise InputError(
            f"{named} keeps means of features, but the first layer reads neighbours without any: use 'none'"
        )
    for draw in draws:
        if not isinstance(tables[draw.source], np.ndarray):
            raise InputError(
                f"{named} keeps dense means, but the features of {draw.source!r} are sparse; set kernels.projection ="
                " 'dense'"
            )
    hot = choose_hot(sampling.sampled, sampling.plan, tables, visits, float(settings.hot_share))
    if not hot.relations:
        raise InputError(
            f"{named} with sampling.hot_share = {settings.hot_share} finds no vertex that would save a draw; raise"
            " the share, or use 'none'"
        )
    _check_size(hot, sampling, settings)
    rows: dict[str, list[np.ndarray]] = {}
    for each in hot.relations:
        edges, table = sampling.sampled.edges[each.relation], tables[each.relation.source]
        assert isinstance(table, np.ndarray)
        rows.setdefault(each.relation.source, []).append(neighbor_means(edges, each.receivers, table, settings.threads))
    graph, plan = with_hot(sampling.sampled, sampling.plan, hot)
    means = {name: np.concatenate(parts) for name, parts in rows.items()}
    return dataclasses.replace(sampling, sampled=graph, plan=plan, features=HotRows(tables, means), hot=hot)


def placed_means(placement: Placement, hot: HotVertices) -> Placement:
    """The homes of all rows, where each mean lives with the vertex that it is for."""
    places: dict[str, list[np.ndarray]] = {}
    for each in hot.relations:
        places.setdefault(each.relation.source, []).append(placement.places(each.relation.target, each.receivers))
    return placement.with_more({name: np.concatenate(parts) for name, parts in places.items()})


def without_hot(config: Config) -> Config:
    """The recipe without hot vertices, which nothing but training has."""
    plain = SamplingConfig()
    sampling = dataclasses.replace(
        config.sampling, hot=plain.hot, hot_share=plain.hot_share, super_batch=plain.super_batch
    )
    return dataclasses.replace(config, sampling=sampling)


def _check_size(hot: HotVertices, sampling: Sampling, settings: SamplingConfig) -> None:
    widths = {name: table.shape[1] * table.itemsize for name, table in sampling.features.tables.items()}  # type: ignore[union-attr]
    need = sum(len(each.receivers) * widths[each.relation.source] for each in hot.relations)
    if need > (limit := default_memory_limit_bytes()):
        raise InputError(
            f"sampling.hot_share = {settings.hot_share} keeps {readable_bytes(need)} of means, over half of the"
            f" available memory, {readable_bytes(limit)}; lower it"
        )
    for name, count in hot.num_nodes.items():
        if count >= 2**31:
            raise InputError(
                f"sampling.hot_share = {settings.hot_share} makes {count:,} rows of {name!r}, 2**31 or more; lower it"
            )
