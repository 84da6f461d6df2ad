"""Synthetic heterographs of the sizes of ACM, IMDB, DBLP and ogbn-mag, with planted labels: the embedded default data.

Nothing is downloaded. Counts, degree tails and sparsity are those of the real graphs; the labels can be learned well
only from several relations together (see `synthetic_presets`).
"""

import dataclasses

import numpy as np
from scipy import sparse

from jhgnn.data.synthetic_draws import Draws, apportion
from jhgnn.data.synthetic_edges import most_edges, planted_edges
from jhgnn.data.synthetic_presets import PRESETS, PlantedRelation, PlantedVectors, PlantedWords, Preset
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, Features, HeteroGraph
from jhgnn.graph.schema import Relation

__all__ = ["PRESETS", "generate"]

_FEWEST_TARGETS, _FEWEST_OTHERS = 60, 8  # below these, splits and communities would be empty
_ROWS_AT_ONCE = 1 << 16  # bounds the scratch memory of dense features


def generate(name: str, *, scale: float = 1.0, seed: int = 0) -> HeteroGraph:
    """Generates the synthetic heterograph `name`, one of `PRESETS`.

    At scale 1 the counts are exactly those of the real graph:

    - `acm`, `imdb`, `dblp`: Table 3 of the HGNN training characterization paper, both directions as relations, splits
      600/300/2125 and 400/400/(the rest). Where the public files and the table differ, the files hold: ACM has 57
      subjects (the table prints 56), and feature widths are those of the files (IMDB 3,066 for every type; DBLP
      334 / 4,231 / 50 / none), where the table has one-hot inputs. ACM's terms and IMDB's keywords are left out: no
      relation of the table reaches them.
    - `mag`: ogbn-mag. 128-d float32 features of papers, none elsewhere; 349 classes; `cites` is one undirected relation
      of 2 * 5,416,271 edges (the real one has 0.4 % fewer, where two papers cite each other).

    Edges of a relation are distinct. Degrees have power-law tails on both sides, except where the real ones are fixed
    (one subject a paper, three actors a movie but for six). A share of the labels is noise, so no model reaches 1.

    Args:
        scale: in (0, 1]; node and edge counts shrink in proportion (mean degrees stay), down to a floor of 60 target
            nodes and 8 of every other type. Feature widths and the number of classes stay.
        seed: 0 or more. (name, scale, seed) fix every array, bit for bit, on every machine and NumPy version.

    Raises:
        InputError: an unknown name, a scale outside (0, 1], or a negative seed.
    """
    if name not in PRESETS:
        raise InputError(f"synthetic graph {name!r} is unknown; need one of {', '.join(PRESETS)}")
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.number) or not 0 < scale <= 1:
        raise InputError(f"scale {scale!r} of the synthetic graph {name!r} is out of range; need a number in (0, 1]")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed {seed!r} of the synthetic graph {name!r} is not usable; need a whole number from 0 on")
    return _Planting(name, PRESETS[name], float(scale), int(seed)).graph()


