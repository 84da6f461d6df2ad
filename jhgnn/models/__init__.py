"""The models, by the name that a recipe uses; to add one, write its file and its line here."""

from collections.abc import Callable

from flax import nnx

from jhgnn.models.erased import GAT, GCN
from jhgnn.models.han import HAN
from jhgnn.models.rgat import RGAT
from jhgnn.models.rgcn import RGCN

MODELS: dict[str, Callable[..., nnx.Module]] = {"han": HAN, "rgcn": RGCN, "rgat": RGAT, "gcn": GCN, "gat": GAT}
