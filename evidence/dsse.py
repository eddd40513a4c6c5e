"""DSSE envelopes: one payload, one type, one Ed25519 signature, one encoding.

PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body (secure-systems-lab/dsse, protocol.md).
The signature is over these octets, so nothing needs canonical JSON to be checked; but an envelope is refused
unless its fields and its base64 have one reading, so that no bit of it is free.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from evidence.canonical import canonical, decode_canonical
from evidence.checkpoint import Signer, VerifierKey, decode_base64, verifier_of
from evidence.errors import CheckpointInvalid, NotCanonical, SignatureInvalid


def pae(payload_type: str, body: bytes) -> bytes:
    """Pre-authentication encoding: the octets that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def envelope(payload_type: str, body: bytes, key_id: str, signature: bytes) -> dict[str, Any]:
    """The JSON value of an envelope; the signature is over `pae` of type and body."""
    return {
        "payload": base64.b64encode(body).decode(),
        "payloadType": payload_type,
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode()}],
    }


def opened(value: Any, payload_type: str, keys: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Key id and payload of an envelope that one of these keys signed.

    1. Exactly three fields, the payload type asked for, base64 with one reading.
    2. Exactly one signature; its key id, which nothing signs, is that of an accepted key.
    3. The signature is over PAE(type, payload).

    Args:
        value: the envelope as decoded from JSON.
        payload_type: the only type that is taken.
        keys: the accepted keys, 32 octets each, by key id.

    Raises:
        SignatureInvalid: any of these fails.
    """
    try:
        body = decode_base64(value["payload"])  # 1
        (signature,) = value["signatures"]  # 2
        octets, key_id = decode_base64(signature["sig"]), signature["keyid"]
        known = set(value) == {"payload", "payloadType", "signatures"} and set(signature) == {"keyid", "sig"}
        mine = value["payloadType"] == payload_type
        key = keys.get(key_id)
    except (KeyError, CheckpointInvalid, TypeError, ValueError, AttributeError):
        raise SignatureInvalid("the envelope does not decode strictly") from None
    if not (known and mine):
        raise SignatureInvalid("the envelope has other fields or another payload type")
    if key is None:
        raise SignatureInvalid("the envelope is signed by another key than the one accepted")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(octets, pae(payload_type, body))  # 3
    except (InvalidSignature, ValueError):
        raise SignatureInvalid("the envelope's signature does not verify") from None
    return key_id, body


def seal(payload_type: str, body: bytes, signer: Signer) -> bytes:
    """Canonical octets of an envelope; the signature is verified before it leaves.

    Raises:
        SignatureInvalid: the signer answered with a wrong signature.
    """
    key = verifier_of(signer)
    signature = signer.sign(pae(payload_type, body))
    key.verify(pae(payload_type, body), signature)
    return canonical(envelope(payload_type, body, key.fingerprint, signature))


def unseal(octets: bytes, payload_type: str, key: VerifierKey) -> bytes:
    """The payload of canonical octets that `seal` made with this key.

    Raises:
        SignatureInvalid: the octets are not canonical, or `opened` refuses.
    """
    try:
        value = decode_canonical(octets)
    except NotCanonical:
        raise SignatureInvalid("the envelope does not decode strictly") from None
    return opened(value, payload_type, {key.fingerprint: key.public})[1]
