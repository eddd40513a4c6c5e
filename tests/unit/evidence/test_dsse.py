"""DSSE envelopes against the protocol's example, and the one reading that an envelope has."""

from __future__ import annotations

import base64
from copy import deepcopy
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evidence.canonical import canonical
from evidence.checkpoint import LocalSigner, verifier_of
from evidence.dsse import envelope, opened, pae, seal, unseal
from evidence.errors import SignatureInvalid

KIND = "http://example.com/HelloWorld"
SIGNER = LocalSigner("log.example")
KEYS = {"k": SIGNER.public_key()}


def good() -> dict[str, Any]:
    return envelope(KIND, b"hello world", "k", SIGNER.sign(pae(KIND, b"hello world")))


def test_pae_is_that_of_the_protocol() -> None:
    """Example of secure-systems-lab/dsse protocol.md."""
    assert b"DSSEv1 29 http://example.com/HelloWorld 11 hello world" == pae(KIND, b"hello world")


def test_an_envelope_opens_with_its_key() -> None:
    assert ("k", b"hello world") == opened(good(), KIND, KEYS)
    sealed = seal(KIND, b"hello world", SIGNER)
    assert b"hello world" == unseal(sealed, KIND, verifier_of(SIGNER))
    with pytest.raises(SignatureInvalid, match="strictly"):
        unseal(sealed.replace(b",", b", ", 1), KIND, verifier_of(SIGNER))


def test_a_signer_that_answers_wrongly_seals_nothing() -> None:
    class Wrong(LocalSigner):
        def sign(self, message: bytes) -> bytes:
            return super().sign(message + b"x")

    with pytest.raises(SignatureInvalid):
        seal(KIND, b"hello world", Wrong("log.example"))


def with_(path: str, value: Any) -> dict[str, Any]:
    changed = deepcopy(good())
    at: Any = changed
    *parents, last = path.split(".")
    for name in parents:
        at = at[0][name] if isinstance(at, list) else at[name]
    (at[0] if isinstance(at, list) else at)[last] = value
    return changed


SIG = good()["signatures"][0]
WRONG = base64.b64encode(bytes(64)).decode()


@pytest.mark.parametrize(
    "value",
    [
        None, [], "text", 7, {},
        with_("more", 1), with_("signatures.more", 1), with_("payloadType", KIND + "x"),
        with_("signatures", []), with_("signatures", [SIG, SIG]), with_("signatures", SIG),
        with_("signatures.keyid", "other"), with_("signatures.keyid", ["k"]), with_("signatures.keyid", None),
        with_("signatures.sig", WRONG), with_("signatures.sig", ""), with_("signatures.sig", None),
        with_("payload", "aGVsbG8gd29ybGR="), with_("payload", "aGVsbG8gd29ybGQ"),
        with_("payload", "aGVsbG8gd29ybGQ=\n"), with_("payload", "aGVsbG8_d29ybGQ="),
        with_("payload", 5), with_("payload", "\u00e9"), with_("payload", ""),
    ],
)  # fmt: skip
def test_what_has_another_reading_is_refused(value: Any) -> None:
    with pytest.raises(SignatureInvalid):
        opened(value, KIND, KEYS)


def test_only_the_named_key_is_asked() -> None:
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    for keys in ({}, {"k": other}, {"k": b"short"}, {"K": KEYS["k"]}):
        with pytest.raises(SignatureInvalid):
            opened(good(), KIND, keys)
    assert canonical(good())  # it is canonical JSON as it stands
