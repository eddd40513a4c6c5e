"""Verification of a package: a numbered list, the code labelled with its numbers; it raises on any fault.

 1. The trust root comes from outside: a trust file, or a key's fingerprint. Without one the best verdict is
    "consistent, signer not established".
 2. The container is, octet for octet, the one encoding of its members.
 3. `signer.json` decodes strictly; its history of signing keys is one line, signed by old and new key at
    each change; it connects the signer, its last key, to the trust root.
 4. The envelope decodes strictly and is signed by the signer over PAE(type, payload).
 5. The statement is of a type and version known here, with no label but those known here; its one subject
    is the manifest, by digest.
 6. The manifest lists exactly the other members, each with size and SHA-256; no member of this form is
    missing and none is added.
 7. The checkpoint decodes strictly, is signed by the key in force at its size, and is of the trusted origin.
 8. Each range is of the scope whose id the trust file gives; its heads at begin and end are proved by map
    proof and tick proof to the checkpoint, whose own head is the end. The last record before the range, shown
    by its header, was received before the window.
 9. The records' leaves, hashed from the stored octets, are exactly the range between the two heads.
10. Each record is of a known kind and of this scope, gapless, and withholds what its package must withhold,
    nothing else.
11. Each segment of rows gives the root, and the number of rows, that a record committed; a source claims no
    other class than its format has, and no other number of rows than its segments.
12. The SQL in the package is this release's, README and script this one's or an earlier one's (which is
    noted), octet for octet.
13. Attribution runs whose inputs are in the package give the committed result again.
14. Every table rebuilt from records and rows equals the packaged one, by octets; Parquet by another version
    of DuckDB by content, which is noted.
15. `figures.json` computed again is equal, and the page rendered from it is equal, octet for octet.
16. The labels that the signer states (faults, provisional) are not milder than the records, nor than the time
    at which the package was made.
17. The PDF rendered again is equal where the same renderer is installed; else it is labelled
    "rendering, not verified".

Opens no socket and treats all content as hostile. What it does not do: say that an event was recorded at
all, or hold against the operator while the package is self-asserted.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from evidence import dsse
from evidence.checkpoint import Checkpoint, VerifierKey, decode_base64, open_checkpoint
from evidence.errors import EvidenceError, PackageInvalid, SignatureInvalid
from evidence.kinds import KINDS
from evidence.merkle import verify_inclusion, verify_range
from evidence.package import container, figures, rebuild
from evidence.package.contents import read_contents
from evidence.package.decoding import Malformed, hex_bytes, load, shape
from evidence.package.members import Members, guard, lines, member
from evidence.package.model import (
    CHECKPOINT,
    ENVELOPE,
    MANIFEST,
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    README,
    SCRIPT,
    SIGNER,
    STATEMENT_TYPE,
    PackedRecord,
    Predicate,
    Range,
    parse_record_line,
    proofs_name,
    records_name,
    releases,
)
from evidence.package.proofs import HeadProof, ScopeProofs
from evidence.package.resources import EARLIER, resource
from evidence.package.trust import SignerFile, Trust
from evidence.scope import EMPTY_HEAD, Head
from evidence.scopemap import tick_leaf, verify_map
from evidence.signing import KeyHistory

VERIFIED = "verified"
NO_SIGNER = "consistent, signer not established"
NO_SCOPE = "consistent and signed by the trusted key, scope not established"
#: The leaf of a tick commits to its number and heads, and to no time: that would have to come from an anchor.
END_IS_STATED = (
    "that the range goes on to the end of the window is the signer's statement while nothing is anchored: ask"
    " for the next package too, its range begins no later than this one ends"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome when nothing is wrong.

    Attributes:
        text: `VERIFIED`, `NO_SIGNER` or `NO_SCOPE`.
        predicate: what the signer states.
        fingerprint: of the signing key.
        sha256: of the zip.
        labels: standing: self-asserted, custody, faults, provisional.
        notes: what was not verified, and why.
        figures: as recomputed.
    """

    text: str
    predicate: Predicate
    fingerprint: str
    sha256: str
    labels: Sequence[str]
    notes: Sequence[str] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


def verify(path: Path, trust: Trust) -> Verdict:
    """Verify a package file.

    Args:
        path: the zip.
        trust: from outside; an empty `Trust()` where there is none.

    Raises:
        PackageInvalid: the first wrong thing, with step, member and record.
        Unavailable: there is too little memory here; nothing is said of the package.
    """
    try:
        with path.open("rb") as file:
            octets = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as why:
        reason = why.strerror if isinstance(why, OSError) else "is empty"
        fix = "see that it is a file that you may read, and not empty"
        raise PackageInvalid("2", path.name, f"cannot be read ({reason})", fix=fix) from None
    # Not closed by hand: an error may still hold views of it.
    return verify_octets(memoryview(octets), trust, path.name)


def verify_octets(octets: bytes | memoryview, trust: Trust, name: str = "package") -> Verdict:
    """Verify a package in memory; see `verify`."""
    digest = hashlib.sha256(octets).hexdigest()
    members = container.read(octets, "2", name)  # 2
    return _verify(members, trust, digest)


