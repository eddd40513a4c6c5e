"""What an attacker does to a package: for tests, and for the demo to show that it fails.

Each takes the members of a package and gives back members or octets; with a key of their own, an attacker
can sign anything anew, so only the trust root from outside and the rebuilding of every table stand against.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evidence import dsse
from evidence.canonical import decode_canonical
from evidence.checkpoint import (
    Signer,
    decode_base64,
    parse_checkpoint,
    parse_note,
    sign_checkpoint,
    verifier_of,
)
from evidence.package import container
from evidence.package.contents import manifest, statement
from evidence.package.model import CHECKPOINT, ENVELOPE, MANIFEST, PAYLOAD_TYPE, SIGNER, Predicate
from evidence.package.trust import SignerFile


def unpack(octets: bytes) -> dict[str, bytes]:
    """Members of a package."""
    return {name: bytes(data) for name, data in container.read(octets, "2", "package").items()}


def pack(members: Mapping[str, bytes]) -> bytes:
    """Octets of a package."""
    return b"".join(container.write(members))


def flip(octets: bytes, bit: int) -> bytes:
    """One bit changed."""
    out = bytearray(octets)
    out[bit // 8] ^= 1 << (bit % 8)
    return bytes(out)


def sign_again(members: Mapping[str, bytes], signer: Signer, **changes: Any) -> dict[str, bytes]:
    """A new manifest and a new envelope over changed members; keywords replace fields of the predicate."""
    envelope = decode_canonical(members[ENVELOPE])
    predicate = Predicate.decode(decode_canonical(decode_base64(envelope["payload"]))["predicate"])
    fresh = {n: d for n, d in members.items() if n not in (MANIFEST, ENVELOPE)}
    fresh[MANIFEST] = manifest(fresh)
    body = statement(hashlib.sha256(fresh[MANIFEST]).hexdigest(), replace(predicate, **changes))
    fresh[ENVELOPE] = dsse.seal(PAYLOAD_TYPE, body, signer)
    return fresh


def recreate(members: Mapping[str, bytes], signer: Signer) -> dict[str, bytes]:
    """The whole package under another key: checkpoint, signer and envelope."""
    text, _ = parse_note(members[CHECKPOINT])
    fresh = dict(members)
    fresh[CHECKPOINT] = sign_checkpoint(parse_checkpoint(text), signer)
    fresh[SIGNER] = SignerFile(verifier_of(signer), []).encode()
    return sign_again(fresh, signer)


def change_cell(members: Mapping[str, bytes], table: str, old: bytes, new: bytes) -> dict[str, bytes]:
    """One cell of a CSV table changed."""
    name = f"tables/{table}.csv"
    changed = members[name].replace(old, new, 1)
    if changed == members[name]:
        raise ValueError(f"{name} does not hold the text to change")
    return {**members, name: changed}
