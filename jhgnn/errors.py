"""The one exception for input that a user can mend; command lines print it as one line and exit with 2."""


class InputError(ValueError):
    """Input is wrong in a way that its author can mend.

    The message is a single line: what was wrong, with the value; where (file, row, key); what would be right.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
