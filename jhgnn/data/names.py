"""Names of node types and relations from what files call them."""

import re
from collections.abc import Collection

_FORBIDDEN = re.compile(r"[\s/:,\\]+")


def plain(name: str) -> str:
    """The name with everything that a schema forbids turned into `_`; `type` where nothing is left."""
    return _FORBIDDEN.sub("_", name.strip()).strip("_") or "type"


def unused(name: str, taken: Collection[str]) -> str:
    """The name, or the first of `name_2`, `name_3`, ... that is not taken."""
    if name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def local_name(iri: str) -> str:
    """The last part of an IRI: after `#`, or after the last `/`."""
    bare = iri.strip("<>").rstrip("/#")
    return plain(re.split(r"[#/]", bare)[-1])
