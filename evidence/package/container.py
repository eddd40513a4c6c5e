"""The container: a zip that has one encoding. Stored, fixed headers, sorted names, nothing between.

Decides what the octets of a package are, for given members; reading means parsing strictly and building
again: whatever differs by one bit (a flag, a date, a comment, a gap, a trailing octet, a second member of
the same name) is refused. Nothing is ever decompressed. APPNOTE.TXT 6.3.10 sections 4.3.7, 4.3.12, 4.3.16.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping

from evidence.errors import ExportRefused, PackageInvalid
from evidence.limits import LIMITS

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_VERSION, _MADE_BY = 20, (3 << 8) | 20  # 2.0; made on a system with Unix modes
_TIME, _DATE = 0, 0x21  # 1980-01-01 00:00:00, the earliest a zip can say
_MODE = 0o100644 << 16
_FETCH = "fetch the file again, and compare its SHA-256 with the one that the export printed"
_PART = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_-])?"
_NAME = re.compile(rf"{_PART}(/{_PART})*")


def check_name(name: str) -> bool:
    """Whether a member may have this name: plain relative paths, no dot segments, at most 128 octets."""
    return len(name) <= 128 and _NAME.fullmatch(name) is not None


def _apart(names: Iterable[str]) -> bool:
    """Whether names unpack to files apart: none differs by case alone, none is the folder of another."""
    folded = [name.casefold() for name in names]
    parents = {name[:at] for name in folded for at, ch in enumerate(name) if ch == "/"}
    return len(set(folded)) == len(folded) and parents.isdisjoint(folded)


def write(members: Mapping[str, bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the container's octets in order.

    Args:
        members: content by name.

    Raises:
        ExportRefused: a name or the size is out of bounds.
    """
    names = sorted(members)
    if not all(map(check_name, names)) or not _apart(names) or len(names) > LIMITS.package_members:
        raise ExportRefused("a member's name or the number of members is out of bounds")
    directory, offset = [], 0
    for name in names:
        data, encoded = members[name], name.encode("ascii")
        crc, size = zlib.crc32(data), len(data)
        if offset + size > LIMITS.package_bytes - (1 << 24):
            raise ExportRefused("the package grows over its limit", fix="choose a shorter window")
        common = (_VERSION, 0, 0, _TIME, _DATE, crc, size, size, len(encoded), 0)
        yield _LOCAL.pack(b"PK\x03\x04", *common) + encoded
        yield data
        directory.append(_CENTRAL.pack(b"PK\x01\x02", _MADE_BY, *common, 0, 0, 0, _MODE, offset) + encoded)
        offset += _LOCAL.size + len(encoded) + size
    central = b"".join(directory)
    yield central
    yield _END.pack(b"PK\x05\x06", 0, 0, len(names), len(names), len(central), offset, 0)


def read(octets: bytes | memoryview, step: str, package: str) -> dict[str, memoryview]:
    """Take a container apart, strictly.

    Args:
        octets: whole file; a memory map does.
        step: verification step, for the error.
        package: file name, for the error.

    Returns:
        Members by name, as views.

    Raises:
        PackageInvalid: it is not, octet for octet, what `write` gives for its members.
    """
    view = memoryview(octets)
    if len(view) > LIMITS.package_bytes:
        raise PackageInvalid(step, package, "larger than any package")
    if bytes(view[:4]) not in (b"PK\x03\x04", b"PK\x05\x06"):
        raise PackageInvalid(step, package, "no evidence package: it does not begin as a zip", fix=_FETCH)
    members: dict[str, memoryview] = {}
    last, at = "", 0
    while bytes(view[at : at + 4]) == b"PK\x03\x04":
        name, data, at = _member(view, at, step, package)
        if name <= last or len(members) >= LIMITS.package_members:
            raise PackageInvalid(step, package, f"member {name!r} is out of order, a repeat, or too many")
        members[name], last = data, name
    if not _apart(members):
        raise PackageInvalid(step, package, "two members would unpack over each other")
    at = 0
    for part in write(members):
        if view[at : at + len(part)] != part:
            raise PackageInvalid(step, package, f"not the one encoding of its members, near octet {at}")
        at += len(part)
    if at != len(view):
        raise PackageInvalid(step, package, "octets after its end")
    return members


def _member(view: memoryview, at: int, step: str, package: str) -> tuple[str, memoryview, int]:
    try:
        fields = _LOCAL.unpack_from(view, at)
    except struct.error:
        raise PackageInvalid(step, package, f"cut off at octet {at}", fix=_FETCH) from None
    method, size, stored, name_octets, extra = fields[3], fields[7], fields[8], fields[9], fields[10]
    begin = at + _LOCAL.size
    name = bytes(view[begin : begin + name_octets]).decode("latin-1")
    if not check_name(name):
        raise PackageInvalid(step, package, f"a member's name is not allowed, at octet {at}")
    if method != 0 or size != stored or extra != 0:
        raise PackageInvalid(step, name, "compressed or with extra fields; packages are stored plainly")
    end = begin + name_octets + size
    if end > len(view):
        raise PackageInvalid(step, name, "cut off", fix=_FETCH)
    return name, view[end - size : end], end
