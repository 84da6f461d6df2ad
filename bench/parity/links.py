"""Which parameter of a peer's model is which slice of which jhgnn parameter, and the way from one to the other."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.comparison.graph_folder import PlainGraph
from bench.peers.shared import Relational


@dataclasses.dataclass(frozen=True, eq=False)
class Link:
    """`theirs` holds `ours[index]` (all of it where None), transposed or not; shapes differ at most by ones."""

    ours: str
    index: int | None
    theirs: Tensor
    transposed: bool = False

    def to_theirs(self, array: np.ndarray) -> Tensor:
        part = array if self.index is None else array[self.index]
        part = part.T if self.transposed else part
        if part.size != self.theirs.numel():
            raise ValueError(f"{self.ours}[{self.index}] has shape {part.shape}, the peer's {tuple(self.theirs.shape)}")
        return torch.from_numpy(np.array(part).reshape(self.theirs.shape))

    def to_ours(self, tensor: Tensor, shape: tuple[int, ...]) -> np.ndarray:
        """The slice, in our slice's `shape`."""
        array = tensor.detach().cpu().numpy()
        return array.reshape(shape[::-1]).T if self.transposed else array.reshape(shape)


Links = Iterator[Link]


def links(model: nn.Module, graph: PlainGraph, settings: Mapping[str, Any]) -> list[Link]:
    """All links of a model; together they cover every parameter of both sides once."""
    return list(MAPPINGS[f"{type(model).__module__.rpartition('.')[2]}.{type(model).__name__}"](model, graph, settings))


def _shared(model: nn.Module) -> Links:
    for node_type, table in model.inputs.tables.items():
        yield Link(f"embeddings.tables.{node_type}", None, table)
    yield Link("classifier.linear.kernel", None, model.classifier.weight, transposed=True)
    yield Link("classifier.linear.bias", None, model.classifier.bias)


def _semantic_attention(fusion: nn.Module) -> Links:
    hidden, _, query = fusion.project
    yield Link("layers.0.fusion.hidden.kernel", None, hidden.weight, transposed=True)
    yield Link("layers.0.fusion.hidden.bias", None, hidden.bias)
    yield Link("layers.0.fusion.query", None, query.weight, transposed=True)


def _gat(gat: nn.Module) -> dict[str, Tensor]:
    """GATConv's parameters by one set of names, DGL's or PyG's."""
    if hasattr(gat, "attn_l"):
        found = {"src": gat.attn_l, "dst": gat.attn_r}
        own = {"w": "fc", "w_src": "fc_src", "w_dst": "fc_dst"}
    else:
        found = {"src": gat.att_src, "dst": gat.att_dst}
        own = {"w": "lin", "w_src": "lin_src", "w_dst": "lin_dst"}
    return found | {
        name: getattr(gat, theirs).weight for name, theirs in own.items() if getattr(gat, theirs, None) is not None
    }


def gat_han(model: nn.Module, graph: PlainGraph, settings: Mapping[str, Any]) -> Links:
    """HAN of a GATConv a metapath."""
    yield from _shared(model)
    yield from _semantic_attention(model.fusion)
    for number, gat in enumerate(model.gats):
        found = _gat(gat)
        yield Link("layers.0.projection.w_rio", number, found["w"], transposed=True)
        yield Link("layers.0.attention.a_src_rhd", number, found["src"])
        yield Link("layers.0.attention.a_dst_rhd", number, found["dst"])
        yield Link("layers.0.bias_po", number, gat.bias)


def han_conv(model: nn.Module, graph: PlainGraph, settings: Mapping[str, Any]) -> Links:
    """PyG's HANConv: our shared_projection, projection_bias, activation = relu, semantic_hidden = hidden."""
    yield from _shared(model)
    conv = model.conv
    yield Link("layers.0.projection.w_rio", 0, conv.proj[graph.target].weight, transposed=True)
    yield Link("layers.0.bias_po", 0, conv.proj[graph.target].bias)
    for number, edge_type in enumerate(model.edge_types.values()):
        yield Link("layers.0.attention.a_src_rhd", number, conv.lin_src["__".join(edge_type)])
        yield Link("layers.0.attention.a_dst_rhd", number, conv.lin_dst["__".join(edge_type)])
    yield Link("layers.0.fusion.hidden.kernel", None, conv.k_lin.weight, transposed=True)
    yield Link("layers.0.fusion.hidden.bias", None, conv.k_lin.bias)
    yield Link("layers.0.fusion.query", None, conv.q, transposed=True)


