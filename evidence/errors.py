"""Errors of the evidence package: one tree, "said no" apart from "could not tell".

EvidenceError
├── Refused                  said no: the input or the request is wrong, trying again changes nothing
│   ├── NotCanonical         a value outside the canonical domain
│   ├── RecordRefused        unknown kind or field, a part of the wrong shape
│   ├── FrameInvalid         stored or spooled record bytes that do not decode
│   ├── ProofInvalid         a Merkle, map or range proof that does not hold
│   ├── CheckpointInvalid    a checkpoint or signed note that does not decode strictly
│   │   └── SignatureInvalid no signature by an accepted key, or a wrong one
│   ├── KeyHistoryInvalid    a change of signing key that old and new key did not both sign
│   ├── SourceRefused        a log that cannot be imported as asked (columns, zone, imported before)
│   │   ├── SourceUnreadable nothing in it can be read: a wrong file, damaged, or empty
│   │   └── NotAttributed    it is imported, and its accesses cannot be laid to jobs
│   ├── TrustInvalid         a trust file or fingerprint, given from outside, that does not decode
│   ├── ExportRefused        a package that cannot be made as asked
│   ├── PackageInvalid       a package that does not verify: step, member and record of the first wrong thing
│   ├── PutBefore            these records were committed before
│   ├── NotInLedger          no such scope, record, tick or size
│   └── LedgerRefused        the ledger does not append
│       ├── LedgerBehind     a published checkpoint is ahead of this database
│       ├── LedgerForked     a published checkpoint differs from this database
│       └── SignerChanged    another key than the announced one was offered for a checkpoint
├── SpoolCorrupt             acknowledged frames are damaged: needs a person
└── Unavailable              could not tell: retry after the cause is gone
    ├── SpoolUnwritable      the frame is not durable (disk full, read-only, device error)
    ├── StoreUnavailable     the database did not answer or did not commit
    └── MirrorUnavailable    the published checkpoint could not be read or written
"""

from __future__ import annotations


class EvidenceError(Exception):
    """Base of every error that leaves this package.

    Attributes:
        fix: What a person can do about it; may be empty.
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class Refused(EvidenceError):  # noqa: N818 - words of the tree above
    """Said no."""


class NotCanonical(Refused):
    """A value lies outside the canonical domain (floats, non-ASCII keys, wide integers, ...)."""


class RecordRefused(Refused):
    """A draft names an unknown kind or field, or a part has the wrong shape."""


class FrameInvalid(Refused):
    """Record bytes do not decode."""


class ProofInvalid(Refused):
    """A proof does not hold."""


class CheckpointInvalid(Refused):
    """A checkpoint or signed note does not decode strictly."""


class SignatureInvalid(CheckpointInvalid):
    """No accepted key signed it, or a signature by an accepted key is wrong."""


class KeyHistoryInvalid(Refused):
    """A change of signing key is not signed by both the old and the new key."""


class SourceRefused(Refused):
    """A log cannot be imported as asked."""


class SourceUnreadable(SourceRefused):
    """Nothing in an object can be read as its format: a wrong file, most likely."""


class NotAttributed(SourceRefused):
    """Objects are imported, and their accesses cannot be laid to jobs."""


class TrustInvalid(Refused):
    """The trust root given from outside does not decode, or does not name what is asked of it."""


class ExportRefused(Refused):
    """A package cannot be made as asked."""


class PackageInvalid(Refused):
    """A package does not verify.

    Attributes:
        step: Number of the verification step that failed.
        member: Name of the file inside the package, or of the package.
        record: Scope and seq, line or row, where the fault has such a place; else empty.
    """

    def __init__(self, step: str, member: str, why: str, *, record: str = "", fix: str = "") -> None:
        place = f"{member}, {record}" if record else member
        super().__init__(f"step {step}: {place}: {why}", fix=fix)
        self.step, self.member, self.record = step, member, record


class PutBefore(Refused):
    """The records of this piece of work were committed before."""


class NotInLedger(Refused):
    """The scope, record, tick or size does not exist."""


class LedgerRefused(Refused):
    """The ledger does not append."""


class LedgerBehind(LedgerRefused):
    """A published checkpoint is ahead of this database (a restore, most likely)."""


class LedgerForked(LedgerRefused):
    """A published checkpoint is not a prefix of this database."""


class SignerChanged(LedgerRefused):
    """The signer offered is not the one that was announced in the ledger."""


class SpoolCorrupt(EvidenceError):  # noqa: N818
    """Acknowledged frames are damaged; nothing is cut, a person decides."""


class Unavailable(EvidenceError):  # noqa: N818
    """Could not tell."""


class SpoolUnwritable(Unavailable):
    """The frame did not become durable; what it records must not be answered."""


class StoreUnavailable(Unavailable):
    """The database did not answer or did not commit."""


class MirrorUnavailable(Unavailable):
    """The mirror of published checkpoints could not be read or written."""
