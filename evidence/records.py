"""Records: from a draft to three salted parts, one leaf, and the frame that carries them.

Leaf data (ledger.md section 2) is

    0x01 || SHA-256(salt_h || header) || SHA-256(salt_p || public body) || SHA-256(salt_s || sensitive body)

and the leaf hash is SHA-256(0x00 || leaf data) (RFC 6962 section 2.1). Salts are 16 octets each and released
only with their part, so a withheld part cannot be guessed from its digest. An empty part is `{}`.

The frame is what spool, outbox and database carry; whoever appends to the ledger copies it:

    0x01 || 3 x u32 big-endian part lengths || 3 x 16 octets of salt || header || public || sensitive
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evidence.canonical import Encoded, canonical, canonical_object, decode_canonical, u64
from evidence.errors import FrameInvalid, NotCanonical, RecordRefused
from evidence.kinds import KINDS, Kind
from evidence.limits import LIMITS

VERSION = 1
SALT_OCTETS = 16
SALTS_OCTETS = 3 * SALT_OCTETS
_HEAD = struct.Struct(">BIII48s")
_VERSION_OCTET = bytes([VERSION])
_LEAF_PREFIX = b"\x00" + _VERSION_OCTET  # RFC 6962 leaf prefix, then the version that begins leaf data
_EMPTY_PART = b"{}"
_TIME_MAX = 2**63 - 1
_FIX_KIND = "declare kind and field in evidence/kinds.py, in the part where it belongs"
_sha256 = hashlib.sha256


@dataclass(frozen=True, slots=True)
class Draft:
    """What a component wants recorded, before the ledger's own fields are added.

    Attributes:
        kind: A key of `KINDS`.
        scope: Scope *name*: `estate` or a tenant.
        source: Who reports; its `source_seq` is gapless.
        event_time_ns: When it happened as reported, nanoseconds UTC; None where unknown.
        public: Fields of the public body.
        sensitive: Fields of the sensitive body; a value may be `canonical.Encoded`.
        header: Additional header fields (`event_id`, `caused_by`).
    """

    kind: str
    scope: str
    source: str
    event_time_ns: int | None
    public: Mapping[str, Any]
    sensitive: Mapping[str, Any] = field(default_factory=dict)
    header: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A complete record: the frame to store and the hash of its leaf."""

    frame: bytes
    leaf_hash: bytes


@dataclass(frozen=True, slots=True)
class RecordParts:
    """The stored octets of a record. `verify` hashes these and never encodes again."""

    header: bytes
    public: bytes
    sensitive: bytes
    salts: bytes  # 48 octets: header, public, sensitive

    def digests(self) -> tuple[bytes, bytes, bytes]:
        """Return the three part digests in leaf order."""
        return (
            part_digest(self.salts[:16], self.header),
            part_digest(self.salts[16:32], self.public),
            part_digest(self.salts[32:], self.sensitive),
        )

    def leaf_hash(self) -> bytes:
        """Return the RFC 6962 leaf hash of this record."""
        return record_leaf_hash(*self.digests())

    def header_fields(self) -> dict[str, Any]:
        """Parse the header.

        Raises:
            FrameInvalid: It is not a canonical object.
        """
        return _object(self.header)

    def public_fields(self) -> dict[str, Any]:
        """Parse the public body.

        Raises:
            FrameInvalid: It is not a canonical object.
        """
        return _object(self.public)

    def sensitive_fields(self) -> dict[str, Any]:
        """Parse the sensitive body.

        Raises:
            FrameInvalid: It is not a canonical object.
        """
        return _object(self.sensitive)