@dataclasses.dataclass(frozen=True)
class _Planting:
    """Draws the parts of one graph; each part has its own stream of random numbers."""

    name: str
    preset: Preset
    scale: float
    seed: int

    def graph(self) -> HeteroGraph:
        preset = self.preset
        counts = {node_type: self._count(node_type) for node_type in preset.num_nodes}
        classes = {node_type: self._classes(node_type, count) for node_type, count in counts.items()}
        edges: dict[Relation | tuple[str, str, str], tuple[np.ndarray, ...]] = {}
        for planted in preset.relations:
            relation = Relation(planted.source, planted.name, planted.target)
            edges[relation] = senders, receivers = self._edges(planted, classes)
            if not planted.undirected:
                edges[relation.reversed()] = (receivers, senders)
        return HeteroGraph.from_arrays(
            name=f"synthetic {self.name}",
            num_nodes=counts,
            edges=edges,
            features={
                node_type: self._features(node_type, recipe, classes[node_type])
                for node_type, recipe in preset.features.items()
            },
            target=preset.target,
            labels=self._labels(classes[preset.target]),
            num_classes=preset.num_classes,
            splits=self._splits(counts[preset.target]),
            where=f"synthetic graph {self.name!r}",
        )

    def _draws(self, part: str) -> Draws:
        return Draws(self.seed, f"{self.name}/{part}")

    def _count(self, node_type: str) -> int:
        full = self.preset.num_nodes[node_type]
        fewest = _FEWEST_TARGETS if node_type == self.preset.target else _FEWEST_OTHERS
        return min(full, max(fewest, round(full * self.scale)))

    def _classes(self, node_type: str, count: int) -> np.ndarray:
        sizes = apportion(count, self.preset.class_weights)
        classes = np.repeat(np.arange(len(sizes)), sizes)
        return classes[self._draws(f"{node_type}/class").permutation(count)]

    def _edges(self, planted: PlantedRelation, classes: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        left_type, right_type = planted.source, planted.target
        if planted.left_is_target:
            left_type, right_type = right_type, left_type
        num_left, num_right = len(classes[left_type]), len(classes[right_type])
        wanted = round(planted.num_edges * num_left / self.preset.num_nodes[left_type])
        left, right = planted_edges(
            self._draws(planted.name),
            planted.facet[classes[left_type]],
            planted.facet[classes[right_type]],
            min(wanted, most_edges(num_left, num_right, planted.undirected)),
            planted.degrees,
            planted.fidelity,
            planted.undirected,
        )
        left, right = left.astype(np.int32), right.astype(np.int32)
        if planted.undirected:
            return np.concatenate([left, right]), np.concatenate([right, left])
        return (right, left) if planted.left_is_target else (left, right)

    def _features(self, node_type: str, recipe: PlantedWords | PlantedVectors, classes: np.ndarray) -> Features:
        if isinstance(recipe, PlantedWords):
            return self._words(node_type, recipe, classes)
        return self._vectors(node_type, recipe, classes)

    def _words(self, node_type: str, recipe: PlantedWords, classes: np.ndarray) -> sparse.csr_array:
        draws = self._draws(f"{node_type}/words")
        word_classes = np.arange(recipe.width) % self.preset.num_classes
        nnz = round(recipe.nnz * len(classes) / self.preset.num_nodes[node_type])
        node, word = planted_edges(draws, classes, word_classes, nnz, recipe.degrees, recipe.fidelity)
        column = draws.permutation(recipe.width)  # the words of a class stand anywhere
        ones = np.ones(nnz, np.float32)
        return sparse.csr_array((ones, (node, column[word])), shape=(len(classes), recipe.width))

    def _vectors(self, node_type: str, recipe: PlantedVectors, classes: np.ndarray) -> np.ndarray:
        draws = self._draws(f"{node_type}/vectors")
        centers = draws.near_normal(self.preset.num_classes, recipe.width) * np.float32(recipe.signal)
        features = np.empty((len(classes), recipe.width), np.float32)
        for start in range(0, len(classes), _ROWS_AT_ONCE):
            rows = classes[start : start + _ROWS_AT_ONCE]
            features[start : start + len(rows)] = draws.near_normal(len(rows), recipe.width) + centers[rows]
        return features

    def _labels(self, classes: np.ndarray) -> np.ndarray:
        draws = self._draws("label_noise")
        noisy = np.flatnonzero(draws.chance(self.preset.label_noise, len(classes)))
        labels = classes.copy()
        labels[noisy] = classes[noisy][draws.permutation(len(noisy))]  # class sizes stay
        return labels

    def _splits(self, count: int) -> dict[str, np.ndarray]:
        sizes = np.maximum(1, apportion(count, np.array(self.preset.splits)))
        sizes[np.argmax(sizes)] -= sizes.sum() - count
        order = self._draws("splits").permutation(count)
        return dict(zip(SPLITS, np.split(order, np.cumsum(sizes)[:-1]), strict=True))
