"""Pages with a part that a command writes, between two lines that mark it."""

from pathlib import Path

from jhgnn.runtime.files import write_text


def write_between(page: Path, begin: str, end: str, body: str) -> None:
    """Replaces what stands between the first line `begin` and the `end` after it; the rest is written by hand.

    Raises:
        ValueError: the page lacks one of them.
    """
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page}: lacks the lines {begin} and {end}")
    write_text(page, f"{before}{begin}\n{body}\n{end}{after}")
