"""The device sampler: draws a mini-batch inside a compiled step, for graphs whose edges fit in device memory."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import PADDING, NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import Csr
from jhgnn.sampling.draw import Keys, neighbor_offsets, stream_keys, vertex_keys
from jhgnn.sampling.plan import Capacities, Draw, SamplingPlan
from jhgnn.sampling.walk import most_visited, walk_ends

Array = Any
Drawn = tuple[Array, Array, Array | None]
"""Global ids `[n, width]` with `PADDING`, counts `[n]`, and visits `[n, width]` of walks."""
DrawHop = Callable[[SamplingPlan, int, Mapping[str, Array], Array, Array], tuple[dict[str, Drawn], Array]]
"""The draws of a hop by name, from its number, vertices by type, seed and step; and whether any did not fit."""
UNMET = np.int32(2**31 - 1)  # the slot of a vertex that the batch has not met


def device_edges(graph: HeteroGraph, plan: SamplingPlan, device: jax.Device | None = None) -> dict[str, Csr]:
    """The in-edges that the plan reads, placed on a device: relation -> int32 `Csr`; an argument of the step.

    Raises:
        InputError: a relation has 2**31 edges or more.
    """
    edges = {}
    for relation in {relation for draw in plan.draws for relation in draw.steps}:
        edge_set = graph.edges[relation]
        if edge_set.num_edges >= 2**31:
            raise InputError(
                f"relation {str(relation)!r} has {edge_set.num_edges:,} edges; the device sampler indexes with int32,"
                " below 2**31: use the host sampler"
            )
        edges[str(relation)] = jax.device_put(Csr(edge_set.indptr.astype(np.int32), edge_set.senders), device)
    return edges


def sample_on_device(
    plan: SamplingPlan,
    capacities: Capacities,
    edges: Mapping[str, Csr],
    seeds: Mapping[str, Array],
    seed: Array,
    step: Array,
    draw_hop: DrawHop | None = None,
) -> SampledBlocks:
    """Draws one mini-batch; traceable, with `plan` and `capacities` static.

    Every vertex that is met has one slot. A hop's new vertices get the slots after those of the hops before, ascending
    by id. Finding them takes one int32 for each vertex of the graph, of the types that are met.

    Args:
        capacities: slots per hop, of `jhgnn.sampling.capacities`: a batch that needs more comes back `overflowed`.
        edges: of `device_edges`.
        seeds: type -> int32 `[capacities[0][type]]` vertex ids, `PADDING` for none; repeats are allowed.
        seed: uint32 scalar.
        step: uint32 scalar, the number of the batch since training began.
        draw_hop: draws in the place of `edges`, which are then not read.

    Returns:
        The blocks; the same, bit for bit, as `HostSampler.sample` with these capacities.
    """
    for name in plan.seed_types:
        if seeds[name].shape != (capacities[0][name],):
            raise ValueError(f"seeds of {name!r} have shape {seeds[name].shape}; capacities say {capacities[0][name]}")
    nodes: dict[str, Array] = {name: seeds[name].astype(jnp.int32) for name in plan.seed_types}
    slots = {name: _first_slots(ids, plan.num_nodes[name]) for name, ids in nodes.items()}
    added = [{name: jnp.int32(len(ids)) for name, ids in nodes.items()}]
    overflowed = jnp.zeros((), bool)
    hops = []
    for hop in range(plan.num_hops):
        if draw_hop is None:
            drawn = _draw_here(plan, hop, edges, nodes, seed, step)
        else:
            drawn, misfit = draw_hop(plan, hop, nodes, seed, step)
            overflowed |= misfit
        found: dict[str, list[Array]] = {}
        for draw in plan.draws_at(hop):
            found.setdefault(draw.source, []).append(drawn[draw.name][0])
        counts_added, next_nodes = {}, dict(nodes)
        for name, blocks in found.items():
            flat = jnp.concatenate([block.reshape(-1) for block in blocks])
            have = nodes[name].shape[0] if name in nodes else 0
            room = capacities[hop + 1].get(name) - have
            before = nodes.get(name, jnp.zeros(0, jnp.int32))
            known = slots.get(name, jnp.full(plan.num_nodes[name], UNMET))
            slots[name], fresh, counts_added[name] = _add_distinct(known, flat, have, room)
            overflowed |= counts_added[name] > room
            next_nodes[name] = jnp.concatenate([before, fresh])
        tables = {}
        for draw in plan.draws_at(hop):
            ids, counts, visits = drawn[draw.name]
            senders = slots[draw.source].at[jnp.maximum(ids, 0)].get(mode="promise_in_bounds")
            tables[draw.name] = NeighborTable(
                senders=jnp.where(ids >= 0, jnp.minimum(senders, capacities[hop + 1][draw.source] - 1), 0),
                num_neighbors=counts,
                visits=visits,
                sender_ids=None,
                receiver_ids=None,
                num_sources=capacities[hop + 1][draw.source],
                name=draw.name,
            )
        hops.append(tables)
        # A type that no draw led to keeps its slots; capacities may give it more, which stay empty.
        for name, ids in next_nodes.items():
            next_nodes[name] = jnp.pad(ids, (0, capacities[hop + 1][name] - len(ids)), constant_values=PADDING)
        nodes = next_nodes
        added.append(counts_added)
    rows = [[counts.get(name, jnp.int32(0)) for name in plan.node_types] for counts in added]
    return SampledBlocks(
        nodes=nodes,
        hops=tuple(hops),
        added=jnp.stack([jnp.stack(row) for row in rows]),
        overflowed=overflowed,
        capacities=capacities,
        node_types=plan.node_types,
    )


def _draw_here(
    plan: SamplingPlan, hop: int, edges: Mapping[str, Csr], nodes: Mapping[str, Array], seed: Array, step: Array
) -> dict[str, Drawn]:
    """A hop's draws from edges that are all here."""
    drawn: dict[str, Drawn] = {}
    for draw in plan.draws_at(hop):
        keys, vertices = stream_keys(seed, step, hop, draw.key), nodes[draw.target]
        if draw.num_walks:
            own = vertex_keys(keys, vertices)
            ends = walk_ends(own, [edges[str(relation)] for relation in draw.steps], vertices, draw.num_walks)
            drawn[draw.name] = most_visited(ends, draw.widths[hop])
        else:
            csr = edges[str(draw.steps[0])]
            drawn[draw.name] = (*neighbors_of_rows(draw, hop, keys, csr, vertices, vertices), None)
    return drawn


