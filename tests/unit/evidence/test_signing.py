"""Changes of the signing key: named sequences of changes, and whether a trusted key accepts them."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evidence.checkpoint import LocalSigner, verifier_of
from evidence.errors import KeyHistoryInvalid
from evidence.signing import accepted_keys, key_change_draft, verify_key_change

ORIGIN = "sluicegate.io/ledger/test"


def signer(number: int) -> LocalSigner:
    return LocalSigner("sluicegate", Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


A, B, C, EVIL = (signer(number) for number in (1, 2, 3, 9))
KEYS = {name: verifier_of(one) for name, one in (("A", A), ("B", B), ("C", C), ("EVIL", EVIL))}


def change(old: LocalSigner | None, new: LocalSigner, **changes) -> dict:
    public = dict(key_change_draft(ORIGIN, old, new, size=4, now_ns=99).public)
    return {**public, **changes}


class Borrowed(LocalSigner):
    """Claims another's public key but signs with its own."""

    def __init__(self, claimed: LocalSigner, own: LocalSigner) -> None:
        super().__init__(claimed.name, own._private)
        self._claimed = claimed

    def public_key(self) -> bytes:
        return self._claimed.public_key()


SEQUENCES = {
    "one key": ("A", [change(None, A)], {"A"}),
    "two changes, trusting the first": ("A", [change(None, A), change(A, B), change(B, C)], {"A", "B", "C"}),
    "two changes, trusting the last": ("C", [change(None, A), change(A, B), change(B, C)], {"A", "B", "C"}),
    "only part of the history": ("B", [change(B, C)], {"B", "C"}),
    "out of order": ("A", [change(B, C), change(A, B)], {"A", "B", "C"}),
    "no history": ("A", [], {"A"}),
    "forged: the old key did not sign": ("A", [change(None, A), change(Borrowed(A, EVIL), EVIL)], None),
    "forged: the new key did not sign": ("A", [change(A, Borrowed(B, EVIL))], None),
    "forged: a first key beside ours": ("A", [change(None, EVIL)], None),
    "forged: a whole other history": ("A", [change(None, EVIL), change(EVIL, B)], None),
    "old signature missing": ("A", [{k: v for k, v in change(A, B).items() if k != "old_signature"}], None),
    "first key with a second signature": (
        "A",
        [change(None, A, old_signature=change(A, B)["old_signature"])],
        None,
    ),
    "statement changed": ("A", [change(A, B, statement=change(A, C)["statement"])], None),
    "statement not canonical": ("A", [change(A, B, statement=change(A, B)["statement"] + " ")], None),
    "not an object": ("A", [change(A, B, statement="[]")], None),
    "lone surrogate": ("A", [change(A, B, statement="\ud800")], None),
    "signature not base64": ("A", [change(A, B, new_signature="!!")], None),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_history(name):
    trusted, changes, expected = SEQUENCES[name]
    if expected is None:
        with pytest.raises(KeyHistoryInvalid):
            accepted_keys(KEYS[trusted], changes, ORIGIN)
    else:
        accepted = accepted_keys(KEYS[trusted], changes, ORIGIN)
        assert KEYS[trusted] == accepted[0]
        assert {KEYS[one].vkey() for one in expected} == {key.vkey() for key in accepted}


def test_a_change_of_another_log_is_refused():
    with pytest.raises(KeyHistoryInvalid, match="another log"):
        verify_key_change(change(A, B), "sluicegate.io/ledger/other")


def test_reads_back_what_was_announced():
    found = verify_key_change(change(A, B), ORIGIN)
    assert (KEYS["A"], KEYS["B"], 4, 99) == (found.old, found.new, found.size, found.time_ns)
