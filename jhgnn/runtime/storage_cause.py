"""Why a file operation failed, whichever library told of it."""

import errno
import os
import re

from jhgnn.errors import StorageError

_NAMED = {os.strerror(number): number for number in errno.errorcode}


def cause(error: BaseException) -> str | None:
    """The reason in the system's words, such as `No space left on device`, or nothing where it was no file operation.

    Looks through what an error came from, and into the texts of libraries that turn a failed call into a text, as
    TensorStore does.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, StorageError):
            return str(each)
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
        text = str(each)
        for reason in _NAMED:
            if re.search(rf"\b{re.escape(reason)}\b", text):
                return reason
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        left += [each.__context__, each.__cause__]
    return None
