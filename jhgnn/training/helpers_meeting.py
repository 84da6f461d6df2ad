"""Where the helpers of several processes meet: on the training threads, in one small exchange whose order all have.

A helper's thread never exchanges anything itself: processes whose collectives come in different orders fail. So every
process waits for its own helper, and then says whether it failed, and in how many calls its rows come.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import jax
import numpy as np

from jhgnn.sampling.loader import LoaderError
from jhgnn.training.mesh import DATA, SHARDED, DeviceMesh, local

Found = TypeVar("Found")


class HelpersMeeting:
    """The helpers of the processes of a mesh."""

    def __init__(self, mesh: DeviceMesh) -> None:
        """Compiles the exchange; there is none where there is one process."""
        self._mesh, self._most = mesh, None
        if jax.process_count() > 1:
            own = np.zeros((len(mesh.local_shards), 2), np.int32)
            self._most = mesh.compile(lambda own: jax.lax.pmax(own, DATA), (own,), (SHARDED,))

    def result(self, own: Future[Found], calls_of: Callable[[Found], int] = lambda _: 0) -> tuple[Found, int]:
        """What this process's helper made, once all have made theirs; all processes call it on their training threads.

        Args:
            own: of this process's helper.
            calls_of: of what it made, a number that all processes need the largest of.

        Returns:
            what the helper made, and that number.

        Raises:
            LoaderError: a helper failed, in any process; in its own one the cause is what it raised.
        """
        error: Exception | None = None
        calls = failed = 0
        try:
            found = own.result()
            calls = calls_of(found)
        except Exception as raised:  # the other processes wait
            error, failed = raised, jax.process_index() + 1
        if self._most is not None:
            about = np.tile(np.array([failed, calls], np.int32), (len(self._mesh.local_shards), 1))
            most = jax.block_until_ready(self._most(self._mesh.place(about, SHARDED)))
            failed, calls = map(int, np.asarray(local(most)))
        if error is not None:
            why = " ".join(str(error).split())
            raise LoaderError(f"rows of hot vertices could not be computed: {type(error).__name__}: {why}") from error
        if failed:
            raise LoaderError(f"rows of hot vertices could not be computed by process {failed - 1}, which says why")
        return found, calls
