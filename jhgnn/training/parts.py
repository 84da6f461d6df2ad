"""Training on parts: rows of features and embeddings, with their optimizer state, are cut over the axis `data`.

For whoever predicts a state is whole and in the order of ids. Checkpoints have a shard a place, whose rows are found by
id (`jhgnn.training.checkpoint_shards`), so a run goes on with any other parts, or none.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from jhgnn.config import Config
from jhgnn.distributed.cutting import assign
from jhgnn.distributed.part import read_assignment
from jhgnn.distributed.part_rows import PartRows
from jhgnn.distributed.placement import Placement
from jhgnn.distributed.topology import read_owners
from jhgnn.errors import InputError
from jhgnn.graph.default_metapaths import default_metapaths
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.semantic_graph import Csr
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.sampling.capacities import MULTIPLE, SLACK, Buckets
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import SamplingPlan
from jhgnn.sampling.reuse import TurnSampler
from jhgnn.stores.device import map_mirrors
from jhgnn.stores.touched import take
from jhgnn.training.mesh import REPLICATED, DeviceMesh, Specs, local


def read_parts(config: Config, graph: HeteroGraph, mesh: DeviceMesh, *, spare_rows: int = 0) -> "Parts | None":
    """The parts that the recipe names, or makes; None where every device holds all rows.

    `spare_rows` stand behind those of each type at every place.

    Raises:
        InputError: the folder holds no whole partition, or one of another graph or of another number of parts than
            there are devices.
    """
    distributed = config.distributed
    if distributed.parts:
        read = read_owners if distributed.read == "parts" else read_assignment
        placement = Placement.of(read(distributed.parts), spare_rows=spare_rows)
        where = f"distributed.parts {distributed.parts}"
        if placement.num_places != mesh.size:
            raise InputError(
                f"{where} has {placement.num_places} parts, but there are {mesh.size} devices; each takes one part"
            )
        placement.check(graph, where)
        return Parts(placement, mesh)
    if not distributed.method:
        return None
    if jax.process_count() > 1:
        raise InputError(
            f"distributed.method = {distributed.method!r} makes parts in one process; for several, write them with"
            " python -m jhgnn.partition and give distributed.parts"
        )
    metapaths: Iterable[Any] = ()
    if distributed.method == "metapath":
        named = config.model.metapaths
        metapaths = tuple(graph.schema.metapath(text) for text in named)
        if not named and graph.target is not None:
            metapaths = default_metapaths(graph.schema, graph.target)
    made = assign(graph, distributed.method, mesh.size, metapaths=tuple(metapaths), seed=config.data.seed)
    return Parts(Placement.of(made, spare_rows=spare_rows), mesh)


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """Where rows live, and states as they are cut for it.

    Attributes:
        placement: the home of every node.
        mesh: whose devices keep a part each; a place is the number of a device.
    """

    placement: Placement
    mesh: DeviceMesh

    @property
    def own_places(self) -> range:
        """Those of this process."""
        return self.mesh.local_numbers

    def by_type(self, tree: Any) -> Any:
        """A tree that is cut, with a leaf for each node type's table, whose rows are found by `placement`."""
        return tree

    def from_types(self, tree: Any) -> Any:
        """What is cut, from a tree with rows of this process's places for each node type, zeros where others stand."""
        return tree

    def cut(self, tree: Any) -> Any:
        """Parameters or a state with the rows that this process's places keep, in the place of whole tables."""
        own = self.own_places
        return self._mapped(lambda name, table: self.placement.cut(name, np.asarray(local(table)), own), tree)

    def initial(self, make: Callable[[jax.Array], Any], seed: int) -> Any:
        """`cut` of the random state that `make` traces from a seed, of which no whole table is ever in memory.

        Initial weights are hashes of their places in a table, so XLA computes those of the chosen rows alone.
        """
        own = self.own_places
        ids = {name: self.placement.ids(name, own) for name in self.placement.homes}

        def made(ids: Mapping[str, jax.Array], seed: jax.Array) -> Any:
            def chosen(name: str, table: jax.Array) -> jax.Array:
                rows = take(table, ids[name].reshape(-1)).reshape(*ids[name].shape, table.shape[1])
                return jnp.where((ids[name] >= 0)[:, :, None], rows, 0)

            return self._mapped(chosen, make(seed))

        return jax.jit(made)(ids, np.uint32(seed))

    def abstract(self, tree: Any) -> Any:
        """Shapes and dtypes of `cut`, from those of a whole tree."""
        own = self.own_places
        return self._mapped(lambda name, table: self.placement.abstract(name, table, own), tree)

    def specs(self, tree: Any) -> Specs:
        """How each leaf of a tree is cut over the mesh."""
        return self._mapped(lambda *_: self.mesh.by_device, jax.tree.map(lambda _: REPLICATED, tree))

    def whole(self, tree: Any) -> Any:
        """A tree on the devices with whole tables on this host, NumPy; all processes call it, each gets all of it."""

        def hosted(mirror: Any) -> Any:
            every = {name: _all_rows(table) for name, table in sorted(tables_of(mirror).items())}
            by_type: Any = tables_of(self.by_type(with_tables(mirror, every)))
            tables = {name: self.placement.whole(name, rows) for name, rows in by_type.items()}
            rest = jax.tree.map(lambda leaf: np.asarray(local(leaf)), with_tables(mirror, {}))
            return with_tables(rest, tables)

        return map_mirrors(hosted, tree, others=lambda leaf: np.asarray(local(leaf)))

    def gathered(self, node_type: str, table: jax.Array) -> np.ndarray:
        """The rows of a type from all devices, in the order of ids, on this host; all processes call it."""
        return self.placement.whole(node_type, _all_rows(table))

    def cut_features(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Features of all nodes, or of a folder of parts, as this process's places keep them."""
        own = self.own_places
        return {
            name: table.cut(self.placement.rows[name], own)
            if isinstance(table, PartRows)
            else jax.tree.map(lambda leaf, name=name: self.placement.cut(name, np.asarray(leaf), own), table)
            for name, table in tables.items()
        }

    def cut_edges(self, graph: HeteroGraph, plan: SamplingPlan) -> tuple[dict[str, Csr], dict[str, np.ndarray]]:
        """The in-edges that a plan draws from as this process's places keep them, by relation, and the node of each row
        of the types that have any, int32 `[places, rows]`.
        """
        own = self.own_places
        relations = list(dict.fromkeys(relation for draw in plan.draws for relation in draw.steps))
        edges = {str(each): self.placement.cut_edges(each.target, graph.edges[each], own) for each in relations}
        return edges, {each.target: self.placement.ids(each.target, own) for each in relations}

    def learnt_requests(
        self,
        sampler: HostSampler | TurnSampler,
        buckets: Buckets,
        seeds: Iterable[Sequence[Sequence[Mapping[str, np.ndarray]]]],
        seed: int,
        num_hops: int,
    ) -> tuple[FrozenCounts, tuple[FrozenCounts, ...]]:
        """Rows of each type that a place may ask another one for, and vertices of each hop that it may ask it about,
        from the most that sampled batches ask for.

        Args:
            sampler, buckets: of one part of a share.
            seeds: for each batch, numbered by its step from 0, for each place, those of each part of its share.
            seed: of the draws.
            num_hops: about whose vertices places ask each other; 0 where each has all edges.
        """
        most: dict[str, int] = {}
        hops: list[dict[str, int]] = [{} for _ in range(num_hops)]
        for step, places in enumerate(seeds):
            for place, parts in enumerate(places):
                met = [sampler.sample(own, seed, step, buckets)[0] for own in parts]
                for name in {name for blocks in met for name in blocks.nodes}:
                    ids = np.unique(np.concatenate([each.nodes[name] for each in met if name in each.nodes]))
                    most[name] = max(most.get(name, 0), self._asked(place, name, ids))
                for hop, found in enumerate(hops):
                    for blocks in met:
                        for name, slots in blocks.capacities[hop].items:
                            if slots:
                                asked = self._asked(place, name, blocks.nodes[name][:slots])
                                found[name] = max(found.get(name, 0), asked)
        bound = self.most_requests(dict.fromkeys(most, 2**31))
        rows = {name: min(bound[name], count) for name, count in _rounded(most).items()}
        return FrozenCounts.of(rows), tuple(FrozenCounts.of(_rounded(each)) for each in hops)

    def _asked(self, place: int, node_type: str, ids: np.ndarray) -> int:
        """The most nodes among some that one place other than this keeps."""
        homes = self.placement.places(node_type, ids[ids >= 0])
        asked = np.bincount(homes, minlength=self.placement.num_places)
        asked[place] = 0
        return int(asked.max())

    def most_requests(self, slots: Mapping[str, int]) -> FrozenCounts:
        """Rows of each type that a place with these slots asks another one for at most: no more than either has."""
        if self.placement.num_places == 1:
            return FrozenCounts(())
        return FrozenCounts.of({name: min(count, self.placement.rows[name]) for name, count in slots.items()})

    def _mapped(self, function: Callable[[str, Any], Any], tree: Any) -> Any:
        def mirror(own: Any) -> Any:
            tables = {name: function(name, table) for name, table in tables_of(own).items()}
            return with_tables(own, self._stored(tables) if tables else {})

        return map_mirrors(mirror, tree)

    def _stored(self, tables: Mapping[str, Any]) -> Mapping[str, Any]:
        """What stands in a state for what is kept of the tables."""
        return tables


def _all_rows(table: jax.Array) -> np.ndarray:
    """The rows of all devices, `[places, rows, ...]`, on this host; all processes call it."""
    return np.asarray(multihost_utils.process_allgather(table, tiled=True) if jax.process_count() > 1 else table)


def _rounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts with slack, in multiples; without those of zero."""
    return {name: -(-int(count * SLACK) // MULTIPLE) * MULTIPLE for name, count in counts.items() if count}
