"""Drafts and frames of the kind `note`, which the fixture `ledger` declares for tests only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from evidence.checkpoint import VerifierKey
from evidence.records import SALTS_OCTETS, Draft, encode
from evidence.signing import key_history

ORIGIN = "sluicegate.io/ledger/test"


def note(scope: str = "acme", text: str = "x", source: str = "webhook-0") -> Draft:
    return Draft("note", scope, source, 1_000, {"text": text}, {"secret_text": "s"})


def frame_of(scope_id: str, seq: int, text: str = "x", source: str = "webhook-0") -> bytes:
    return encode(
        note(text=text, source=source),
        scope_id=scope_id,
        source_seq=seq,
        boot_id="boot",
        received_time_ns=2_000 + seq,
        salts=os.urandom(SALTS_OCTETS),
    ).frame


def accepted_keys(
    trusted: VerifierKey, changes: Iterable[Mapping[str, Any]], origin: str
) -> list[VerifierKey]:
    """Return all keys of the history through a trusted key, that one first; see `key_history`."""
    keys = key_history(trusted, changes, origin).keys
    return [trusted, *(key for key in keys if key != trusted)]
