"""How many edges a metapath's semantic graph has, before it is produced."""

import dataclasses

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.chain_products import ChainProducts, row_peaks, rows_of_chain
from jhgnn.graph.factors import Chain, Factors, relation_counts
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.metapath_plan import ChainPlan
from jhgnn.graph.metapath_product import PEAK_BYTES_PER_EDGE, cost_of, row_flops
from jhgnn.graph.schema import Metapath
from jhgnn.runtime.memory_limit import default_memory_limit_bytes, readable_bytes

_EXACT_BUDGET_S = 1.0  # counts expected to take less (by the cost model) are exact
_SAMPLE_GROUP = 64  # rows drawn at a time
_LEAST_ROWS, _SAMPLE_ROWS = 256, 1024  # at least (unless they are much work), at most
_SAMPLE_ERROR = 0.02  # relative standard error that ends the sampling
_SAMPLE_EDGES = 2e8  # work that ends it: edges passed through, by their upper bound
_GROUP_EDGES = 2**25  # memory that a group of sampled rows may take, in edges


@dataclasses.dataclass(frozen=True)
class SizeEstimate:
    """Edges of a semantic graph, exact or estimated.

    Attributes:
        num_edges: the count, or an unbiased estimate of it.
        exact: whether it is the count.
        standard_error: of the estimate, in edges; 0 where exact.
        upper_bound: edges that it surely does not exceed.
        density: share of all sender-receiver pairs.
    """

    num_edges: int
    exact: bool
    standard_error: float
    upper_bound: int
    density: float

    @property
    def peak_bytes(self) -> int:
        """Memory that building it takes at its worst moment."""
        return self.num_edges * PEAK_BYTES_PER_EDGE

    def __str__(self) -> str:
        return f"{self.num_edges:,}" if self.exact else f"about {self.num_edges:,}"


def estimate_num_edges(
    graph: HeteroGraph, metapath: Metapath, *, memory_limit_bytes: int | None = None, seed: int = 0
) -> SizeEstimate:
    """Counts the edges of a metapath's semantic graph, or estimates them where counting would take over a second.

    The graph is never held: counting takes the sub-products of the planned order (within the limit) and row blocks.
    The estimate is Hansen-Hurwitz: rows are drawn with probability proportional to an upper bound of their
    neighbours, each drawn row is composed exactly, and the mean share of the bound that is really there scales the
    bound of the whole graph. It is unbiased, and since the shares lie between 0 and 1 a hub cannot spoil it.

    Args:
        memory_limit_bytes: for sub-products; None takes `default_memory_limit_bytes`.
        seed: of the rows drawn.

    Raises:
        InputError: the graph lacks a relation or node type of the metapath.
    """
    relation_counts(graph, metapath)
    limit_bytes = default_memory_limit_bytes() if memory_limit_bytes is None else memory_limit_bytes
    products = ChainProducts(Factors(graph), limit_bytes=limit_bytes)
    chain = products.factors.chain(metapath.relations)
    return estimate_chain(products, chain, products.plan(chain), seed=seed)


def estimate_chain(
    products: ChainProducts, chain: Chain, plan: ChainPlan, *, exact_budget_s: float = _EXACT_BUDGET_S, seed: int = 0
) -> SizeEstimate:
    """`estimate_num_edges` for a chain that is planned already."""
    bound = plan.edge_bound(0, plan.length - 1)
    cells = plan.factors[0].shape[0] * plan.factors[-1].shape[1]
    order = plan.order()
    if products.fits(plan, order) and _seconds(products, plan) <= exact_budget_s:
        count = products.count(chain, plan, order)
        return SizeEstimate(count, True, 0.0, count, count / max(1, cells))
    share, error = _sampled_share(plan, seed)
    num_edges = round(share * bound)
    return SizeEstimate(num_edges, False, error * bound, int(bound), num_edges / max(1, cells))


def refuse_if_too_large(
    products: ChainProducts, chain: Chain, plan: ChainPlan, *, name: str, limit_bytes: float, bytes_per_edge: int
) -> None:
    """Refuses a product that would not fit, before any of it is computed.

    Most pass by an upper bound alone: the pairs of nodes, or the instances, which takes one pass over the edges.

    Raises:
        InputError: with the estimate, the bytes, the limit and the way out.
    """
    most = min(limit_bytes / bytes_per_edge, 2**31 - 1)
    cells = plan.factors[0].shape[0] * plan.factors[-1].shape[1]
    if cells <= most or plan.edge_bound(0, plan.length - 1) <= most:
        return
    estimate = estimate_chain(products, chain, plan)
    if estimate.num_edges > most:
        raise too_large(name, str(estimate), estimate.num_edges, limit_bytes, bytes_per_edge)


def too_large(name: str, shown: str, num_edges: float, limit_bytes: float, bytes_per_edge: int) -> InputError:
    """The refusal of a semantic graph that has, or would have, `num_edges`."""
    if num_edges >= 2**31:  # no memory limit helps
        return InputError(
            f"semantic graph {name!r} would have {shown} edges ({readable_bytes(num_edges * bytes_per_edge)} while it"
            f" is built; the memory limit is {readable_bytes(limit_bytes)}), but kernels index with int32, below 2**31:"
            " take a shorter metapath, or train on sampled blocks"
        )
    return InputError(
        f"semantic graph {name!r} would have {shown} edges and take {readable_bytes(num_edges * bytes_per_edge)} while"
        f" it is built, over the memory limit of {readable_bytes(limit_bytes)}: raise sgb.memory_limit_gib,"
        " take a shorter metapath, or train on sampled blocks"
    )


def _seconds(products: ChainProducts, plan: ChainPlan) -> float:
    if plan.length == 1:
        return 0.0
    if plan.length == 2:
        left, right = plan.factors
        return cost_of(left, right, row_flops(left, right), products.limit_bytes).seconds
    return plan.seconds()


def _sampled_share(plan: ChainPlan, seed: int) -> tuple[float, float]:
    """(mean, standard error) of the share of a row's bound that is really there, over rows drawn by their bounds."""
    bounds = plan.row_bounds(0, plan.length - 1)
    peaks = row_peaks(plan)
    running = np.cumsum(bounds)
    if not len(running) or running[-1] == 0:
        return 0.0, 0.0
    rng = np.random.default_rng(seed)
    shares: list[np.ndarray] = []
    work = 0.0
    while True:
        drawn = np.searchsorted(running, rng.random(_SAMPLE_GROUP) * running[-1], side="right")
        rows, places = np.unique(np.minimum(drawn, len(running) - 1), return_inverse=True)
        found = np.empty(len(rows))
        per_block = max(1, int(_GROUP_EDGES // max(1.0, float(peaks[rows].max()))))
        for start in range(0, len(rows), per_block):
            some = rows[start : start + per_block]
            found[start : start + per_block] = np.diff(rows_of_chain(plan, some).indptr)
        shares.append((found / bounds[rows])[places])
        work += float(peaks[rows].sum())
        ratios = np.concatenate(shares)
        error = float(ratios.std(ddof=1) / np.sqrt(len(ratios)))
        settled = len(ratios) >= _LEAST_ROWS and error <= _SAMPLE_ERROR * ratios.mean()
        if settled or len(ratios) >= _SAMPLE_ROWS or work >= _SAMPLE_EDGES:
            return float(ratios.mean()), error
