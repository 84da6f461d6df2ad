"""`info.dat` of HGB: what its node types, relations and classes are called, in the two layouts that occur.

ACM, DBLP and IMDB hold JSON, Freebase and PubMed tables under `TYPE MEANING`, `LINK START END MEANING` and
`TYPE CLASS MEANING`. The file only gives names, so one that is missing or unreadable leaves generic names.
"""

import dataclasses
import json
import logging
from typing import Any

from jhgnn.data.names import plain

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class HgbInfo:
    """Names by the numbers of `node.dat` and `link.dat`; a number without a name is absent."""

    node_types: dict[int, str] = dataclasses.field(default_factory=dict)
    links: dict[int, tuple[int, int, str]] = dataclasses.field(default_factory=dict)  # start, end, meaning
    num_classes: dict[int, int] = dataclasses.field(default_factory=dict)  # by node type

    def type_name(self, number: int) -> str:
        return self.node_types.get(number, f"type{number}")

    def relation_name(self, number: int, source: str, target: str) -> str:
        """`paper-cite-paper` gives `cite`, `paper-author` stays, and nothing gives `source-target`."""
        meaning = self.links[number][2] if number in self.links else ""
        meaning = plain(meaning.lower().replace("->", "-")) if meaning else f"{source}-{target}"
        parts = meaning.split("-")
        return parts[1] if len(parts) == 3 and parts[1] else meaning


def parse_info(data: bytes, where: str) -> HgbInfo:
    """Reads what can be read; says in the log what cannot."""
    text = data.decode(errors="replace")
    try:
        return _from_json(json.loads(text)) if text.lstrip().startswith("{") else _from_tables(text)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        _log.warning("%s cannot be read (%s): node types and relations get generic names", where, error)
        return HgbInfo()


def _from_json(info: dict[str, Any]) -> HgbInfo:
    names = info.get("node.dat", {}).get("node type", {})
    links = info.get("link.dat", {}).get("link type", {})
    classes = info.get("label.dat", {}).get("node type", {})
    return HgbInfo(
        {int(number): plain(name.lower()) for number, name in names.items()},
        {
            int(number): (int(link["start"]), int(link["end"]), str(link.get("meaning", "")))
            for number, link in links.items()
        },
        {int(number): len(meanings) for number, meanings in classes.items() if isinstance(meanings, dict)},
    )


def _from_tables(text: str) -> HgbInfo:
    info, table = HgbInfo(), ""
    for line in text.splitlines():
        fields = line.split()
        header = " ".join(fields).upper()
        if not fields:
            table = ""
        elif header in ("TYPE MEANING", "LINK START END MEANING", "TYPE CLASS MEANING"):
            table = header
        elif table == "TYPE MEANING":
            info.node_types[int(fields[0])] = plain(" ".join(fields[1:]).lower())
        elif table == "LINK START END MEANING":
            info.links[int(fields[0])] = (int(fields[1]), int(fields[2]), " ".join(fields[3:]))
        elif table == "TYPE CLASS MEANING":
            number = int(fields[0])
            info.num_classes[number] = max(info.num_classes.get(number, 0), int(fields[1]) + 1)
    return info
