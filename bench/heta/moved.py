"""What the devices of a way move in some steps, counted from the draws, without and with a cache on each device."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from bench.heta.ways import Read, Way
from jhgnn.distributed.cache.knapsack import knapsack
from jhgnn.distributed.cache.rows import TypeRows
from jhgnn.distributed.meta.work import FLOAT, TRAINING, ModelShape, WorkCosts

BOTH_WAYS = 2
REMOTE = ", of others"
"""Behind a type's name: its rows that other devices have, which cost more to miss."""


@dataclasses.dataclass
class Moved:
    """Bytes of all steps counted.

    Attributes:
        partials, frontiers: sums that all devices send each other, and gradients of the latter.
        fixed_rows, learnable_rows: rows that devices read and others have; of learnable ones also the gradients back.
        weights: gradients of weights, in a ring.
        fixed_from_host: float64 `[devices]`, rows of features that each device copies from its host or another's.
        learnable_from_host: float64 `[devices]`, learnable rows of its own with their moments, there and back.
        hits: the share of all rows read that the caches had; None without.
    """

    partials: float
    frontiers: float
    fixed_rows: float
    learnable_rows: float
    weights: float
    fixed_from_host: np.ndarray
    learnable_from_host: np.ndarray
    hits: float | None = None

    @property
    def total(self) -> float:
        """Between devices, without the gradients of weights."""
        return self.partials + self.frontiers + self.fixed_rows + self.learnable_rows

    @property
    def from_host(self) -> float:
        """Between all devices and their hosts."""
        return float(self.fixed_from_host.sum() + self.learnable_from_host.sum())


@dataclasses.dataclass(eq=False)
class Counted:
    """What a way's devices read and computed in some steps.

    Attributes:
        way, shape: what was counted.
        steps: how many.
        targets: of all their batches.
        visits: node type -> int32 `[devices, num_nodes]`: how often a device read each row.
        updates: learnable type -> int32 `[num_nodes]`: steps in which any device read it, and its owner updates it.
        draws, flops: float64 `[devices]`: neighbours drawn; of forward and backward pass, see `flops_of`.
        summed: vertices of frontiers that a device sums for another one.
    """

    way: Way
    shape: ModelShape
    steps: int
    targets: int
    visits: dict[str, np.ndarray]
    updates: dict[str, np.ndarray]
    draws: np.ndarray
    flops: np.ndarray
    summed: int

    def moved(self, weights: int, costs: WorkCosts, cache_bytes: int = 0) -> Moved:
        """Bytes moved, with `cache_bytes` of cache on each device.

        A device may keep fixed rows wherever they live, and learnable ones that it owns, with their moments. The
        knapsack chooses them by exactly these visits.

        Args:
            weights: bytes of all weights that are no rows.
            costs: what a missed byte costs.
        """
        way, hidden_bytes = self.way, self.shape.hidden * FLOAT
        own = np.zeros((2, way.devices))
        found = Moved(
            partials=ring(way.devices, self.targets * hidden_bytes) if way.sums_targets else 0.0,
            frontiers=float(self.summed * hidden_bytes * BOTH_WAYS),
            fixed_rows=0.0,
            learnable_rows=0.0,
            weights=ring(way.devices, weights) * self.steps,
            fixed_from_host=own[0],
            learnable_from_host=own[1],
        )
        read = hit = 0.0
        for device in range(way.devices):
            rows = self._cacheable(device, costs)
            kept = knapsack(rows, cache_bytes).ids if cache_bytes else {}
            for name, each in rows.items():
                missed = each.visits.copy()
                missed[kept.get(name, np.zeros(0, np.int64))] = 0
                read, hit = read + each.visits.sum(), hit + each.visits.sum() - missed.sum()
                size = float(missed.sum()) * each.row_bytes
                node_type, where, _ = name.partition(REMOTE)
                if node_type in self.updates:
                    found.learnable_from_host[device] += size * BOTH_WAYS
                    continue
                found.fixed_from_host[device] += size
                found.fixed_rows += size if where else 0.0
            for node_type in self.updates:
                _, remote = self._split(node_type, device)
                found.learnable_rows += float(remote.sum()) * hidden_bytes * BOTH_WAYS
        found.hits = float(hit / read) if cache_bytes and read else None
        return found

    def _split(self, node_type: str, device: int) -> tuple[np.ndarray, np.ndarray]:
        """A device's visits of rows that it has, and of rows that others have, each `[num_nodes]`."""
        visits = self.visits[node_type][device]
        homes = self.way.homes(node_type, np.arange(len(visits)))
        here = np.ones(len(visits), bool) if homes is None else homes == device
        return visits * here, visits * ~here

    def _cacheable(self, device: int, costs: WorkCosts) -> dict[str, TypeRows]:
        rows = {}
        for node_type in self.visits:
            size = self.shape.row_bytes(node_type)
            if node_type in self.updates:
                homes = self.way.homes(node_type, np.arange(len(self.updates[node_type])))
                updated = self.updates[node_type] * (homes == device)
                rows[node_type] = TypeRows(updated.astype(np.float64), size, costs.learnable_byte_s)
                continue
            local, remote = self._split(node_type, device)
            rows[node_type] = TypeRows(local.astype(np.float64), size, costs.byte_s)
            farther = costs.byte_s + costs.exchange_byte_s
            rows[node_type + REMOTE] = TypeRows(remote.astype(np.float64), size, farther)
        return rows


def count(
    way: Way, shape: ModelShape, num_nodes: Mapping[str, int], batches: Iterable[tuple[int, np.ndarray]]
) -> Counted:
    """Draws batches, each with the number of its step, as the way's devices would in training."""
    devices = way.devices
    found = Counted(
        way=way,
        shape=shape,
        steps=0,
        targets=0,
        visits={name: np.zeros((devices, size), np.int32) for name, size in num_nodes.items()},
        updates={
            name: np.zeros(size, np.int32) for name, size in num_nodes.items() if name not in shape.feature_widths
        },
        draws=np.zeros(devices),
        flops=np.zeros(devices),
        summed=0,
    )
    for step, batch in batches:
        found.steps += 1
        found.targets += len(batch)
        met: dict[str, list[np.ndarray]] = {name: [] for name in found.updates}
        for read in way.reads(step, batch):
            for name, ids in read.rows.items():
                found.visits[name][read.device, ids] += 1
                if name in met:
                    met[name].append(ids)
            found.draws[read.device] += draws_of(read)
            found.flops[read.device] += flops_of(read, shape)
            found.summed += read.summed
        for name, parts in met.items():
            if parts:
                found.updates[name][np.unique(np.concatenate(parts))] += 1
    return found


def draws_of(read: Read) -> int:
    """Neighbours drawn."""
    return sum(int(table.num_neighbors.sum()) for tables in read.blocks.hops for table in tables.values())


def flops_of(read: Read, shape: ModelShape) -> float:
    """FLOPs of forward and backward pass: each relation's neighbours are summed, and the sums projected.

    What inner layers compute again for vertices of earlier hops is left out.
    """
    sources = {draw.name: draw.source for draw in read.plan.draws}
    found = 0.0
    for hop, tables in enumerate(read.blocks.hops):
        last = hop == read.blocks.num_hops - 1
        for name, table in tables.items():
            width = shape.input_width(sources[name]) if last else shape.hidden
            receivers = int((table.num_neighbors > 0).sum())
            found += TRAINING * 2.0 * width * (float(table.num_neighbors.sum()) + receivers * shape.hidden)
    return found


def ring(members: int, size: float) -> float:
    """Bytes that all members of a ring send to sum `size` bytes."""
    return 2.0 * (members - 1) * size
