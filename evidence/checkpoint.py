"""Checkpoints of the tick log: C2SP signed notes (tlog-checkpoint), Ed25519, decoded strictly.

A checkpoint's text is three lines: origin, size in decimal, root in base64 (no extension lines). The note is
the text, an empty line, and signature lines: an em dash, the signer's name, base64 of key id and signature.
The key id is the first four octets of SHA-256(name || 0x0A || 0x01 || public key). Whatever is malformed
raises `CheckpointInvalid` and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from evidence.errors import CheckpointInvalid, SignatureInvalid
from evidence.limits import LIMITS

_ED25519 = b"\x01"
_DASH = "\u2014 "
_SIZE_MAX = 2**63 - 1


class Signer(Protocol):
    """Signs with a key that stays where it is (OpenBao transit in production)."""

    @property
    def name(self) -> str:
        """Key name as it stands in signature lines; no spaces, no plus sign."""

    def public_key(self) -> bytes:
        """Return the 32 octets of the Ed25519 public key."""

    def sign(self, message: bytes) -> bytes:
        """Return the 64 octets of the Ed25519 signature (RFC 8032, not pre-hashed)."""


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A key that a verifier accepts: name and 32 octets."""

    name: str
    public: bytes

    def __post_init__(self) -> None:
        if not _is_name(self.name) or len(self.public) != 32:
            raise CheckpointInvalid("not a verifier key: needs a name without spaces or '+', and 32 octets")

    @property
    def key_id(self) -> bytes:
        """The four octets that signature lines carry."""
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.public).digest()[:4]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key in hex: what people compare."""
        return hashlib.sha256(self.public).hexdigest()

    def vkey(self) -> str:
        """Return the C2SP text form: name+hex key id+base64."""
        encoded = base64.b64encode(_ED25519 + self.public).decode("ascii")
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, vkey: str) -> VerifierKey:
        """Read the C2SP text form.

        Raises:
            CheckpointInvalid: Malformed, another algorithm, or the key id does not belong to the key.
        """
        parts = vkey.split("+", 2)
        if len(parts) != 3:
            raise CheckpointInvalid("not a verifier key: name+id+key expected")
        raw = decode_base64(parts[2])
        if raw[:1] != _ED25519:
            raise CheckpointInvalid("not an Ed25519 verifier key")
        key = cls(parts[0], raw[1:])
        if parts[1] != key.key_id.hex():
            raise CheckpointInvalid("the id in the verifier key does not belong to it")
        return key

    def verify(self, message: bytes, signature: bytes) -> None:
        """Verify one signature.

        Raises:
            SignatureInvalid: Wrong signature, or octets that are no key.
        """
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise SignatureInvalid(f"the signature by {self.name} is wrong") from None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Origin, size and root of a tick log."""

    origin: str
    size: int
    root: bytes

    def text(self) -> bytes:
        """Return the three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode('ascii')}\n".encode()


class LocalSigner:
    """A signer that holds its key in memory: for tests and benchmarks, never for custody."""

    def __init__(self, name: str, private: Ed25519PrivateKey | None = None) -> None:
        self.name = name
        self._private = private or Ed25519PrivateKey.generate()

    def public_key(self) -> bytes:
        """Return the raw public key."""
        return self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def sign(self, message: bytes) -> bytes:
        """Sign."""
        return self._private.sign(message)


def verifier_of(signer: Signer) -> VerifierKey:
    """Return the verifier key of a signer."""
    return VerifierKey(signer.name, signer.public_key())


def sign_checkpoint(checkpoint: Checkpoint, signer: Signer) -> bytes:
    """Return the signed note of a checkpoint; the signature is verified before it is used.

    Raises:
        CheckpointInvalid: The checkpoint could not be read back.
        SignatureInvalid: The signer answered with a wrong signature.
    """
    text, key = checkpoint.text(), verifier_of(signer)
    parse_checkpoint(text)
    signature = signer.sign(text)
    key.verify(text, signature)
    line = base64.b64encode(key.key_id + signature).decode("ascii")
    return text + f"\n{_DASH}{key.name} {line}\n".encode()


def open_checkpoint(note: bytes, keys: Iterable[VerifierKey], origin: str | None = None) -> Checkpoint:
    """Verify a signed note and return its checkpoint.

    1. The note decodes strictly.
    2. Signatures by other keys are ignored; of an accepted key there is at most one, and it is right.
    3. At least one accepted key signed.
    4. The text is a checkpoint, of the expected origin.

    Args:
        note: Signed note.
        keys: Accepted keys, from outside.
        origin: Expected origin; None accepts any.

    Raises:
        CheckpointInvalid: Malformed or another origin.
        SignatureInvalid: Steps 2 or 3.
    """
    text, signatures = parse_note(note)  # 1
    accepted = {(key.name, key.key_id): key for key in keys}
    seen: set[tuple[str, bytes]] = set()
    for name, key_id, signature in signatures:  # 2
        key = accepted.get((name, key_id))
        if key is None:
            continue
        if (name, key_id) in seen:
            raise SignatureInvalid(f"{name} signed twice")
        seen.add((name, key_id))
        key.verify(text, signature)
    if not seen:  # 3
        raise SignatureInvalid("no accepted key signed this checkpoint")
    checkpoint = parse_checkpoint(text)  # 4
    if origin is not None and checkpoint.origin != origin:
        raise CheckpointInvalid("the checkpoint is of another log")
    return checkpoint


def parse_note(note: bytes) -> tuple[bytes, list[tuple[str, bytes, bytes]]]:
    """Take a signed note apart without judging signatures.

    Returns:
        The signed text, and (name, key id, signature) for each signature line.

    Raises:
        CheckpointInvalid: Malformed.
    """
    if len(note) > LIMITS.note_bytes:
        raise CheckpointInvalid(f"a note is limited to {LIMITS.note_bytes} octets")
    try:
        decoded = note.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointInvalid("a note is UTF-8") from None
    if any(char < " " and char != "\n" for char in decoded):
        raise CheckpointInvalid("a note has no control characters")
    text, blank, block = decoded.rpartition("\n\n")
    if not blank or not block.endswith("\n"):
        raise CheckpointInvalid("a note ends with an empty line and signature lines")
    lines = block[:-1].split("\n")
    if len(lines) > LIMITS.note_signatures:
        raise CheckpointInvalid(f"a note has at most {LIMITS.note_signatures} signatures")
    return (text + "\n").encode(), [_signature_line(line) for line in lines]


def parse_checkpoint(text: bytes) -> Checkpoint:
    """Read the three lines of a checkpoint; writing them again must give the same octets.

    Raises:
        CheckpointInvalid: Malformed.
    """
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise CheckpointInvalid("a checkpoint is UTF-8") from None
    if len(lines) != 4 or lines[3]:
        raise CheckpointInvalid("a checkpoint has three lines: origin, size, root")
    origin, size, root = lines[:3]
    if not origin or not origin.isprintable() or origin != origin.strip():
        raise CheckpointInvalid("a checkpoint names its origin")
    if not (size.isascii() and size.isdigit() and len(size) <= 19) or str(int(size)) != size:
        raise CheckpointInvalid("the size of a checkpoint is a decimal number")
    checkpoint = Checkpoint(origin, int(size), decode_base64(root))
    if checkpoint.size > _SIZE_MAX or len(checkpoint.root) != 32 or checkpoint.text() != text:
        raise CheckpointInvalid("the size or root of a checkpoint is out of form")
    return checkpoint


def decode_base64(text: str) -> bytes:
    """Decode standard base64 strictly: encoding again must give the same text.

    Raises:
        CheckpointInvalid: It does not.
    """
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise CheckpointInvalid("not base64") from None
    if base64.b64encode(raw).decode("ascii") != text:
        raise CheckpointInvalid("base64 with stray bits")
    return raw


def _signature_line(line: str) -> tuple[str, bytes, bytes]:
    if not line.startswith(_DASH):
        raise CheckpointInvalid("a signature line begins with an em dash")
    name, space, encoded = line[len(_DASH) :].partition(" ")
    raw = decode_base64(encoded)
    if not space or not _is_name(name) or len(raw) <= 4:
        raise CheckpointInvalid("a signature line is: em dash, name, base64")
    return name, raw[:4], raw[4:]


def _is_name(name: str) -> bool:
    return bool(name) and name.isprintable() and "+" not in name and not any(char.isspace() for char in name)
