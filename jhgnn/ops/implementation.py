"""What an op knows of its implementations: what each takes, needs and recomputes, where it runs, and which is `auto`.

An op's package declares an `Op`; `jhgnn.ops.registry` lists all of them. Which implementation of a name runs is decided
by the platform that the program is compiled for (`jhgnn.runtime.platform`), so `native` is that platform's own kernels.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

import jax

from jhgnn import native
from jhgnn.graph.row_ids import RowIds
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.native import cuda
from jhgnn.runtime.platform import GPUS, target_platform

Subject: TypeAlias = SemanticGraph | NeighborTable | SparseFeatures | SparseRows | RowIds
"""What an op works along: edges of the whole graph or of a sample, values of a whole matrix or of gathered rows, or
some rows of a table."""

Recompute = Literal["nothing", "edges", "everything"]
"""What a backward pass computes again instead of keeping it: `edges` is what has their size, `everything` leaves the
arguments alone."""

WORDS: dict[type, str] = {
    SemanticGraph: "a whole semantic graph",
    NeighborTable: "sampled neighbours",
    SparseFeatures: "a whole feature matrix",
    SparseRows: "sampled rows of features",
    RowIds: "rows of an embedding table",
}

KERNEL_DTYPES = ("float32", "bfloat16")
"""What kernels of our own take; they sum in float32."""


@dataclasses.dataclass(frozen=True, eq=False)
class Implementation:
    """One way to compute an op on one kind of subject.

    Attributes:
        name: as recipes write it.
        takes: the kind of subject.
        function: of the op's signature without `implementation` and `recompute`.
        why: for a subject (None where there is none yet, as before the first sample) and a platform, why `auto` takes
            it, or None where it does not.
        platforms: where it runs; None: wherever XLA compiles.
        views: of the subject, beyond its two compressed directions or its table.
        dtypes: of the arrays that it takes; None: any float.
        recomputing: `function` as it recomputes more than it does by itself; a level that is absent changes nothing.
        obstacle: why it cannot be used in this process, empty where it can.
        weighs: whether it multiplies messages by a graph's `message_weights`.
    """

    name: str
    takes: type
    function: Callable[..., Any]
    why: Callable[[Any, str], str | None]
    platforms: tuple[str, ...] | None = None
    views: tuple[str, ...] = ()
    dtypes: tuple[str, ...] | None = None
    recomputing: Mapping[Recompute, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    obstacle: Callable[[], str] = lambda: ""
    weighs: bool = False

    def runs_on(self, platform: str) -> bool:
        return self.platforms is None or platform in self.platforms

    def at(self, recompute: Recompute) -> Callable[..., Any]:
        """The function as it recomputes that much."""
        return self.recomputing.get(recompute, self.function)


@dataclasses.dataclass(frozen=True, eq=False)
class Op:
    """An op and its implementations, those first that `auto` prefers."""

    name: str
    implementations: tuple[Implementation, ...]

    def names(self, takes: type | None = None, platform: str | None = None) -> tuple[str, ...]:
        """Names of the implementations for one kind of subject and platform, or for any, in alphabetical order."""
        found = {
            each.name
            for each in self.implementations
            if takes in (None, each.takes) and (platform is None or each.runs_on(platform))
        }
        return tuple(sorted(found))

    def find(self, name: str, takes: type, platform: str | None = None) -> Implementation:
        """The implementation of that name, on the platform that programs are compiled for or a named one.

        Raises:
            ValueError: there is none.
        """
        platform = platform or target_platform()
        fitting = [each for each in self.implementations if each.name == name and each.takes is takes]
        for each in fitting:
            if each.runs_on(platform):
                return each
        known = ", ".join(map(repr, self.names(takes, platform)))
        where = f" on {platform}" if fitting else f" for {WORDS[takes]}" if name in self.names() else ""
        raise ValueError(f"{self.name} has no implementation {name!r}{where}; choose of {known}")

    def resolve(self, name: str, subject: Subject, *arrays: jax.Array) -> Implementation:
        """The implementation to call with a subject and arrays.

        Raises:
            ValueError: there is none of that name, or it does not take the arrays' dtypes or the subject's weights.
            RuntimeError: it cannot be used in this process; the message says how it could.
        """
        found = self.find(name, type(subject))
        obstacle = found.obstacle()
        if obstacle:
            raise RuntimeError(obstacle)
        if isinstance(subject, SemanticGraph) and subject.message_weights is not None and not found.weighs:
            raise ValueError(f"{self.name}: {name!r} does not read message weights, which {subject.name!r} has")
        for array in arrays:
            if found.dtypes is not None and array.dtype.name not in found.dtypes:
                other = next(each.name for each in reversed(self.implementations) if each.takes is found.takes)
                raise ValueError(
                    f"{self.name}: {name!r} computes in float32 and got {array.dtype}; cast, or use implementation"
                    f" {other!r}"
                )
        return found

    def choose(
        self,
        subject: Subject | type,
        *,
        platform: str | None = None,
        views: Collection[str] | None = None,
    ) -> tuple[str, str]:
        """The implementation that `auto` means for a subject, and the reason in words.

        Args:
            subject: on the host or on a device, or its kind alone where there is none yet.
            platform: the one that programs are compiled for, if none is named.
            views: those that the subject can have; None: all.
        """
        platform = platform or target_platform()
        takes, known = (subject, None) if isinstance(subject, type) else (type(subject), subject)
        missing = ""
        for each in self.implementations:
            if each.takes is not takes or not each.runs_on(platform):
                continue
            if views is not None and not set(each.views) <= set(views):
                continue
            why = each.why(known, platform)
            if why is not None and each.obstacle():
                missing += f"{each.name} kernels not built, "
            elif why is not None:
                return each.name, missing + why
        raise ValueError(f"{self.name} has no implementation for {WORDS[takes]} on {platform}")

    def views(self, name: str, takes: type = SemanticGraph) -> tuple[str, ...]:
        """The views of a subject that an implementation reads. Raises as `find`."""
        return self.find(name, takes).views


def fused_on_cpu(subject: Any, platform: str) -> str | None:
    """Why the kernels of the CPU are taken there: always."""
    return f"fused CPU kernel, {native.instruction_set()}" if native.available() else "fused CPU kernel"


def density_from(least: float) -> Callable[[SemanticGraph, str], str | None]:
    """Why a dense product is taken: the graph's density is that at least, and int32 indexes the product."""

    def why(graph: SemanticGraph, platform: str) -> str | None:
        if graph.density < least or graph.num_targets * graph.num_sources >= 2**31:
            return None
        return f"{graph.density:.0%} dense on {platform}"

    return why


