"""Why a file operation failed, whichever library told of it."""

import errno
import os
import re

from jhgnn.errors import StorageError

OF_STORAGE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.EFBIG, errno.EMFILE, errno.ENFILE}
    | {errno.ENODEV, errno.ENXIO, errno.EBADF, errno.ENOLCK}
)
"""Numbers of errors that no other argument of a command would mend."""

_OF_NAMES = frozenset({errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY})
_TOLD = frozenset(os.strerror(number) for number in OF_STORAGE | _OF_NAMES)
"""What says in a text that a file operation failed; the words for a connection or for memory are not among them."""


_SHORT = re.compile(r"^\d+ requested and \d+ written$")
"""NumPy's whole word for a write that failed, whose errno it has lost."""


def of_storage(error: BaseException) -> bool:
    """Whether an error was raised for a file operation that no other argument would mend, such as an input that the
    disk does not give."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, StorageError) or _is_short(each):
            return True
        if isinstance(each, OSError) and each.errno in OF_STORAGE:
            return True
        each = each.__cause__ or each.__context__
    return False


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
        if isinstance(each, OSError) and each.strerror and not isinstance(each, ConnectionError):
            return each.strerror
        if _is_short(each):
            return "a write fell short, as on a full disk"
        text = str(each)
        for reason in _TOLD:
            if re.search(rf"\b{re.escape(reason)}\b", text):
                return reason
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        left += [each.__context__, each.__cause__]
    return None


def _is_short(error: BaseException) -> bool:
    return isinstance(error, OSError) and _SHORT.match(str(error)) is not None
