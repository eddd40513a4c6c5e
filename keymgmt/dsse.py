"""DSSE envelopes over octets with one Ed25519 signature (secure-systems-lab/dsse, protocol and envelope)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from keymgmt.errors import PermitRefused

Sign = Callable[[bytes], bytes]
"""Signs octets with Ed25519 and returns the 64 octets."""


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return what DSSE signs (secure-systems-lab/dsse protocol.md, PAE)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope(payload_type: str, payload: bytes, key_id: str, sign: Sign) -> dict[str, Any]:
    """Return a DSSE envelope with one signature."""
    signature = sign(pae(payload_type, payload))
    return {
        "payloadType": payload_type,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode()}],
    }


def opened(doc: Mapping[str, Any], payload_type: str, keys: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return (key id, payload) of a DSSE envelope signed by one of `keys`. Raises PermitRefused."""
    if doc.get("payloadType") != payload_type or set(doc) != {"payloadType", "payload", "signatures"}:
        raise PermitRefused("envelope: not a DSSE envelope of the expected type")
    signatures = doc["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        raise PermitRefused("envelope: exactly one signature is expected")
    if set(signatures[0]) != {"keyid", "sig"}:
        raise PermitRefused("envelope: a signature has keyid and sig")
    key = keys.get(str(signatures[0]["keyid"]))
    if key is None:
        raise PermitRefused("signature: by a key that is not trusted here")
    try:
        payload, signature = _decoded(doc["payload"]), _decoded(signatures[0]["sig"])
        Ed25519PublicKey.from_public_bytes(key).verify(signature, pae(payload_type, payload))
    except (InvalidSignature, ValueError, TypeError, KeyError):
        raise PermitRefused("signature: does not verify") from None
    return str(signatures[0]["keyid"]), payload


def _decoded(text: str) -> bytes:
    """Decode base64 in its one canonical spelling: no stray bits, no missing padding, nothing else."""
    octets = base64.b64decode(text, validate=True)
    if base64.b64encode(octets).decode() != text:
        raise ValueError("not canonical base64")
    return octets
