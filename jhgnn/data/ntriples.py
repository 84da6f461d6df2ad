"""N-Triples (W3C, 2014): one `subject predicate object .` a line, comments and empty lines between."""

import re
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from jhgnn.data.progress import Advance
from jhgnn.errors import InputError

REPORT_BYTES = 1 << 20
_IRI = rb"<[^<>\"{}|^`\x00-\x20]*>"
_BLANK = rb"_:[^\s<>\"]+?"
_LITERAL = rb'"(?:[^"\\\n\r]|\\.)*"(?:@[A-Za-z][A-Za-z0-9-]*|\^\^' + _IRI + rb")?"
_TRIPLE = re.compile(
    rb"\s*(%b|%b)\s*(%b)\s*(%b|%b|%b)\s*\.\s*(?:#.*)?" % (_IRI, _BLANK, _IRI, _IRI, _BLANK, _LITERAL), re.DOTALL
)
# Real dumps hold IRIs with spaces or quotes; they are unambiguous all the same.
_LENIENT = re.compile(rb"\s*(<[^>]*>|_:\S+)\s+(<[^>]*>)\s+(<[^>]*>|_:\S+|\".*\"\S*)\s*\.\s*")
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})")


class Triples:
    """Distinct triples by number.

    Attributes:
        terms: subjects and objects as written, IRIs in `<>` and literals with their type or language.
        predicates: likewise.
        subjects, relations, objects: int64 `[num_triples]` into the two; repeated triples are dropped.
    """

    def __init__(self, terms: list[str], predicates: list[str], triples: np.ndarray) -> None:
        self.terms, self.predicates = terms, predicates
        self.subjects, self.relations, self.objects = triples.T


def read_ntriples(stream: BinaryIO, where: str, advance: Advance) -> Triples:
    """Reads a whole file.

    Raises:
        InputError: a line is no triple; its row is named. There is no triple at all.
    """
    terms: dict[bytes, int] = {}
    predicates: dict[bytes, int] = {}
    numbers: list[int] = []
    number_of: Callable[[bytes], int] = lambda term: terms.setdefault(term, len(terms))  # noqa: E731
    unreported = 0
    for row, line in enumerate(stream, start=1):
        unreported += len(line)
        if unreported > REPORT_BYTES:  # a progress bar costs more than a triple
            advance(unreported)
            unreported = 0
        match = _TRIPLE.fullmatch(line)
        if match is None:
            bare = line.strip()
            if not bare or bare.startswith(b"#"):
                continue
            match = _LENIENT.fullmatch(line)
            if match is None:
                shown = bare[:60].decode(errors="replace")
                raise InputError(f"{where} row {row}: {shown!r} is not a triple; need 'subject predicate object .'")
        subject, predicate, object_ = match.groups()
        numbers += (number_of(subject), predicates.setdefault(predicate, len(predicates)), number_of(object_))
    if not numbers:
        raise InputError(f"{where} has no triples")
    triples = np.unique(np.array(numbers, np.int64).reshape(-1, 3), axis=0)
    return Triples([_text(term) for term in terms], [_text(predicate) for predicate in predicates], triples)


def _text(term: bytes) -> str:
    text = term.decode(errors="replace")
    if "\\u" not in text and "\\U" not in text:
        return text
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    point = int(match[1] or match[2], 16)
    return chr(point) if point < 0x110000 else "\ufffd"