def _verify(members: Members, trust: Trust, digest: str) -> Verdict:
    early = _statement(members)
    signer, history = _signer(members, trust, early.origin)  # 3
    predicate = _envelope(members, signer)  # 4, 5
    _manifest(members)  # 6
    checkpoint = _checkpoint(members, history, trust.origin or predicate.origin, predicate)  # 7
    scopes_known = _scopes(predicate, trust)  # 8
    records: list[tuple[Range, Sequence[PackedRecord]]] = [
        (r, _range(members, r, checkpoint, predicate))
        for r in predicate.ranges  # 8, 9, 10
    ]
    contents = guard("10", records_name(predicate.ranges[0].scope_id), lambda: read_contents(records))
    segments = rebuild.segments(members, contents, predicate)  # 11
    notes: list[str] = []
    rebuild.frozen(_of_this_release(members, notes))  # 12
    value = rebuild.tables(members, predicate, contents, segments, notes)  # 13, 14, 15
    rebuild.labels(predicate, contents)  # 16
    rebuild.rendering(members, predicate, value, notes)  # 17
    if not predicate.provisional:
        notes.append(END_IS_STATED)
    text = VERIFIED if trust.names_a_signer else NO_SIGNER
    if trust.names_a_signer and not scopes_known:
        text = NO_SCOPE
    return Verdict(text, predicate, signer.fingerprint, digest, figures.labels(predicate), notes, value)


def _statement(members: Members) -> Predicate:
    """The statement before its signature is checked: only to learn the origin that keys are bound to."""

    def run() -> Predicate:
        envelope = shape(load(member(members, "4", ENVELOPE)), _ENVELOPE)
        return _decode_statement(decode_base64(envelope["payload"]), None)

    return guard("4", ENVELOPE, run)


def _signer(members: Members, trust: Trust, origin: str) -> tuple[VerifierKey, KeyHistory]:
    """3. Signer and history of keys."""

    def run() -> tuple[VerifierKey, KeyHistory]:
        file = SignerFile.decode(member(members, "3", SIGNER))
        return file.signer, file.accepted(trust, trust.origin or origin)

    return guard("3", SIGNER, run)


def _envelope(members: Members, signer: VerifierKey) -> Predicate:
    """4. The envelope's signature. 5. The statement."""
    body = guard("4", ENVELOPE, lambda: dsse.unseal(member(members, "4", ENVELOPE), PAYLOAD_TYPE, signer))
    digest = hashlib.sha256(member(members, "5", MANIFEST)).digest()
    return guard("5", ENVELOPE, lambda: _decode_statement(body, digest))


def _decode_statement(body: bytes, manifest_digest: bytes | None) -> Predicate:
    v = shape(load(body), {"_type": str, "subject": list, "predicateType": str, "predicate": dict})
    if v["_type"] != STATEMENT_TYPE or v["predicateType"] != PREDICATE_TYPE or len(v["subject"]) != 1:
        raise Malformed("the statement is of another type, or has not exactly one subject")
    subject = shape(v["subject"][0], {"name": str, "digest": dict})
    digest = hex_bytes(shape(subject["digest"], {"sha256": str})["sha256"], 32)
    if subject["name"] != MANIFEST or (manifest_digest is not None and digest != manifest_digest):
        raise Malformed("the statement is about another manifest than the one in this package")
    return Predicate.decode(v["predicate"])


def _manifest(members: Members) -> None:
    """6. Every member is listed, with its size and digest."""

    def run() -> list[dict[str, Any]]:
        v = shape(load(member(members, "6", MANIFEST)), {"v": int, "members": list})
        if v["v"] != 1:
            raise Malformed("another version")
        return [shape(m, {"name": str, "size": str, "sha256": str}) for m in v["members"]]

    listed = guard("6", MANIFEST, run)
    names = [m["name"] for m in listed]
    if names != sorted(set(names)):
        raise PackageInvalid("6", MANIFEST, "a member is listed twice or out of order")
    for name in sorted(set(names) ^ (set(members) - {MANIFEST, ENVELOPE})):
        raise PackageInvalid("6", name, "is listed and missing, or present and not listed")
    for m in listed:
        data = members[m["name"]]
        if m["size"] != str(len(data)) or m["sha256"] != hashlib.sha256(data).hexdigest():
            raise PackageInvalid("6", m["name"], "differs from its size or digest in the manifest")


def _checkpoint(members: Members, history: KeyHistory, origin: str, predicate: Predicate) -> Checkpoint:
    """7. The signed head of the tick log, by the key that was in force at its size."""
    note = member(members, "7", CHECKPOINT)

    def run() -> Checkpoint:
        size = open_checkpoint(note, history.keys, origin).size
        try:
            return open_checkpoint(note, history.in_force(size), origin)
        except SignatureInvalid:
            raise Malformed("is signed by a key that was not in force at its size") from None

    checkpoint = guard("7", CHECKPOINT, run)
    if note.count("\u2014".encode()) != 1:
        raise PackageInvalid("7", CHECKPOINT, "carries signatures that nothing here checks")
    if predicate.origin != checkpoint.origin:
        raise PackageInvalid("7", CHECKPOINT, "is of another log than the statement says")
    return checkpoint