def neighbors_of_rows(draw: Draw, hop: int, keys: Keys, csr: Csr, rows: Array, vertices: Array) -> tuple[Array, Array]:
    """Global ids `[n, width]` with `PADDING`, and counts `[n]`, of a fan-out draw.

    Args:
        csr: in-edges; their senders are global ids.
        rows: int32 `[n]`, where each vertex stands in `csr`, -1 for none.
        vertices: int32 `[n]`, the global ids, which decide what is drawn.
    """
    width, own = draw.widths[hop], vertex_keys(keys, vertices)
    known = jnp.maximum(rows, 0)
    start = csr.indptr.at[known].get(mode="promise_in_bounds")
    stop = csr.indptr.at[known + 1].get(mode="promise_in_bounds")
    degrees = jnp.where(rows >= 0, stop - start, 0)
    if draw.fan_outs[hop] < 0 or width < draw.fan_outs[hop]:  # no vertex has more neighbours than columns
        counts = degrees
        offsets = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32)[None, :], (len(rows), width))
    else:
        offsets, counts = neighbor_offsets(own, degrees, width)
    valid = jnp.arange(width, dtype=jnp.int32)[None, :] < counts[:, None]
    if csr.indices.shape[0] == 0:
        return jnp.full(valid.shape, PADDING), counts
    positions = jnp.where(valid, start[:, None] + offsets, 0)
    return jnp.where(valid, csr.indices.at[positions].get(mode="promise_in_bounds"), PADDING), counts


def _first_slots(ids: Array, num_nodes: int) -> Array:
    """Slot of each vertex of a type among the seeds, at its first appearance; int32 `[num_nodes]`, or `UNMET`."""
    where = jnp.where(ids >= 0, ids, num_nodes)
    return jnp.full(num_nodes, UNMET).at[where].min(jnp.arange(len(ids), dtype=jnp.int32), mode="drop")


def _add_distinct(slots: Array, ids: Array, have: int, room: int) -> tuple[Array, Array, Array]:
    """Gives the vertices among `ids` without a slot the slots from `have` on, ascending by id.

    Marks over all vertices instead of a sort of the draws: 4 hops of a million vertices cost less than sorting them.

    Returns:
        the slots, the new ids `[room]` padded, and how many there are, which may exceed the room.
    """
    num_nodes = slots.shape[0]
    met = jnp.zeros(num_nodes, bool).at[jnp.where(ids >= 0, ids, num_nodes)].set(True, mode="drop")
    new = met & (slots == UNMET)
    rank = jnp.cumsum(new, dtype=jnp.int32) - 1
    where = jnp.where(new, rank, room)
    fresh = jnp.full(room, PADDING).at[where].set(jnp.arange(num_nodes, dtype=jnp.int32), mode="drop")
    return jnp.where(new, have + rank, slots), fresh, jnp.sum(new, dtype=jnp.int32)
