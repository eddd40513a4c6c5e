"""Slurm host lists: `omni[1,10-12]`, `a[01-03]b[1-2],c` expanded, bounded, sentinels known.

Own small parser of the grammar that `scontrol show hostnames` accepts: items split by commas outside
brackets; each bracket holds numbers and ranges, a range keeps the width of its first number.
"""

from __future__ import annotations

import re

from evidence.limits import LIMITS
from evidence.sources.base import Unparsed

#: What sacct writes where no node was ever given.
SENTINELS = frozenset({"", "None assigned", "(null)", "None", "Unknown", "N/A"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST = 253  # characters of a host name in DNS
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(text: str) -> list[str]:
    """All host names of a list, in order.

    Raises:
        Unparsed: not a host list, or more names than the limit.
    """
    if text in SENTINELS:
        return []
    hosts: list[str] = []
    for item in _items(text):
        hosts += _expand_item(item, LIMITS.hostlist_hosts - len(hosts))
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise Unparsed("node list is out of form")
    return hosts


def _items(text: str) -> list[str]:
    items, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        depth += (ch == "[") - (ch == "]")
        if depth not in (0, 1):
            raise Unparsed("node list has unbalanced brackets")
        if ch == "," and depth == 0:
            items.append(text[start:i])
            start = i + 1
    if depth:
        raise Unparsed("node list has unbalanced brackets")
    return [*items, text[start:]]


def _expand_item(item: str, room: int) -> list[str]:
    """Cross product of the brackets of one item, left to right."""
    names = [""]
    for i, part in enumerate(re.split(r"\[([^\]]*)\]", item)):
        pieces = [part] if i % 2 == 0 else _numbers(part, room)
        if len(names) * len(pieces) > room:
            raise Unparsed("node list names too many hosts")
        if len(names[0]) + len(pieces[0]) > _LONGEST:
            raise Unparsed("node list names a host that is too long")
        names = [n + p for n in names for p in pieces]
    return names


def _numbers(body: str, room: int) -> list[str]:
    out: list[str] = []
    for part in body.split(","):
        m = _RANGE.fullmatch(part)
        if m is None:
            raise Unparsed("node list has a range that is out of form")
        first, last = int(m[1]), int(m[2] or m[1])
        if last < first or len(out) + last - first >= room:
            raise Unparsed("node list has a range that is out of bounds")
        out += [str(n).zfill(len(m[1])) for n in range(first, last + 1)]
    return out
