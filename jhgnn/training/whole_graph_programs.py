"""`WholeGraph`, compiled, and the batches of its training."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.sampling.epoch import Cursor
from jhgnn.tasks.task import Scores
from jhgnn.training.diagnosis import explain_loss
from jhgnn.training.execution import Batch, Feed, Programs
from jhgnn.training.state import Params, TrainState
from jhgnn.training.update import UpdateReport

if TYPE_CHECKING:
    from jhgnn.training.whole_graph import WholeGraph


class WholeGraphPrograms(Programs):
    """`WholeGraph`, compiled: one program for updates and one for evaluation."""

    execution: "WholeGraph"

    @property
    def evaluated_each_epoch(self) -> tuple[str, ...]:
        """All splits of a task that is `by_example`, since one program counts them together."""
        task = self.execution.task
        return ("train", "val", "test") if task.by_example else task.evaluated_each_epoch

    def place(self, tree: Any) -> Any:
        return self.execution.joined.join(tree)

    def whole(self, tree: Any) -> Any:
        return super().whole(self.execution.joined.split(tree))

    def shown(self, params: Any) -> Params:
        return self.execution.joined.split(params)

    def feed(self, seed: int) -> "WholeGraphFeed":
        return WholeGraphFeed(self.execution, seed)

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, UpdateReport]:
        return self.step(state, *batch.arguments)

    def evaluate(self, params: Params, splits: Sequence[str], seed: int) -> Scores:
        found = self.evaluations[0](params, *self.execution.evaluation_arguments)
        return self.execution.task.scores(found, splits)

    def explain(self, state: TrainState, batch: Batch, where: str) -> str:
        program, (_, ids, _) = self.execution.update_program, batch.arguments
        resident, state = self.execution.resident, self.execution.joined.split(state)

        def objective(params: Params) -> jax.Array:
            return program.mean_loss(params, state, resident, ids)[0]

        suspects = {"params": state.params, "inputs": resident.inputs}
        return explain_loss([(objective, state.params)], suspects, where)

    def inference_arguments(self, params: Params, batch: Batch) -> tuple[Any, ...]:
        return params, self.execution.inputs


class WholeGraphFeed(Feed):
    """Batches of examples; where a batch holds all of them, one array, placed once."""

    def __init__(self, execution: "WholeGraph", seed: int) -> None:
        self._execution, self._batches = execution, execution.batches(seed)

    def iterate(self, start: Cursor, stop: Cursor | None = None) -> Generator[Batch, None, None]:
        batches, cursor, epoch, order = self._batches, start, -1, np.zeros(0, np.int64)
        only = None
        while stop is None or cursor < stop:
            if only is None or batches.shuffle:
                if epoch != cursor.epoch:
                    epoch, order = cursor.epoch, batches.order(cursor.epoch)
                only = self._execution.step_arguments(jnp.asarray(batches.batch(order, cursor.step)))
            following = batches.following(cursor)
            yield Batch(cursor, following, 0, only)
            cursor = following