def compiled_by_xla(subject: SemanticGraph | SparseFeatures | None, platform: str) -> str:
    """Why the reference is taken: nothing else is."""
    if subject is None:
        return f"XLA on {platform}"
    digits = 2 if isinstance(subject, SemanticGraph) else 1
    return f"XLA on {platform}, {subject.density:.{digits}%} dense"


def without_scatters(subject: Any, platform: str) -> str | None:
    """Why loops over degree buckets are taken: on GPUs alone."""
    return "no scatters" if platform in GPUS else None


def fused_on_gpu(subject: Any, platform: str) -> str | None:
    """Why the fused kernels of a GPU are taken: on an H200 they were the quicker ones (docs/gpu.md)."""
    return "one fused walk over the edges, measured on an H200"


def not_by_itself(subject: Any, platform: str) -> None:
    """`auto` does not take it: it has not been measured."""


def without_gpu_library() -> str:
    """Why the kernels of a GPU cannot be used here; empty where they can."""
    return "" if cuda.available() else cuda.HOW_TO_GET_IT


def without_library() -> str:
    """Why the kernels of the CPU cannot be used here; empty where they can."""
    return "" if native.available() else native.HOW_TO_GET_IT


def checkpointed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with nothing kept for its backward pass but its arguments; options are static."""

    def wrapped(*arguments: Any, **options: Any) -> Any:
        return jax.checkpoint(lambda *given: function(*given, **options))(*arguments)

    return wrapped
