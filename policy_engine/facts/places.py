"""Where something stands in an object: its path, and a name that outlives another order of a list."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import Any, Final

from policy_engine.limits import LIMITS

_KEY_CHARS: Final = 128  # characters of one key shown in a path
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?", re.ASCII)
# Where a node stands: (place of its parent, key or index). Text is made of it only when something is found:
# a hostile key is a megabyte long and has a hundred thousand children.
Place = tuple[Any, str | int]


def place_text(place: Any) -> str:
    """The path of a place, its beginning cut when it is endless."""
    parts: list[str] = []
    length = 0
    while type(place) is tuple and length < LIMITS.path_chars:
        place, key = place
        part = f"[{key}]" if type(key) is int else f".{_shown(str(key))}"
        parts.append(part)
        length += len(part)
    return _joined(place, parts)


class Names:
    """Paths with the names of list items in the place of their numbers, where they have unique ones.

    `spec.replicatedJobs[workers].template` stays the same when another job is put before it; an item without
    a name of its own is `[#0]`.
    """

    __slots__ = ("_counts", "_long", "root")

    def __init__(self, root: Any) -> None:
        """`root`: the object, which must not change meanwhile."""
        self.root = root
        self._long: dict[str, str] = {}  # keys that are too long to stand in a name
        self._counts: dict[int, Counter[str]] = {}  # per list, by identity: names and how often they stand

    def of(self, place: Any) -> str:
        """The name of a place of the object, its beginning cut when it is endless."""
        keys: list[str | int] = []
        while type(place) is tuple:
            place, key = place
            keys.append(key)
        parts: list[str] = []
        node = self.root
        for key in reversed(keys):
            parts.append(f"[{self._item(node, key)}]" if type(key) is int else f".{self._key(str(key))}")
            node = node[key]
        length = 0
        for number, part in enumerate(reversed(parts), start=1):
            length += len(part)
            if length >= LIMITS.path_chars and number < len(parts):
                return _joined((), parts[: -number - 1 : -1])
        return _joined(place, parts[::-1])

    def _key(self, key: str) -> str:
        """A key; a long one by its beginning and its hash, for its neighbour may begin in the same way."""
        if len(key) <= _KEY_CHARS:
            return _shown(key)
        name = self._long.get(key)
        if name is None:
            digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
            name = self._long[key] = f"{_shown(key)}~{digest[:16]}"
        return name

    def _item(self, items: list[Any], index: int) -> str:
        """The name of a list item if no other has it, else its number."""
        name = _name(items[index])
        if not name:
            return f"#{index}"
        counts = self._counts.get(id(items))
        if counts is None:
            counts = self._counts[id(items)] = Counter(map(_name, items))
        return name if counts[name] == 1 else f"#{index}"


def _shown(key: str) -> str:
    """A key as it may stand in a text: what no terminal should be told is escaped."""
    cut = key[:_KEY_CHARS]
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def _name(item: Any) -> str:
    name = item.get("name") if type(item) is dict else None
    return name if type(name) is str and _NAME.fullmatch(name) else ""


def _joined(prefix: Any, backwards: list[str]) -> str:
    """The parts in order, behind the prefix; a place that was not followed to its root is cut."""
    path = "".join(reversed(backwards))
    return prefix + path.removeprefix(".") if type(prefix) is str else f"...{path}"
