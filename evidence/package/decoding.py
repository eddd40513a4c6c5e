"""Strict decoding of what stands in a package: one reading, exact fields, exact types, or `Malformed`.

Everything JSON is canonical, so it has one reading; nothing is repaired, no field is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evidence.canonical import decode_canonical, parse_u64
from evidence.errors import NotCanonical


class Malformed(ValueError):  # noqa: N818 -- a reason; the caller adds step and member
    """Decoding failed; the text is fit for a report."""


def shape(
    value: object, fields: Mapping[str, type | tuple[type, ...]], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """The object itself, when it has exactly these fields of these types.

    Raises:
        Malformed: anything else.
    """
    if type(value) is not dict:
        raise Malformed("not an object")
    missing = [f for f in fields if f not in value and f not in optional]
    unknown = [f for f in value if f not in fields]
    if missing or unknown:
        raise Malformed(f"missing or unknown fields: {', '.join(missing + [u[:64] for u in unknown])}")
    for name, kind in fields.items():
        allowed = kind if isinstance(kind, tuple) else (kind,)
        if name in value and type(value[name]) not in allowed:
            raise Malformed(f"field {name} has another type")
    return value


def hex_bytes(text: object, octets: int) -> bytes:
    """Decode lower-case hex of a fixed length.

    Raises:
        Malformed: anything else.
    """
    if type(text) is not str or len(text) != 2 * octets or not set(text) <= set("0123456789abcdef"):
        raise Malformed(f"not {octets} octets in hex")
    return bytes.fromhex(text)


def number(text: object) -> int:
    """Decode a decimal string.

    Raises:
        Malformed: anything else.
    """
    try:
        return parse_u64(text)
    except NotCanonical as why:
        raise Malformed(str(why)) from None


def load(data: bytes | memoryview) -> Any:
    """Decode canonical JSON.

    Raises:
        Malformed: not canonical.
    """
    try:
        return decode_canonical(bytes(data))
    except NotCanonical as why:
        raise Malformed(str(why)) from None
