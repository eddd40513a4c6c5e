"""What a package consists of: member names, the signed predicate, record lines (proofs: `proofs.py`).

Encoding and strict decoding (`decoding.py`) stand side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evidence.canonical import canonical, u64
from evidence.errors import EvidenceError
from evidence.kinds import KINDS
from evidence.package.decoding import Malformed, hex_bytes, load, number, shape
from evidence.records import RecordParts, part_digest, record_leaf_hash
from evidence.scope import ESTATE, check_scope_id

FORMAT = 1
REPORT = "1"  # version of SQL, tables, figures and layout; old ones stay beside new ones
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
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
