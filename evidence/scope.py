"""Scopes: whose tree a record stands in, and what a tree's head is.

A scope is a tenant, or `estate` for everything shared. Its id is random, so that neither the map of heads
nor a foreign package tells a tenant's name (ledger.md section 3).
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from evidence.errors import RecordRefused

ESTATE = "estate"
EMPTY_ROOT = hashlib.sha256(b"").digest()  # RFC 6962 section 2.1: the root of a tree without leaves
_ID_DIGITS = 32  # hex digits of 16 random octets


@dataclass(frozen=True, slots=True)
class Head:
    """State of one RFC 6962 tree: number of leaves and root (32 octets)."""

    size: int
    root: bytes


EMPTY_HEAD = Head(0, EMPTY_ROOT)


def new_scope_id() -> str:
    """Return a fresh scope id: 16 random octets in hex."""
    return secrets.token_hex(_ID_DIGITS // 2)


def check_scope_id(scope_id: object) -> str:
    """Return the id when it has the form of one.

    Args:
        scope_id: Candidate.

    Returns:
        The same string.

    Raises:
        RecordRefused: Not 32 lower-case hex digits.
    """
    if (
        type(scope_id) is not str
        or len(scope_id) != _ID_DIGITS
        or not set(scope_id) <= set("0123456789abcdef")
    ):
        raise RecordRefused("a scope id is 32 lower-case hex digits")
    return scope_id