def _scopes(predicate: Predicate, trust: Trust) -> bool:
    """8. Scope ids come from outside; returns whether they were given."""
    if not trust.scopes:
        return False
    for rng in predicate.ranges:
        known = trust.scopes.get(rng.scope)
        if known is None:
            raise PackageInvalid("8", ENVELOPE, f"the trust root names no scope {rng.scope!r}")
        if known != rng.scope_id:
            raise PackageInvalid(
                "8", ENVELOPE, f"scope {rng.scope!r} has another id than the trust root says",
                fix="the package may be of another tenant; ask the operator, by another channel",
            )  # fmt: skip
    return True


def _range(members: Members, rng: Range, checkpoint: Checkpoint, predicate: Predicate) -> list[PackedRecord]:
    """8. Heads at begin and end. 9. The whole range. 10. Each record."""
    name = proofs_name(rng.scope_id)
    proofs = guard("8", name, lambda: ScopeProofs.decode(member(members, "8", name)))
    guard("8", name, lambda: _head(rng, proofs.end, checkpoint))
    if proofs.begin is None:
        begin_head = EMPTY_HEAD
    else:
        begin: HeadProof = proofs.begin
        guard("8", name, lambda: _head(rng, begin, checkpoint))
        begin_head = begin.head  # no later than the end: that is the last tick there is
    if proofs.end.tick != checkpoint.size - 1:
        raise PackageInvalid("8", name, "the range ends at an older head than the checkpoint's")
    guard("8", name, lambda: _starts_early(rng, proofs, begin_head, predicate))
    stated = (rng.begin, rng.end)
    if stated != (begin_head.size, proofs.end.head.size) or proofs.frontier.size != rng.begin:
        raise PackageInvalid("8", name, "the range is not the one between the two proved heads")
    source = records_name(rng.scope_id)
    packed = [
        _record(line, rng, rng.begin + i, source, predicate) for i, line in enumerate(lines(members, source))
    ]
    leaves = (r.leaf for r in packed)
    end = proofs.end.head
    guard("9", source, lambda: verify_range(proofs.frontier, leaves, begin_head.root, end.size, end.root))
    return packed


def _head(rng: Range, proof: HeadProof, checkpoint: Checkpoint) -> None:
    leaf = tick_leaf(proof.map_root, proof.tick)
    verify_inclusion(leaf, proof.tick, checkpoint.size, proof.tick_proof, checkpoint.root)
    verify_map(rng.scope_id, proof.head, proof.map_proof, proof.map_root)


def _starts_early(rng: Range, proofs: ScopeProofs, begin: Head, predicate: Predicate) -> None:
    """The last record that the range leaves out was received before the window."""
    if proofs.before is None:
        if begin.size:
            raise Malformed("the last record before the range is not shown")
        return
    verify_inclusion(proofs.before.leaf, begin.size - 1, begin.size, proofs.before.path, begin.root)
    if proofs.before.received_ns() > predicate.window[0]:
        raise Malformed(f"the range begins late: record {rng.begin - 1} was received in the window")


def _of_this_release(members: Members, notes: list[str]) -> Members:
    """12. README and script of an earlier release, known by digest, stand for this one's."""
    names = README, SCRIPT
    if tuple(hashlib.sha256(members[name]).hexdigest() for name in names) not in EARLIER:
        return members
    notes.append(f"{README}, {SCRIPT}: of an earlier release; take the script from this one")
    return {**members, **{name: memoryview(resource(name)) for name in names}}


def _record(line: bytes, rng: Range, seq: int, member: str, predicate: Predicate) -> PackedRecord:
    """10. One record."""

    def wrong(why: str) -> NoReturn:
        raise PackageInvalid("10", member, why, record=f"record {rng.scope} {seq}")

    try:
        record = parse_record_line(line)
    except (Malformed, EvidenceError) as why:
        wrong(str(why))
    if record.seq != seq:
        wrong(f"stands where record {seq} belongs and says it is {record.seq}")
    f = record.fields
    kind = KINDS.get(str(f.get("kind")))
    if kind is None or f.get("version") != kind.version:
        wrong("is of a kind or version that this release does not know")
    if f.get("scope") != rng.scope_id:
        wrong("was written for another scope")
    may = releases(str(f["kind"]), estate=predicate.is_estate)
    if may and record.sensitive is None:
        wrong("withholds a part that this package must release")
    if not may and record.sensitive is not None:
        wrong("releases a part that this package must withhold")
    bodies = [
        (record.public, kind.public),
        *([] if record.sensitive is None else [(record.sensitive, kind.sensitive)]),
    ]
    for body, allowed in bodies:
        if not load(body.encode()).keys() <= allowed:
            wrong("has a field that its kind does not declare")
    return record


_ENVELOPE = {"payload": str, "payloadType": str, "signatures": list}
