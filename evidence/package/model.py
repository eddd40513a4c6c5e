"""What a package consists of: member names, the signed predicate, record lines, proofs.

Encoding and strict decoding stand side by side. Everything JSON is canonical, so it has one reading; a
decoder refuses unknown fields and other types, and never repairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evidence.canonical import canonical, decode_canonical, parse_u64, u64
from evidence.errors import EvidenceError, NotCanonical
from evidence.kinds import KINDS
from evidence.merkle import Frontier
from evidence.records import RecordParts, part_digest, record_leaf_hash
from evidence.scope import ESTATE, Head, check_scope_id

FORMAT = 1
REPORT = "1"  # version of SQL, tables, figures and layout; old ones stay beside new ones
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://sluicegate.io/evidence-package/v1"

MANIFEST, ENVELOPE, CHECKPOINT, SIGNER = (
    "manifest.json",
    "attestation.dsse.json",
    "checkpoint.txt",
    "signer.json",
)
README, SCRIPT, FIGURES, HTML, PDF = "README.md", "verify80.py", "figures.json", "report.html", "report.pdf"

#: What the signer may say of custody, of the anchor and of an open window: nothing else reaches page one.
EMBEDDED, UNANCHORED = "embedded (not separated)", "self-asserted"
STILL_OPEN = "no checkpoint yet after the end of the window and its lateness bound"
CUSTODY, ANCHORED, PROVISIONAL = frozenset({EMBEDDED}), frozenset({UNANCHORED}), frozenset({STILL_OPEN})
TOOLS = ("duckdb", "reportlab", "sluicegate")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,63}")

#: Kinds whose sensitive part a tenant's package releases: the tenant's own names and reasons. Of what is
#: shared (links, permits, rotations, who fetched a log) it stays withheld; the estate's releases all.
TENANT_RELEASES = frozenset({"decision"})


def proofs_name(scope_id: str) -> str:
    """Member with the proofs of a scope."""
    return f"proofs/{scope_id}.json"


def records_name(scope_id: str) -> str:
    """Member with the records of a scope."""
    return f"records/{scope_id}.ndjson"


def segment_name(segment_id: str) -> str:
    """Member with the rows of a segment."""
    return f"segments/{segment_id}.ndjson"


class Malformed(ValueError):  # noqa: N818 -- a reason; the caller adds step and member
    """Decoding failed; the text is fit for a report."""


def shape(
    value: object, fields: Mapping[str, type | tuple[type, ...]], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """The object itself, when it has exactly these fields of these types.

    Raises:
        Malformed: anything else.
    """
    if type(value) is not dict:
        raise Malformed("not an object")
    missing = [f for f in fields if f not in value and f not in optional]
    unknown = [f for f in value if f not in fields]
    if missing or unknown:
        raise Malformed(f"missing or unknown fields: {', '.join(missing + [u[:64] for u in unknown])}")
    for name, kind in fields.items():
        allowed = kind if isinstance(kind, tuple) else (kind,)
        if name in value and type(value[name]) not in allowed:
            raise Malformed(f"field {name} has another type")
    return value


def hex_bytes(text: object, octets: int) -> bytes:
    """Decode lower-case hex of a fixed length.

    Raises:
        Malformed: anything else.
    """
    if type(text) is not str or len(text) != 2 * octets or not set(text) <= set("0123456789abcdef"):
        raise Malformed(f"not {octets} octets in hex")
    return bytes.fromhex(text)


def number(text: object) -> int:
    """Decode a decimal string.

    Raises:
        Malformed: anything else.
    """
    try:
        return parse_u64(text)
    except NotCanonical as why:
        raise Malformed(str(why)) from None


def load(data: bytes | memoryview) -> Any:
    """Decode canonical JSON.

    Raises:
        Malformed: not canonical.
    """
    try:
        return decode_canonical(bytes(data))
    except NotCanonical as why:
        raise Malformed(str(why)) from None


@dataclass(frozen=True, slots=True)
class Range:
    """A contiguous range [begin, end) of one scope's tree."""

    scope: str
    scope_id: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Predicate:
    """What the signer states about the package, beside the digests.

    Attributes:
        origin: of the tick log.
        window: event window [t0, t1), nanoseconds.
        lateness_ns: bound L; the end checkpoint was taken after t1 + L.
        ranges: one per scope; the first is the package's own.
        made_ns: when it was made.
        provisional: why the window is not closed yet; empty when it is.
        anchored: `self-asserted` until an anchor outside exists.
        custody: as the operator runs it.
        faults: whether fault injection was enabled anywhere in the estate in the window.
        tool: versions of what made it.
    """

    origin: str
    window: tuple[int, int]
    lateness_ns: int
    ranges: tuple[Range, ...]
    made_ns: int
    provisional: tuple[str, ...] = ()
    anchored: str = UNANCHORED
    custody: str = EMBEDDED
    faults: bool = False
    tool: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_estate(self) -> bool:
        """Whether this is the operator's own package."""
        return self.ranges[0].scope == ESTATE

    def encode(self) -> dict[str, Any]:
        """JSON value."""
        return {
            "v": FORMAT,
            "report": REPORT,
            "origin": self.origin,
            "window": {"from_ns": u64(self.window[0]), "to_ns": u64(self.window[1])},
            "lateness_ns": u64(self.lateness_ns),
            "ranges": [
                {"scope": r.scope, "scope_id": r.scope_id, "begin": u64(r.begin), "end": u64(r.end)}
                for r in self.ranges
            ],
            "made_ns": u64(self.made_ns),
            "provisional": list(self.provisional),
            "anchored": self.anchored,
            "custody": self.custody,
            "faults": self.faults,
            "tool": dict(self.tool),
        }

    @classmethod
    def decode(cls, value: object) -> Predicate:
        """Read the JSON value strictly.

        Raises:
            Malformed: other fields, other versions, an empty window or range list.
        """
        v = shape(
            value,
            {
                **dict.fromkeys(("report", "origin", "lateness_ns", "made_ns", "anchored", "custody"), str),
                **dict.fromkeys(("ranges", "provisional"), list),
                **dict.fromkeys(("window", "tool"), dict),
                "v": int,
                "faults": bool,
            },
        )
        if v["v"] != FORMAT or v["report"] != REPORT:
            raise Malformed("a format or report version that this release does not know")
        window = shape(v["window"], {"from_ns": str, "to_ns": str})
        ranges = tuple(_range(r) for r in v["ranges"])
        bounds = number(window["from_ns"]), number(window["to_ns"])
        if not ranges or bounds[0] >= bounds[1] or len({r.scope_id for r in ranges}) != len(ranges):
            raise Malformed("an empty window, no range, or a scope twice")
        tool = shape(v["tool"], dict.fromkeys(TOOLS, str))
        if not all(_VERSION.fullmatch(t) for t in tool.values()):
            raise Malformed("tool does not name versions")
        said = [type(t) is str and t in PROVISIONAL for t in v["provisional"]]
        if not all(said) or len(said) > 1 or v["custody"] not in CUSTODY or v["anchored"] not in ANCHORED:
            raise Malformed("a label that this release does not know, or can't verify")
        return cls(
            v["origin"], bounds, number(v["lateness_ns"]), ranges, number(v["made_ns"]),
            tuple(v["provisional"]), v["anchored"], v["custody"], v["faults"], v["tool"],
        )  # fmt: skip