def encode(
    draft: Draft, *, scope_id: str, source_seq: int, boot_id: str, received_time_ns: int, salts: bytes
) -> EncodedRecord:
    """Make the complete record of a draft.

    Args:
        draft: What to record.
        scope_id: Random id of the scope that `draft.scope` names.
        source_seq: Gapless number within the source.
        boot_id: Which start of the source this is.
        received_time_ns: When the component took it, nanoseconds UTC.
        salts: 48 fresh random octets.

    Returns:
        Frame and leaf hash.

    Raises:
        RecordRefused: Unknown kind or field, wrong number of salt octets, or too large.
        NotCanonical: A value outside the canonical domain.
    """
    kind = _checked_kind(draft)
    if len(salts) != SALTS_OCTETS:
        raise RecordRefused("three salts of 16 octets are needed")
    fields: dict[str, Any] = {
        "boot_id": boot_id,
        "kind": draft.kind,
        "received_time": u64(received_time_ns),
        "scope": scope_id,
        "source": draft.source,
        "source_seq": u64(source_seq),
        "version": kind.version,
    }
    if received_time_ns > _TIME_MAX or (draft.event_time_ns or 0) > _TIME_MAX:
        raise RecordRefused("a time is past what databases and tables hold (2^63 - 1 nanoseconds)")
    if draft.event_time_ns is not None:
        fields["event_time"] = u64(draft.event_time_ns)
    if draft.header:
        fields.update(draft.header)
    header, public = canonical(fields), _body(draft.public)
    sensitive = _body(draft.sensitive) if draft.sensitive else _EMPTY_PART
    if len(header) + len(public) + len(sensitive) > LIMITS.record_bytes:
        raise RecordRefused(f"a record is limited to {LIMITS.record_bytes} octets")
    leaf = record_leaf_hash(
        _sha256(salts[:16] + header).digest(),
        _sha256(salts[16:32] + public).digest(),
        _sha256(salts[32:] + sensitive).digest(),
    )
    head = _HEAD.pack(VERSION, len(header), len(public), len(sensitive), salts)
    return EncodedRecord(b"".join((head, header, public, sensitive)), leaf)


def decode_frame(frame: bytes) -> RecordParts:
    """Take a frame apart; every octet must be accounted for.

    Args:
        frame: As `encode` made it.

    Returns:
        The stored octets of the parts.

    Raises:
        FrameInvalid: Wrong version or lengths.
    """
    if len(frame) < _HEAD.size:
        raise FrameInvalid("a record frame is shorter than its head")
    version, header, public, sensitive, salts = _HEAD.unpack_from(frame)
    if version != VERSION:
        raise FrameInvalid(f"record version {version} is not known here", fix="use a newer release")
    first, second = _HEAD.size + header, _HEAD.size + header + public
    if second + sensitive != len(frame):
        raise FrameInvalid("the lengths in a record frame do not add up")
    return RecordParts(frame[_HEAD.size : first], frame[first:second], frame[second:], salts)


def part_digest(salt: bytes, body: bytes) -> bytes:
    """Return SHA-256(salt || body), the digest of one part.

    Args:
        salt: 16 octets.
        body: Canonical bytes of the part.

    Raises:
        FrameInvalid: The salt has another length (lengths are fixed, else two readings share a digest).
    """
    if len(salt) != SALT_OCTETS:
        raise FrameInvalid("a salt has 16 octets")
    return _sha256(salt + body).digest()


def record_leaf_hash(header: bytes, public: bytes, sensitive: bytes) -> bytes:
    """Return SHA-256(0x00 || 0x01 || three part digests of 32 octets).

    Raises:
        FrameInvalid: The digests are not 32 octets each.
    """
    if not len(header) == len(public) == len(sensitive) == 32:
        raise FrameInvalid("a part digest has 32 octets")
    return _sha256(_LEAF_PREFIX + header + public + sensitive).digest()


def _checked_kind(draft: Draft) -> Kind:
    """Return the declaration of the draft's kind when all its fields are declared."""
    kind = KINDS.get(draft.kind)
    if kind is None:
        raise RecordRefused(f"record kind {draft.kind!r} is not declared", fix=_FIX_KIND)
    for part, allowed in (
        (draft.public, kind.public),
        (draft.sensitive, kind.sensitive),
        (draft.header, kind.header),
    ):
        if not part.keys() <= allowed:
            unknown = ", ".join(sorted(str(name)[:64] for name in part.keys() - allowed))
            raise RecordRefused(
                f"record kind {draft.kind} does not declare: {unknown}",
                fix=_FIX_KIND,
            )
    return kind


def _body(fields: Mapping[str, Any]) -> bytes:
    """Encode a body; absent fields are omitted, never null."""
    types = set(map(type, fields.values()))
    if type(None) in types:
        fields = {name: value for name, value in fields.items() if value is not None}
    return canonical_object(fields) if Encoded in types else canonical(fields)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = decode_canonical(data)
    except NotCanonical as error:
        raise FrameInvalid(f"a record part is not canonical: {error}") from None
    if type(value) is not dict:
        raise FrameInvalid("a record part is not an object")
    return value
