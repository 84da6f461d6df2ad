"""Forward and backward passes of programs that differ by shard, with a collective between them.

Either all devices run one program: `lax.switch` on a device's place on `rel` takes its shard's branch. Collectives over
`rel` stand between two switches, where all devices come by. What the backward pass needs of the forward pass is handed
over in buffers as large as the largest shard's: through `lax.switch` itself JAX would hand over what all shards' passes
need, each device's own and zeros for the others. What is an argument already is read again instead.

Or a program has one shard's branch alone. There is then no switch, and nothing is packed.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jhgnn.training.packing import Packing, largest

Tree = Any
Branch = Callable[[Tree, Tree], Tree]
"""(what gradients are taken of, what not) -> results of one shape in all branches."""
Prepare = Callable[[Tree], tuple[Tree, Tree]]
"""From the arguments of all branches to what one of them reads; called again in the backward pass."""


@dataclasses.dataclass(frozen=True)
class _Pulled:
    """How one branch's pull-back is put together: its structure, where its leaves lie."""

    structure: jax.tree_util.PyTreeDef
    known: tuple[int, ...]
    packing: Packing


class BranchGradients:
    """The passes of some branches, while one program is traced.

    Args:
        prepare: of each branch, `arguments -> (differentiated, fixed)`.
        branches: results, from those.
        gradients: of each branch, gradients of `differentiated` in a form that is the same for all.
    """

    def __init__(
        self,
        prepare: Sequence[Prepare],
        branches: Sequence[Branch],
        gradients: Sequence[Callable[[Tree], Tree]],
    ) -> None:
        self._prepare, self._branches, self._gradients = prepare, branches, gradients
        self._pulled: list[_Pulled] = []

    def forward(self, shard: jax.Array, arguments: Tree) -> tuple[Tree, Tree]:
        """Results of the shard's branch, the only one where there is one, and what `backward` reads."""
        if len(self._branches) == 1:
            return self._vjp(0, *self._prepare[0](arguments))
        self._pulled = []
        for number in range(len(self._branches)):
            jax.eval_shape(lambda every, number=number: self._pull(number, every)[0], arguments)
        sizes = largest([each.packing for each in self._pulled])

        def branch(number: int) -> Callable[[Tree], tuple[Tree, Tree]]:
            def run(every: Tree) -> tuple[Tree, Tree]:
                results, leaves, known = self._pull(number, every)
                kept = [leaf for leaf, place in zip(leaves, known, strict=True) if place < 0]
                return results, self._pulled[number].packing.pack(kept, sizes)

            return run

        return jax.lax.switch(shard, [branch(number) for number in range(len(self._branches))], arguments)

    def backward(self, shard: jax.Array, arguments: Tree, kept: Tree, cotangents: Tree) -> Tree:
        """Gradients in the shard's branch, from those of its results."""
        if len(self._branches) == 1:
            (own,) = kept(cotangents)
            return self._gradients[0](own)

        def branch(number: int) -> Callable[[Tree, Tree, Tree], Tree]:
            def run(every: Tree, kept: Tree, cotangents: Tree) -> Tree:
                pulled = self._pulled[number]
                read = jax.tree.leaves(self._prepare[number](every))
                packed = iter(pulled.packing.unpack(kept))
                leaves = [next(packed) if place < 0 else read[place] for place in pulled.known]
                (gradients,) = jax.tree.unflatten(pulled.structure, leaves)(cotangents)
                return self._gradients[number](gradients)

            return run

        branches = [branch(number) for number in range(len(self._branches))]
        return jax.lax.switch(shard, branches, arguments, kept, cotangents)

    def _vjp(self, number: int, differentiated: Tree, fixed: Tree) -> tuple[Tree, Any]:
        return jax.vjp(lambda own: self._branches[number](own, fixed), differentiated)

    def _pull(self, number: int, arguments: Tree) -> tuple[Tree, list[Any], tuple[int, ...]]:
        differentiated, fixed = self._prepare[number](arguments)
        results, pull = self._vjp(number, differentiated, fixed)
        leaves, structure = jax.tree.flatten(pull)
        places = {id(leaf): place for place, leaf in enumerate(jax.tree.leaves((differentiated, fixed)))}
        known = tuple(places.get(id(leaf), -1) for leaf in leaves)
        packing = Packing.of([leaf for leaf, place in zip(leaves, known, strict=True) if place < 0])
        pulled = _Pulled(structure, known, packing)
        if number == len(self._pulled):
            self._pulled.append(pulled)
        else:
            self._pulled[number] = pulled
        return results, leaves, known
