"""Changes of the signing key: named sequences of changes, and whether a trusted key accepts them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledger_world import accepted_keys

from evidence import ledger as ledger_module
from evidence import signing
from evidence.checkpoint import LocalSigner, verifier_of
from evidence.errors import KeyHistoryInvalid, SignerChanged
from evidence.limits import LIMITS
from evidence.package.decoding import Malformed
from evidence.package.trust import SignerFile
from evidence.sequencer import Sequencer
from evidence.signing import key_change_draft, key_history, verify_key_change

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
    "two changes, trusting the middle": ("B", [change(B, C), change(A, B), change(None, A)], {"A", "B", "C"}),
    "a ring": ("A", [change(A, B), change(B, A)], None),
    "a ring of all": ("A", [change(A, B), change(B, C), change(C, A)], None),
    "a ring beside the line": ("A", [change(None, A), change(B, C), change(C, B)], None),
    "a key that announces itself": ("A", [change(A, A)], None),
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


def test_a_long_history_is_one_line_and_costs_no_more_than_its_signatures(monkeypatch):
    """What is verified before any signature is trusted: a package's own list of changes."""
    limit, keys = LIMITS.key_changes, [LocalSigner(f"k{number}") for number in range(LIMITS.key_changes + 1)]
    changes = [change(old, new) for old, new in pairwise([None, *keys])]
    verifiers = [verifier_of(key) for key in keys[:limit]]
    for trusted in (verifiers[0], verifiers[100], verifiers[-1]):
        found = key_history(trusted, reversed(changes[:limit]), ORIGIN)
        assert (tuple(verifiers), (4,) * (limit - 1)) == (found.keys, found.sizes)
    monkeypatch.setattr(signing, "verify_key_change", lambda *_: 1 / 0)  # none of them is looked at
    with pytest.raises(KeyHistoryInvalid, match="more than 256"):
        key_history(verifiers[0], changes, ORIGIN)
    file = SignerFile(verifiers[0], changes).encode()
    with pytest.raises(Malformed, match="more than 256"):
        SignerFile.decode(file)


def test_a_ledger_announces_no_more_keys_than_a_verifier_takes(db, ledger, monkeypatch):
    monkeypatch.setattr(ledger_module, "LIMITS", replace(LIMITS, key_changes=2))
    ledger.announce_key(None, A, 1)
    ledger.announce_key(A, B, 2)
    Sequencer(db, ledger).drain_sync()
    with pytest.raises(SignerChanged, match="announced 2 keys"):
        ledger.announce_key(B, C, 3)


def test_a_change_of_another_log_is_refused():
    why = f"signing keys are of log {ORIGIN}, the trust root is of sluicegate.io/ledger/other"
    with pytest.raises(KeyHistoryInvalid, match=why):
        verify_key_change(change(A, B), "sluicegate.io/ledger/other")


def test_reads_back_what_was_announced():
    found = verify_key_change(change(A, B), ORIGIN)
    assert (KEYS["A"], KEYS["B"], 4, 99) == (found.old, found.new, found.size, found.time_ns)
