"""Reading members of a package while it is verified: bounded, and every fault with its step and place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from evidence.errors import EvidenceError, PackageInvalid
from evidence.limits import LIMITS
from evidence.package.decoding import Malformed

T = TypeVar("T")
Members = Mapping[str, memoryview]


def guard(step: str, member: str, run: Callable[[], T]) -> T:
    """Run a decoder; whatever it raises becomes the one error of this module, what to do about it as well."""
    try:
        return run()
    except PackageInvalid:
        raise
    except EvidenceError as why:
        raise PackageInvalid(step, member, str(why), fix=why.fix) from None
    except Malformed as why:
        raise PackageInvalid(step, member, str(why)) from None


def member(members: Members, step: str, name: str, limit: int = LIMITS.package_json) -> bytes:
    """One member, bounded."""
    if name not in members:
        raise PackageInvalid(step, name, "is missing")
    if len(members[name]) > limit:
        raise PackageInvalid(step, name, f"is larger than {limit} octets")
    return bytes(members[name])


def lines(members: Members, name: str, step: str = "9") -> Iterator[bytes]:
    """Lines of an NDJSON member."""
    octets = member(members, step, name, LIMITS.package_bytes)
    at, line = 0, 0
    while at < len(octets):
        line += 1
        end = octets.find(b"\n", at)
        if end < 0 or end - at > LIMITS.package_line:
            raise PackageInvalid(step, name, "is cut off or too long", record=f"line {line}")
        yield octets[at:end]
        at = end + 1