def _range(value: object) -> Range:
    v = shape(value, {"scope": str, "scope_id": str, "begin": str, "end": str})
    try:
        check_scope_id(v["scope_id"])
    except EvidenceError as why:
        raise Malformed(str(why)) from None
    begin, end = number(v["begin"]), number(v["end"])
    if begin > end:
        raise Malformed("a range that ends before it begins")
    return Range(v["scope"], v["scope_id"], begin, end)


@dataclass(frozen=True, slots=True)
class HeadProof:
    """That a scope had this head at a tick (its index in the tick log): map proof, then tick proof."""

    tick: int
    head: Head
    map_root: bytes
    map_proof: tuple[bytes, ...]
    tick_proof: tuple[bytes, ...]

    def encode(self) -> dict[str, Any]:
        """JSON value."""
        return {
            "tick": u64(self.tick),
            "size": u64(self.head.size),
            "root": self.head.root.hex(),
            "map_root": self.map_root.hex(),
            "map_proof": [h.hex() for h in self.map_proof],
            "tick_proof": [h.hex() for h in self.tick_proof],
        }

    @classmethod
    def decode(cls, value: object) -> HeadProof:
        """Read the JSON value strictly."""
        fields = dict.fromkeys(("tick", "size", "root", "map_root"), str)
        v = shape(value, {**fields, "map_proof": list, "tick_proof": list})
        return cls(
            number(v["tick"]), Head(number(v["size"]), hex_bytes(v["root"], 32)),
            hex_bytes(v["map_root"], 32), _hashes(v["map_proof"]), _hashes(v["tick_proof"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Before:
    """The last record before the range: its header, the digests of its bodies, its path to the head at begin.

    It tells when that record was received, so that a range can't begin later than its window unnoticed.
    """

    header: str
    header_salt: bytes
    public_digest: bytes
    sensitive_digest: bytes
    path: tuple[bytes, ...]

    @property
    def leaf(self) -> bytes:
        """Leaf hash of the record."""
        digest = part_digest(self.header_salt, self.header.encode())
        return record_leaf_hash(digest, self.public_digest, self.sensitive_digest)

    def received_ns(self) -> int:
        """When the record was received.

        Raises:
            Malformed: the header does not tell.
        """
        fields = load(self.header.encode())
        return number(fields.get("received_time") if type(fields) is dict else None)

    def encode(self) -> dict[str, Any]:
        """JSON value."""
        return {
            "header": self.header,
            "header_salt": self.header_salt.hex(),
            "public_digest": self.public_digest.hex(),
            "sensitive_digest": self.sensitive_digest.hex(),
            "path": [h.hex() for h in self.path],
        }

    @classmethod
    def decode(cls, value: object) -> Before:
        """Read the JSON value strictly."""
        fields = dict.fromkeys(("header", "header_salt", "public_digest", "sensitive_digest"), str)
        v = shape(value, {**fields, "path": list})
        return cls(
            v["header"], hex_bytes(v["header_salt"], 16), hex_bytes(v["public_digest"], 32),
            hex_bytes(v["sensitive_digest"], 32), _hashes(v["path"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScopeProofs:
    """Proofs of one scope's range: frontier at its begin, heads at its end and (unless 0) its begin.

    `before` is None exactly when the range begins at 0.
    """

    frontier: Frontier
    begin: HeadProof | None
    before: Before | None
    end: HeadProof

    def encode(self) -> bytes:
        """Canonical octets."""
        return canonical(
            {
                "frontier": {
                    "size": u64(self.frontier.size),
                    "nodes": [h.hex() for h in self.frontier.nodes],
                },
                "begin": None if self.begin is None else self.begin.encode(),
                "before": None if self.before is None else self.before.encode(),
                "end": self.end.encode(),
            }
        )

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ScopeProofs:
        """Read canonical octets strictly.

        Raises:
            Malformed: anything else.
        """
        maybe = (dict, type(None))
        v = shape(load(data), {"frontier": dict, "begin": maybe, "before": maybe, "end": dict})
        f = shape(v["frontier"], {"size": str, "nodes": list})
        try:
            frontier = Frontier(number(f["size"]), _hashes(f["nodes"]))
        except EvidenceError as why:
            raise Malformed(str(why)) from None
        begin = None if v["begin"] is None else HeadProof.decode(v["begin"])
        before = None if v["before"] is None else Before.decode(v["before"])
        return cls(frontier, begin, before, HeadProof.decode(v["end"]))


def _hashes(values: list[object]) -> tuple[bytes, ...]:
    return tuple(hex_bytes(h, 32) for h in values)


def record_line(seq: int, parts: RecordParts, *, release: bool) -> bytes:
    """One line of a records member: stored octets as text, each part with its salt or its digest."""
    line = {
        "seq": u64(seq),
        "header": parts.header.decode(),
        "header_salt": parts.salts[:16].hex(),
        "public": parts.public.decode(),
        "public_salt": parts.salts[16:32].hex(),
    }
    if release:
        line |= {"sensitive": parts.sensitive.decode(), "sensitive_salt": parts.salts[32:].hex()}
    else:
        line |= {"sensitive_digest": parts.digests()[2].hex()}
    return canonical(line)


@dataclass(frozen=True, slots=True)
class PackedRecord:
    """A record as a package carries it; `sensitive` is None where the part is withheld."""

    seq: int
    header: str
    public: str
    sensitive: str | None
    leaf: bytes
    fields: Mapping[str, Any]


_LINE = dict.fromkeys(("seq", "header", "header_salt", "public", "public_salt"), str)


def parse_record_line(data: bytes) -> PackedRecord:
    """Read a line; its leaf is hashed from the octets it carries, nothing is encoded again.

    Raises:
        Malformed: anything out of form, a part that is not one canonical object.
    """
    value = load(data)
    withheld = type(value) is dict and "sensitive_digest" in value
    more = {"sensitive_digest": str} if withheld else {"sensitive": str, "sensitive_salt": str}
    v = shape(value, {**_LINE, **more})
    digests = [
        part_digest(hex_bytes(v[f"{p}_salt"], 16), v[p].encode())
        for p in ("header", "public", *(() if withheld else ("sensitive",)))
    ]
    if withheld:
        digests.append(hex_bytes(v["sensitive_digest"], 32))
    fields = load(v["header"].encode())
    bodies = [load(v[p].encode()) for p in ("public", *(() if withheld else ("sensitive",)))]
    if not all(type(b) is dict for b in (fields, *bodies)):
        raise Malformed("a part is not an object")
    sensitive = None if withheld else v["sensitive"]
    return PackedRecord(
        number(v["seq"]), v["header"], v["public"], sensitive, record_leaf_hash(*digests), fields
    )


def releases(kind: str, *, estate: bool) -> bool:
    """Whether a package releases the sensitive part of this kind (a kind without one has nothing to hide)."""
    return estate or kind in TENANT_RELEASES or (kind in KINDS and not KINDS[kind].sensitive)
