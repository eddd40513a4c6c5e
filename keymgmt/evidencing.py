"""Which records a step of a rotation leaves behind. Pure: two states in, drafts out.

Records hold digests and public ids only: never a key, never a ciphertext (rotation.md section 1.4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from evidence.records import Draft
from keymgmt.rotation import Passed, Rotation

SOURCE: Final = "conductor"
SCOPE: Final = "estate"
LIVE_STATEMENT: Final = "destroyed in the live store; final once snapshots older than that have expired"


def drafts(before: Rotation | None, after: Rotation, *, token: int, epoch: int) -> list[Draft]:
    """One draft per step that was left, one for a destruction, one for the end."""
    seen = len(before.trail) if before is not None else 0
    found = [_step(after, passed, token, epoch) for passed in after.trail[seen:]]
    gone_before = before is not None and before.memo.get("destroyed")
    if after.memo.get("proof") and not gone_before:
        found.append(_destroyed(after, epoch))
    if after.end is not None and (before is None or before.end is None):
        found.append(_end(after, epoch))
    return found


def _step(state: Rotation, passed: Passed, token: int, epoch: int) -> Draft:
    memo = state.memo
    public: dict[str, Any] = {
        "link": state.link,
        "rotation": state.rotation,
        "step": passed.step,
        "kind": state.kind,
        "outcome": passed.to,
        "an": memo.get("an"),
        "key_ids": memo.get("key_ids"),
        "key_version": memo.get("version"),
        "epoch": epoch,
        "token": token,
        "elapsed_ms": (passed.left_ns - passed.entered_ns) // 1_000_000,
        "detail": passed.why,
        "ciphertext_digest": ciphertext_digest(memo),
    }
    return _draft("rotation_step", public, passed.left_ns)


def ciphertext_digest(memo: Mapping[str, Any]) -> str | None:
    """SHA-256 of the wrapped key while the journal still holds it: the only trace evidence keeps."""
    text = memo.get("ciphertext")
    return None if text is None else hashlib.sha256(str(text).encode()).hexdigest()


def _destroyed(state: Rotation, epoch: int) -> Draft:
    proof = state.memo["proof"]
    public = {
        "link": state.link,
        "rotation": state.rotation,
        "key_version": proof["version"],
        "epoch": epoch,
        "read_back": {k: proof[k] for k in ("min_available_version", "latest_version")},
        "statement": LIVE_STATEMENT,
    }
    return _draft("key_destroyed", public, state.entered_ns)


def _end(state: Rotation, epoch: int) -> Draft:
    last = state.trail[-1]
    public = {
        "link": state.link,
        "rotation": state.rotation,
        "end": state.end,
        "why": state.why or state.reason,
        "old_key_ids": old_key_ids(state),
        "new_key_ids": state.memo.get("key_ids"),
        "elapsed_ms": (last.left_ns - state.started_ns) // 1_000_000,
        "epoch": epoch,
        "key_version": state.memo.get("version"),
        "steps": [[p.step, p.to, (p.left_ns - p.entered_ns) // 1_000_000] for p in state.trail],
    }
    return _draft("rotation_end", public, last.left_ns)


def old_key_ids(state: Rotation) -> dict[str, str | None]:
    """Per side, the transmit key before this rotation."""
    old = state.memo.get("old") or {}
    return {side: (old[side]["key_id"] if old.get(side) else None) for side in ("a", "b")}


def _draft(kind: str, public: Mapping[str, Any], at_ns: int) -> Draft:
    return Draft(kind, SCOPE, SOURCE, at_ns, {k: v for k, v in public.items() if v is not None})