def _relational(model: Relational, graph: PlainGraph, settings: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """For each layer and relation: layer's name, relation's number, its triple, its place among those of its source."""
    for index, layer in enumerate(settings["plan"]):
        seen: dict[str, int] = {}
        for number in layer["relations"]:
            triple = graph.relations[number]
            yield index, layer, number, triple, seen.setdefault(triple[0], 0)
            seen[triple[0]] += 1


def _own(model: Relational, graph: PlainGraph, settings: Mapping[str, Any]) -> Links:
    for index, layer in enumerate(settings["plan"]):
        for node_type in layer["makes"]:
            last = sum(graph.relations[number][0] == node_type for number in layer["relations"])
            own = model.own[index]
            name = f"layers.{index}.projections.{node_type}.w_rio"
            yield Link(name, last, own.linear[node_type].weight, transposed=True)
            yield Link(f"layers.{index}.fusions.{node_type}.bias", None, own.bias[node_type])


def rgcn(weight_of: Callable[[nn.Module], tuple[Tensor, bool]], pyg: bool) -> Callable[..., Links]:
    """R-GCN of one convolution a relation, whose weight (and whether it is transposed) `weight_of` finds."""

    def found(model: Relational, graph: PlainGraph, settings: Mapping[str, Any]) -> Links:
        yield from _shared(model)
        yield from _own(model, graph, settings)
        for index, _, number, triple, place in _relational(model, graph, settings):
            weight, transposed = weight_of(_conv(model, index, number, triple, pyg))
            yield Link(f"layers.{index}.projections.{triple[0]}.w_rio", place, weight, transposed)

    return found


def rgat(pyg: bool) -> Callable[..., Links]:
    """R-GAT of one GATConv a relation."""

    def found(model: Relational, graph: PlainGraph, settings: Mapping[str, Any]) -> Links:
        yield from _shared(model)
        yield from _own(model, graph, settings)
        for index, layer, number, triple, place in _relational(model, graph, settings):
            source, _, target = triple
            gat = _gat(_conv(model, index, number, triple, pyg))
            name = f"layers.{index}.projections.{source}.w_rio"
            if source == target:
                yield Link(name, place, gat["w"], transposed=True)
            else:
                crossing = [n for n in layer["relations"] if graph.relations[n][0] != target == graph.relations[n][2]]
                yield Link(name, place, gat["w_src"], transposed=True)
                name = f"layers.{index}.target_projections.{target}.w_rio"
                yield Link(name, crossing.index(number), gat["w_dst"], transposed=True)
            at = layer["relations"].index(number)
            yield Link(f"layers.{index}.attention.a_src_rhd", at, gat["src"])
            yield Link(f"layers.{index}.attention.a_dst_rhd", at, gat["dst"])

    return found


def _conv(model: Relational, index: int, number: int, triple: tuple[str, str, str], pyg: bool) -> nn.Module:
    if pyg:
        return model.convs[index].convs[triple[0], f"r{number}", triple[2]]
    return model.convs[index].mods[f"r{number}"]


def merged_rgcn(model: nn.Module, graph: PlainGraph, settings: Mapping[str, Any]) -> Links:
    """RelGraphConv and RGCNConv: relations stacked in one parameter."""
    yield from _shared(model)
    for index, conv in enumerate(model.convs):
        if hasattr(conv, "linear_r"):
            stacked, own, bias = conv.linear_r.W, conv.loop_weight, conv.h_bias
        else:
            stacked, own, bias = conv.weight, conv.root, conv.bias
        name = f"layers.{index}.projections.{graph.target}.w_rio"
        yield StackedLink(name, None, stacked)
        yield Link(name, len(graph.relations), own)
        yield Link(f"layers.{index}.fusions.{graph.target}.bias", None, bias)


class StackedLink(Link):
    """All slices of ours but the last."""

    def to_theirs(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(array[:-1]).reshape(self.theirs.shape))

    def to_ours(self, tensor: Tensor, shape: tuple[int, ...]) -> np.ndarray:
        return tensor.detach().cpu().numpy().reshape(shape[0] - 1, *shape[1:])


MAPPINGS: dict[str, Callable[..., Links]] = {
    "dgl_models.HAN": gat_han,
    "dgl_models.RGCN": rgcn(lambda conv: (conv.weight, False), pyg=False),
    "dgl_models.RGAT": rgat(pyg=False),
    "dgl_models.MergedRGCN": merged_rgcn,
    "pyg_models.HAN": han_conv,
    "pyg_models.GATHAN": gat_han,
    "pyg_models.RGCN": rgcn(lambda conv: (conv.lin_l.weight, True), pyg=True),
    "pyg_models.ProjectedRGCN": rgcn(lambda conv: (conv.linear.weight, True), pyg=True),
    "pyg_models.SparseMatrixRGCN": rgcn(lambda conv: (conv.linear.weight, True), pyg=True),
    "pyg_models.RGAT": rgat(pyg=True),
    "pyg_models.MergedRGCN": merged_rgcn,
}


def load(found: list[Link], params: Mapping[str, np.ndarray]) -> None:
    """Copies our parameters into the peer's."""
    with torch.no_grad():
        for link in found:
            link.theirs.copy_(link.to_theirs(params[link.ours]))


def collect(
    found: list[Link], like: Mapping[str, np.ndarray], tensor_of: Callable[[Tensor], Tensor]
) -> dict[str, np.ndarray]:
    """The peer's parameters (or what `tensor_of` finds for each, as its gradient) under our names and in our shapes.

    Raises:
        ValueError: an element of ours is covered by no link, or by two.
    """
    arrays = {name: np.zeros(array.shape) for name, array in like.items()}
    covered = {name: np.zeros(array.shape, int) for name, array in like.items()}
    for link in found:
        where: Any = slice(0, -1) if isinstance(link, StackedLink) else ... if link.index is None else link.index
        shape = like[link.ours].shape if isinstance(link, StackedLink) else like[link.ours][where].shape
        arrays[link.ours][where] = link.to_ours(tensor_of(link.theirs), shape)
        covered[link.ours][where] += 1
    wrong = [name for name, counts in covered.items() if (counts != 1).any()]
    if wrong:
        raise ValueError(f"not mapped exactly once: {', '.join(wrong)}")
    return arrays
