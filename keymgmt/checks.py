"""Checks of JSON fields that cross between agents and control plane: strict, and silent about values.

64-bit counters are decimal strings in JSON, since RFC 8785 numbers end at 2**53.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from keymgmt.errors import MessageRefused

SAFE_INT: Final = 2**53 - 1  # the largest integer that canonical JSON carries
Check = Callable[[Any], bool]


def is_str(value: Any) -> bool:
    """A non-empty string of at most 65,536 characters."""
    return isinstance(value, str) and 0 < len(value) <= 65536


def is_count(value: Any) -> bool:
    """An integer from 0 to 2**53 - 1; a boolean is not an integer here."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= SAFE_INT


def is_an(value: Any) -> bool:
    """An association number, 0 to 3 (802.1AE 9.9)."""
    return is_count(value) and value <= 3


def is_u64(value: Any) -> bool:
    """An unsigned 64-bit value as a decimal string without leading zeros."""
    return (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) <= 20
        and (value == "0" or value[0] != "0")
        and int(value) < 2**64
    )


def is_hex(octets: int) -> Check:
    """Return a check for exactly `octets` octets in lower-case hex."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, str) and len(value) == 2 * octets and not set(value) - set("0123456789abcdef")
        )

    return check


def list_of(check: Check, most: int) -> Check:
    """Return a check for a list of at most `most` items."""
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(check, value))


def opt(check: Check) -> Check:
    """Return a check that lets null pass."""
    return lambda value: value is None or check(value)


def object_of(fields: Mapping[str, Check]) -> Check:
    """Return a check for an object of exactly these fields."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and set(value) == set(fields)
            and all(fields[k](v) for k, v in value.items())
        )

    return check


is_sci, is_key_id, is_nonce, is_check = is_hex(8), is_hex(16), is_hex(16), is_hex(16)
is_bool: Check = lambda value: isinstance(value, bool)  # noqa: E731
is_map: Check = lambda value: isinstance(value, dict)  # noqa: E731


def take(doc: Any, fields: Mapping[str, Check], what: str) -> dict[str, Any]:
    """Return `doc` when it is an object of exactly `fields`, each passing its check.

    Raises:
        MessageRefused: naming the field, never its value.
    """
    if not isinstance(doc, dict):
        raise MessageRefused(f"{what}: not a JSON object")
    for name in doc.keys() - fields.keys():
        raise MessageRefused(f"{what}: unknown field {str(name)[:64]!r}")
    for name, check in fields.items():
        if name not in doc:
            raise MessageRefused(f"{what}: field {name!r} is missing")
        if not check(doc[name]):
            raise MessageRefused(f"{what}: field {name!r} has a wrong type or is out of range")
    return dict(doc)


def encode_counters(counters: Mapping[str, int]) -> dict[str, str]:
    """Return counters with 64-bit values as decimal strings."""
    return {name: str(value) for name, value in counters.items()}


def decode_counters(doc: Any) -> dict[str, int]:
    """Read what `encode_counters` wrote. Raises MessageRefused."""
    if not isinstance(doc, dict) or len(doc) > 512:
        raise MessageRefused("counters: not an object of at most 512 names")
    if not all(isinstance(name, str) and is_u64(value) for name, value in doc.items()):
        raise MessageRefused("counters: a value is not a decimal string of 64 bits")
    return {name: int(value) for name, value in doc.items()}
