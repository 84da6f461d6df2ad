"""The exceptions that command lines print as one line: wrong input ends them with 2, files that fail with 3."""


class InputError(ValueError):
    """Input is wrong in a way that its author can mend.

    The message is a single line: what was wrong, with the value; where (file, row, key); what would be right.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class StorageError(OSError):
    """A file could not be written, synced or read while a command ran: no space, an I/O error, a folder that went.

    The message is a single line: which file and why; what is lost and what is left; how to go on.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
