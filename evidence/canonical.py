"""Canonical bytes: RFC 8785 on the domain that records use, and refusal of all else.

The domain (ledger.md section 2): objects with ASCII keys, arrays, strings without lone surrogates,
integers within 53 bits, booleans, null. Floats, wider integers and every other Python type are refused;
64-bit values travel as decimal strings (`u64`). On this domain sorting keys by code point equals sorting
by UTF-16 unit (RFC 8785 section 3.2.3), so orjson gives the canonical form.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from gc import get_referents
from typing import Any

import orjson

from evidence.errors import NotCanonical

_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_PLAIN = frozenset({str, int, bool, type(None)})
_all_accepted = (_PLAIN | {dict, list, tuple}).issuperset
_dumps = orjson.dumps
U64_MAX = 2**64 - 1
_INT_MAX = 2**53 - 1
_DEPTH_SHOWN = 64  # levels searched for the place of an error


def canonical(value: object) -> bytes:
    """Return the canonical bytes of a value.

    Args:
        value: JSON-shaped value of plain dict, list, tuple, str, int, bool and None.

    Returns:
        UTF-8 bytes as RFC 8785 gives them.

    Raises:
        NotCanonical: The value is outside the domain; the text names the place, never the value.
    """
    try:
        data: bytes = _dumps(value, option=_OPTIONS)
    except (TypeError, ValueError):
        # orjson's text may quote the value: it is dropped on purpose.
        raise _refusal(value) from None
    if type(value) is not str and not _in_domain(value, data.isascii()):
        raise _refusal(value)
    return data


@dataclass(frozen=True, slots=True)
class Encoded:
    """Canonical bytes of a value that was encoded before, to be placed in an object as they are.

    Make one only from what `canonical` returned.
    """

    data: bytes


def canonical_object(fields: Mapping[str, object]) -> bytes:
    """Return the canonical bytes of an object, some of whose values may be `Encoded`.

    Raises:
        NotCanonical: As `canonical` does.
    """
    members = []
    for name in sorted(fields):  # ASCII, so code point order is the order of RFC 8785
        value = fields[name]
        if not name.isascii():
            raise NotCanonical("a key under $ is not an ASCII string")
        members.append(_member(name))
        members.append(value.data if type(value) is Encoded else canonical(value))
    members[0:1] = [members[0][1:]] if members else []
    return b"{" + b"".join(members) + b"}"


@lru_cache(maxsize=256)
def _member(name: str) -> bytes:
    """`,"name":`; names of fields are few."""
    return b"," + _dumps(name) + b":"


def decode_canonical(data: bytes) -> Any:
    """Parse bytes that must already be canonical (so no duplicate keys, one reading only).

    Args:
        data: Bytes as `canonical` made them.

    Returns:
        The value.

    Raises:
        NotCanonical: Not JSON, or JSON in another form.
    """
    try:
        value = orjson.loads(data)
    except (ValueError, RecursionError):
        raise NotCanonical("not JSON") from None
    if canonical(value) != data:
        raise NotCanonical("JSON, but not in canonical form")
    return value


def u64(value: int) -> str:
    """Write a 64-bit value as records do: a decimal string.

    Args:
        value: 0 to 2^64 - 1.

    Returns:
        Decimal digits without leading zeros.

    Raises:
        NotCanonical: Out of range or no integer.
    """
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise NotCanonical("not an unsigned 64-bit integer")
    return str(value)


def parse_u64(text: object) -> int:
    """Read a decimal string strictly.

    Args:
        text: What `u64` wrote.

    Returns:
        The value.

    Raises:
        NotCanonical: Signs, spaces, leading zeros, other digits, or out of range.
    """
    if type(text) is not str or not text.isascii() or not text.isdigit() or len(text) > 20:
        raise NotCanonical("not a decimal string of an unsigned 64-bit integer")
    value = int(text)
    if str(value) != text or value > U64_MAX:
        raise NotCanonical("not a decimal string of an unsigned 64-bit integer")
    return value


def text_or_base64(raw: bytes) -> str | dict[str, str]:
    """Represent foreign octets: text where they are UTF-8, else base64 under a flag.

    Args:
        raw: Any octets.

    Returns:
        The string, or `{"base64": "..."}`.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode("ascii")}


def _in_domain(value: object, ascii_only: bool) -> bool:
    """Tell whether all node types and keys are accepted; orjson has already bounded depth and cycles.

    `ascii_only`: the encoded whole is ASCII, and so is every key. One level of the value at a time: what
    dict, list and tuple refer to is all that they hold (CPython; a test pins it), collected without a loop
    in Python.
    """
    nodes: list[Any] = [value]
    while nodes:
        if not _all_accepted(map(type, nodes)):
            return False
        if not ascii_only and not all("".join(node).isascii() for node in nodes if type(node) is dict):
            return False
        nodes = get_referents(*nodes)
    return True


def _refusal(value: object) -> NotCanonical:
    """Find what is wrong and where, for the text only; values are never quoted."""
    found = _find(value, "$", _DEPTH_SHOWN)
    if found is None:
        found = "an integer is wider than 53 bits, a string holds a lone surrogate, or nesting is too deep"
    return NotCanonical(found, fix="64-bit values and fractions as decimal strings, raw octets as base64")


def _find(value: object, path: str, depth: int) -> str | None:
    if depth == 0:
        return None
    children: list[tuple[str, object]] = []
    if type(value) is dict:
        if not all(type(key) is str and key.isascii() for key in value):
            return f"a key under {path} is not an ASCII string"
        children = [(f"{path}.{key[:64]}", item) for key, item in value.items()]
    elif type(value) is list or type(value) is tuple:
        children = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    elif type(value) not in _PLAIN:
        return f"a {type(value).__name__} at {path} has no canonical form"
    elif type(value) is int and abs(value) > _INT_MAX:
        return f"the integer at {path} is wider than 53 bits"
    elif type(value) is str and any("\ud800" <= char <= "\udfff" for char in value):
        return f"the string at {path} holds a lone surrogate"
    return next((found for name, item in children if (found := _find(item, name, depth - 1))), None)
