"""Making a plan of shards from the work of a metatree's nodes; no graph is read here, so its size costs nothing."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jhgnn.distributed.meta.assign import largest_first
from jhgnn.distributed.meta.counts import TreeCounts
from jhgnn.distributed.meta.plan import MetaPlan, Piece, check_covers
from jhgnn.distributed.meta.ranges import with_equal_ranges
from jhgnn.distributed.meta.traffic import Traffic
from jhgnn.distributed.meta.tree import MetaTree
from jhgnn.distributed.meta.work import KINDS, ModelShape, TreeWork, WorkCosts, tree_work
from jhgnn.errors import InputError

WORTHWHILE = 0.98
"""A plan that is harder to carry out must promise less than this share of the time of the plain one."""
HOPELESS = 1.5
NOTICEABLE = 0.99
"""A move from one shard to another must leave less than this share of the time."""
MOST_CUTS, MOST_MOVES, MOST_TRIED = 8, 40, 16
"""Cuts of a plan, moves of its pieces, and pieces of a shard that are tried for a move, the heaviest first."""


def plan_shards(
    tree: MetaTree,
    counts: TreeCounts,
    shape: ModelShape,
    costs: WorkCosts,
    num_shards: int,
    *,
    whole_branches: bool = False,
) -> MetaPlan:
    """Divides a metatree among shards so that a step is predicted to be fastest.

    The branches of the targets are dealt out largest first. Where that leaves a shard with too much, as it must with
    more shards than branches, two ways are predicted: to split branches over `data`, so that another shard computes
    them for some of the targets; and to cut the heaviest branch one level deeper, so that shards exchange what its
    vertices are made of. Pieces also move between shards where that saves more exchange than it costs balance, such as
    a branch that reads learnable rows to the shard that owns them. The fastest is taken, cut by cut; a further cut must
    be worth 2 %.

    Args:
        counts: of `count_tree`; the plan depends on them and on nothing else of the graph.
        num_shards: at least 1; more than the branches are welcome.
        whole_branches: cuts none deeper, as some models need it.

    Raises:
        InputError: `num_shards` is below 1, or there are more shards than targets and branches could occupy.
    """
    if num_shards < 1:
        raise InputError(f"a plan for {num_shards} shards; need at least 1")
    if num_shards > counts.batch_size:
        raise InputError(f"a plan for {num_shards} shards of batches of {counts.batch_size} targets; need fewer shards")
    work = tree_work(tree, counts, shape, costs)
    most_cuts = 0 if whole_branches else MOST_CUTS
    return _Planner(tree, counts, costs, num_shards, work, Traffic(tree, counts, shape), most_cuts).plan()


@dataclasses.dataclass(frozen=True, eq=False)
class _Planner:
    tree: MetaTree
    counts: TreeCounts
    costs: WorkCosts
    num_shards: int
    work: TreeWork
    traffic: Traffic
    most_cuts: int
    weights: dict[tuple[int, bool, int], float] = dataclasses.field(default_factory=dict)
    kinds: dict[tuple[int, bool, int], np.ndarray] = dataclasses.field(default_factory=dict)

    def plan(self) -> MetaPlan:
        best = self._evaluated(self._dealt(()))
        considered: list[tuple[str, float]] = []
        cuts: tuple[int, ...] = ()
        for _ in range(self.most_cuts + 1 if self.num_shards > 1 else 0):
            before = best
            name = f"cut deeper at {', '.join(map(self.tree.path, cuts))}" if cuts else "branches whole"
            for words, plan in self._ways(cuts, best):
                considered.append((f"{name}, {words}", plan.predicted_s))
                if plan.predicted_s < (WORTHWHILE if best is before else 1.0) * best.predicted_s:
                    best = plan
            deeper = self._heaviest_branch(cuts)
            if deeper is None or (cuts and best is before):
                break
            cuts = (*cuts, deeper)
        check_covers(self.tree, self.counts.batch_size, best.shards)
        return dataclasses.replace(best, considered=tuple(considered))

    def _ways(self, cuts: Sequence[int], best: MetaPlan) -> list[tuple[str, MetaPlan]]:
        """What is tried with some nodes cut, in words; moves only where that is not hopelessly slower than the best."""
        dealt = self._dealt(cuts)
        leveled = self._leveled(dealt)
        plans = [("largest first", self._evaluated(dealt)), ("split over data", self._evaluated(leveled))]
        if min(plan.predicted_s for _, plan in plans) < HOPELESS * best.predicted_s:
            moved = self._moved(dealt)
            plans.append(("moved to save exchange", self._evaluated(moved)))
            plans.append(("moved, and split over data", self._evaluated(self._moved(self._leveled(moved)))))
        return plans

    def _moved(self, shards: list[list[Piece]]) -> list[list[Piece]]:
        """Moves pieces, one at a time, away from the shard with most work or most to send, while that saves time."""
        shards, best = [list(pieces) for pieces in shards], self._evaluated(shards)
        for _ in range(MOST_MOVES):
            found = None
            busiest = sum(best.sent_bytes.values(), np.zeros(self.num_shards))
            for shard in sorted({int(best.work_s.sum(axis=1).argmax()), int(busiest.argmax())}):
                for piece in sorted(shards[shard], key=lambda piece: (-self._weight(piece), piece))[:MOST_TRIED]:
                    for other in range(self.num_shards):
                        if other == shard:
                            continue
                        tried = [list(pieces) for pieces in shards]
                        tried[shard].remove(piece)
                        tried[other] = _joined([*tried[other], piece])
                        plan = self._evaluated(tried)
                        if plan.predicted_s < NOTICEABLE * (found[0] if found else best).predicted_s:
                            found = plan, tried
            if found is None:
                break
            best, shards = found
        return shards

    def _items(self, cuts: Sequence[int]) -> list[Piece]:
        """Every branch of the targets for all of them; a cut node alone, and its branches beside it."""
        items, batch = [], self.counts.batch_size
        waiting = list(self.tree.children(0))
        for node in waiting:
            if node in cuts:
                items.append(Piece(node, 0, batch, whole=False))
                waiting.extend(self.tree.children(node))
            else:
                items.append(Piece(node, 0, batch))
        return items

    def _dealt(self, cuts: Sequence[int]) -> list[list[Piece]]:
        items = self._items(cuts)
        owners = largest_first([self._weight(item) for item in items], self.num_shards)
        return [
            sorted(item for item, owner in zip(items, owners, strict=True) if owner == shard)
            for shard in range(self.num_shards)
        ]

    def _heaviest_branch(self, cuts: Sequence[int]) -> int | None:
        """The heaviest of the branches that have branches themselves."""
        whole = [item for item in self._items(cuts) if item.whole and self.tree.children(item.node)]
        return max(whole, key=lambda item: (self._weight(item), -item.node)).node if whole else None

    def _weight(self, piece: Piece, targets: int | None = None) -> float:
        """Predicted seconds of a piece, with the draws that lead to it, for its targets or another number of them."""
        key = (piece.node, piece.whole, piece.targets if targets is None else targets)
        if key not in self.weights:
            above = self.work.of(self._above(piece.node), key[2], "draws")
            self.weights[key] = float(self._by_kind(piece, key[2]).sum()) + above
        return self.weights[key]

    def _by_kind(self, piece: Piece, targets: int) -> np.ndarray:
        key = (piece.node, piece.whole, targets)
        if key not in self.kinds:
            self.kinds[key] = self.work.by_kind(piece.nodes(self.tree), targets)
        return self.kinds[key]

    def _above(self, node: int) -> tuple[int, ...]:
        """The nodes between a piece and the root, which its shard must draw as well to know where the piece starts."""
        found = []
        while (node := self.tree.nodes[node].parent) > 0:
            found.append(node)
        return tuple(found)

    def _leveled(self, shards: list[list[Piece]]) -> list[list[Piece]]:
        """Moves targets of pieces from the heaviest shard to the lightest, until that no longer helps."""
        shards = [list(pieces) for pieces in shards]
        for _ in range(4 * self.num_shards):
            loads = [sum(self._weight(piece) for piece in pieces) for pieces in shards]
            heavy = max(range(self.num_shards), key=lambda shard: (loads[shard], -shard))
            light = min(range(self.num_shards), key=lambda shard: (loads[shard], shard))
            moves = [self._best_move(piece, loads[heavy], loads[light]) for piece in shards[heavy]]
            if not moves:
                break
            after, moved = min(moves, key=lambda move: move[0])
            if after >= NOTICEABLE * loads[heavy]:
                break
            piece = shards[heavy][moves.index((after, moved))]
            shards[heavy].remove(piece)
            if moved < piece.targets:
                shards[heavy].append(dataclasses.replace(piece, high=piece.high - moved))
            shards[light].append(dataclasses.replace(piece, low=piece.high - moved))
            shards[heavy], shards[light] = _joined(shards[heavy]), _joined(shards[light])
        return shards

    def _best_move(self, piece: Piece, heavy: float, light: float) -> tuple[float, int]:
        """The heavier of two shards' seconds after moving the best number of a piece's targets, and that number."""
        own = self._weight(piece)

        def after(moved: int) -> float:
            left = self._weight(piece, piece.targets - moved) if moved < piece.targets else 0.0
            return max(heavy - own + left, light + self._weight(piece, moved))

        low, high = 1, piece.targets  # the heavy shard gets lighter with every target, the light one heavier
        while low < high:
            middle = (low + high) // 2
            left = self._weight(piece, piece.targets - middle)
            if heavy - own + left > light + self._weight(piece, middle):
                low = middle + 1
            else:
                high = middle
        return min((after(moved), moved) for moved in {low, max(1, low - 1)})

    def _evaluated(self, shards: list[list[Piece]]) -> MetaPlan:
        """The plan of some shards, as they are computed: with equal ranges of targets in a branch that is cut."""
        shards = with_equal_ranges(self.tree, shards)
        work = np.zeros((self.num_shards, len(KINDS)))
        for shard, pieces in enumerate(shards):
            held = {piece.node for piece in pieces if not piece.whole}
            for piece in pieces:
                work[shard] += self._by_kind(piece, piece.targets)
                above = tuple(node for node in self._above(piece.node) if node not in held)
                if above:
                    work[shard, 0] += self.work.of(above, piece.targets, "draws")
        frozen = tuple(tuple(sorted(pieces)) for pieces in shards)
        owners = self.traffic.row_owners(frozen)
        sent = self.traffic.sent_bytes(frozen, owners)
        meetings = (self.num_shards > 1) + 2 * bool(sent["frontiers"].any())
        exchange = sum(sent.values(), np.zeros(self.num_shards)).max() * self.costs.exchange_byte_s
        predicted = float(work.sum(axis=1).max() + exchange + meetings * self.costs.rendezvous_s)
        return MetaPlan(self.tree, self.counts.batch_size, frozen, owners, work, sent, predicted)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Pieces of one node for adjoining targets as one."""
    joined: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: (piece.node, piece.whole, piece.low)):
        last = joined[-1] if joined else None
        if last and (last.node, last.whole, last.high) == (piece.node, piece.whole, piece.low):
            joined[-1] = dataclasses.replace(last, high=piece.high)
        else:
            joined.append(piece)
    return joined
