"""An array that grows at its end in place, for columns whose length is known only when the last row is read."""

import numpy as np

_FIRST = 1 << 12


class Growing:
    """Values of one type, one dimension. `finish` gives the array itself; nothing may be added afterwards."""

    def __init__(self, dtype: type) -> None:
        self._array: np.ndarray = np.empty(_FIRST, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, values: np.ndarray) -> None:
        end = self._length + len(values)
        if end > len(self._array):
            # The system moves the pages of large blocks, so that the old and the new array never both take memory.
            self._array.resize(max(end, len(self._array) * 3 // 2), refcheck=False)
        self._array[self._length : end] = values
        self._length = end

    def finish(self) -> np.ndarray:
        self._array.resize(self._length, refcheck=False)
        return self._array
