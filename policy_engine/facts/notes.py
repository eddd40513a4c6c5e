"""What facts could not read or resolve, collected while they are drawn, and readers that note a wrong type.

Null where a list or map is due is empty, as the API server reads it; another type there is `unreadable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from policy_engine.facts.lookup import Lookup
from policy_engine.limits import LIMITS

_EMPTY: Final[Mapping[str, Any]] = {}


def words(table: str) -> frozenset[str]:
    """The words of a table that is written for reading."""
    return frozenset(table.split())


class Notes:
    """What could not be read or resolved, collected while facts are drawn."""

    __slots__ = ("images", "lookup", "namespace", "strict", "unreadable", "unresolved")

    def __init__(self, lookup: Lookup, namespace: str) -> None:
        self.lookup = lookup
        self.namespace = namespace
        self.unreadable: list[dict[str, str]] = []
        self.unresolved: list[dict[str, str]] = []
        self.images: set[str] = set()
        self.strict = False  # the schema of what is read is known: what it requires must be there

    def bad(self, path: str, why: str) -> None:
        """Something is there that cannot be read. One is enough to refuse, so only so many are kept."""
        if len(self.unreadable) < LIMITS.notes_kept:
            self.unreadable.append({"path": path[: LIMITS.path_chars], "why": why})

    def missing(self, what: str, name: str, path: str) -> None:
        """Something is named that the lookup does not know."""
        if len(self.unresolved) < LIMITS.notes_kept:
            self.unresolved.append({"what": what, "name": name, "path": path})


def mapping(value: Any, path: str, notes: Notes) -> Mapping[str, Any]:
    """The value as a map; null is empty, another type is empty and noted."""
    if type(value) is dict:
        return value
    if value is None:
        return _EMPTY
    notes.bad(path, "a map is due here")
    return _EMPTY


def items(value: Any, path: str, notes: Notes) -> list[Any]:
    """The value as a list; null is empty, another type is empty and noted."""
    if type(value) is list:
        return value
    if value is not None:
        notes.bad(path, "a list is due here")
    return []


def text(value: Any) -> str:
    """The value if it is a string, else ""."""
    return value if type(value) is str else ""
