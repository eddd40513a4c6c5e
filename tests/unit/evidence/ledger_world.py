"""Drafts and frames of the kind `note`, which the fixture `ledger` declares for tests only."""

from __future__ import annotations

import os

from evidence.records import SALTS_OCTETS, Draft, encode

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
