"""DSSE envelopes: one payload, one type, one signature, one encoding.

PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body (secure-systems-lab/dsse, protocol.md).
The signature is over these octets, so nothing needs canonical JSON to be checked; but the envelope itself
is refused unless it is canonical, so that no bit of it is free.
"""

from __future__ import annotations

import base64
from typing import Any

from evidence.canonical import canonical, decode_canonical
from evidence.checkpoint import Signer, VerifierKey, decode_base64, verifier_of
from evidence.errors import CheckpointInvalid, NotCanonical, SignatureInvalid

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def pae(payload_type: str, body: bytes) -> bytes:
    """Pre-authentication encoding: the octets that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def seal(body: bytes, signer: Signer) -> bytes:
    """Sign a payload; the signature is verified before the envelope leaves.

    Raises:
        SignatureInvalid: the signer answered with a wrong signature.
    """
    key = verifier_of(signer)
    signature = signer.sign(pae(PAYLOAD_TYPE, body))
    key.verify(pae(PAYLOAD_TYPE, body), signature)
    return canonical(
        {
            "payload": base64.b64encode(body).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": key.fingerprint, "sig": base64.b64encode(signature).decode()}],
        }
    )


def unseal(envelope: bytes, key: VerifierKey) -> bytes:
    """The payload of an envelope that this key signed.

    1. Canonical JSON of exactly three fields, the payload type ours, base64 with one reading.
    2. Exactly one signature; its key id, which nothing signs, is this key's fingerprint.
    3. The signature is over PAE(type, payload).

    Raises:
        SignatureInvalid: any of these fails.
    """
    try:
        value: dict[str, Any] = decode_canonical(envelope)  # 1
        body = decode_base64(value["payload"])
        (signature,) = value["signatures"]  # 2
        octets, key_id = decode_base64(signature["sig"]), signature["keyid"]
        known = set(value) == {"payload", "payloadType", "signatures"} and set(signature) == {"keyid", "sig"}
        payload_type = value["payloadType"]
    except (KeyError, NotCanonical, CheckpointInvalid, TypeError, ValueError, AttributeError):
        raise SignatureInvalid("the envelope does not decode strictly") from None
    if not known or payload_type != PAYLOAD_TYPE:
        raise SignatureInvalid("the envelope has other fields or another payload type")
    if key_id != key.fingerprint:
        raise SignatureInvalid("the envelope is signed by another key than the one accepted")
    key.verify(pae(payload_type, body), octets)  # 3
    return body
