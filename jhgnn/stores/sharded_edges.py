"""In-edges cut over an axis of the mesh: a place keeps those of its own nodes, and draws their neighbours for all.

A draw is a function of (seed, step, hop, relation, vertex), so whoever draws gets the same neighbours. A hop of
fan-outs takes one `all_to_all` of vertices to their homes and one of neighbours back, whatever the number of relations;
a walk takes these two for each of its steps, for all metapaths together.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.semantic_graph import Csr
from jhgnn.sampling.device import Drawn, neighbors_of_rows
from jhgnn.sampling.draw import stream_keys, vertex_keys
from jhgnn.sampling.plan import Draw, SamplingPlan
from jhgnn.sampling.walk import most_visited, one_step, walkers_keys
from jhgnn.stores.exchange import AllToAll
from jhgnn.stores.sharded import ShardedRows
from jhgnn.stores.touched import take


@dataclasses.dataclass(frozen=True, eq=False)
class ShardedEdges:
    """Edges inside a mapped program.

    Attributes:
        edges: relation -> this place's in-edges, a row for each of its own nodes; senders are ids in the whole graph.
        nodes: node type -> int32 `[rows]`, the id of each row's node, or -1.
        homes: node type -> int32 `[num_nodes]`, `place * rows + row`.
        requests: for each hop, vertices of each type that one place may ask another one about.
        num_places: on the axis.
        axis: of the mesh.
    """

    edges: Mapping[str, Csr]
    nodes: Mapping[str, jax.Array]
    homes: Mapping[str, jax.Array]
    requests: tuple[FrozenCounts, ...]
    num_places: int
    axis: str

    def draw_hop(
        self, plan: SamplingPlan, hop: int, vertices: Mapping[str, jax.Array], seed: jax.Array, step: jax.Array
    ) -> tuple[dict[str, Drawn], jax.Array]:
        """See `jhgnn.sampling.device.DrawHop`; all places call it with vertices of the same types and shapes."""
        draws = plan.draws_at(hop)
        drawn, misfit = self._fan_outs([each for each in draws if not each.num_walks], hop, vertices, seed, step)
        walked, more = self._walks([each for each in draws if each.num_walks], hop, vertices, seed, step)
        return drawn | walked, misfit | more

    def _fan_outs(
        self, draws: Sequence[Draw], hop: int, vertices: Mapping[str, jax.Array], seed: jax.Array, step: jax.Array
    ) -> tuple[dict[str, Drawn], jax.Array]:
        into: dict[str, list[Draw]] = {}
        for draw in draws:
            into.setdefault(draw.target, []).append(draw)

        def answer(name: str, rows: jax.Array, _: Sequence[jax.Array]) -> list[jax.Array]:
            flat = rows.reshape(-1)
            ids = jnp.where(flat >= 0, take(self.nodes[name], flat), -1)
            found = []
            for draw in into[name]:
                keys = stream_keys(seed, step, hop, draw.key)
                own, counts = neighbors_of_rows(draw, hop, keys, self.edges[str(draw.steps[0])], flat, ids)
                found += [own.reshape(*rows.shape, -1), counts.reshape(rows.shape)]
            return found

        store = self._store({name: name for name in into}, self.requests[hop])
        found, _, misfit = store.ask({name: vertices[name] for name in into}, answer)
        drawn: dict[str, Drawn] = {}
        for name, own in into.items():
            for number, draw in enumerate(own):
                drawn[draw.name] = (found[name][2 * number], found[name][2 * number + 1], None)
        return drawn, misfit

    def _walks(
        self, draws: Sequence[Draw], hop: int, vertices: Mapping[str, jax.Array], seed: jax.Array, step: jax.Array
    ) -> tuple[dict[str, Drawn], jax.Array]:
        walkers, keys, numbers = {}, {}, {}
        for draw in draws:
            shape = (len(vertices[draw.target]), draw.num_walks)
            own = vertex_keys(stream_keys(seed, step, hop, draw.key), vertices[draw.target])
            keys[draw.name], numbers[draw.name] = walkers_keys(own, shape)
            walkers[draw.name] = jnp.broadcast_to(vertices[draw.target][:, None], shape)
        misfit = jnp.zeros((), bool)
        for number in range(max((len(draw.steps) for draw in draws), default=0)):
            going = {draw.name: draw for draw in draws if number < len(draw.steps)}

            def answer(
                name: str,
                rows: jax.Array,
                beside: Sequence[jax.Array],
                going: dict[str, Draw] = going,
                number: int = number,
            ) -> list[jax.Array]:
                first, second, counters = beside
                return [one_step((first, second), counters, self.edges[str(going[name].steps[number])], rows)]

            # Any walk may be at any vertex: every place may be asked about all of them.
            types = {name: draw.steps[number].target for name, draw in going.items()}
            store = self._store(types, FrozenCounts.of({name: walkers[name].size for name in going}))
            beside = {
                name: [
                    *(key.reshape(-1) for key in keys[name]),
                    (numbers[name] * jnp.uint32(len(draw.steps)) + jnp.uint32(number)).reshape(-1),
                ]
                for name, draw in going.items()
            }
            found, _, over = store.ask({name: walkers[name].reshape(-1) for name in going}, answer, beside)
            walkers |= {name: found[name][0].reshape(walkers[name].shape) for name in going}
            misfit |= over
        return {draw.name: most_visited(walkers[draw.name], draw.widths[hop]) for draw in draws}, misfit

    def _store(self, types: Mapping[str, str], requests: FrozenCounts) -> ShardedRows:
        """Rows of nodes under some names."""
        if self.num_places == 1:
            requests = FrozenCounts(())
        return ShardedRows(
            {name: self.nodes[own] for name, own in types.items()},
            {name: self.homes[own] for name, own in types.items()},
            AllToAll(requests, self.num_places, self.axis),
        )
